"""Values and conditions as people write them on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from toolscript.domain.errors import Invalid
from toolscript.domain.filters import MAX_EXACT_NUMBER, Condition, Filter, Op

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_CONDITION = re.compile(r"(?P<field>[^=<>!~]+)(?P<sign>!=|>=|<=|=|>|<|~)(?P<value>.*)", re.DOTALL)
_OPS = {"=": Op.EQ, "!=": Op.NE, ">=": Op.GTE, "<=": Op.LTE, ">": Op.GT, "<": Op.LT, "~": Op.CONTAINS}


def typed(text: str) -> str | int | float | bool:
    """A number, true or false where the text is one; what stands in double quotes is a text in any case."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    if text in {"true", "false"}:
        return text == "true"
    if _NUMBER.fullmatch(text):
        number = float(text) if "." in text else int(text)
        if abs(number) <= MAX_EXACT_NUMBER:  # what is longer is the number of something, and no quantity
            return number
    return text


def pairs(given: Sequence[str], flag: str) -> dict[str, Any]:
    """`KEY=VALUE`, each. Raises Invalid."""
    made: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise Invalid(f"{flag} {pair} is not usable: give KEY=VALUE", details={"field": flag})
        made[name.strip()] = typed(value)
    return made


def conditions(given: Sequence[str], flag: str) -> Filter:
    """`FIELD=VALUE` and the like, all of which must hold. Raises Invalid."""
    made = []
    for each in given:
        found = _CONDITION.fullmatch(each)
        if not found:
            raise Invalid(
                f"{flag} {each} is not usable: give FIELD=VALUE (or != >= <= > < ~, where ~ is: contains)",
                details={"field": flag},
            )
        made.append(Condition(found["field"].strip(), _OPS[found["sign"]], typed(found["value"])))
    return Filter(must=tuple(made))
