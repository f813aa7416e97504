"""Values and conditions as people write them on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from toolscript.domain.errors import Invalid
from toolscript.domain.filters import MAX_EXACT_NUMBER, Condition, Filter, Op

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_CONDITION = re.compile(r"(?P<field>[^=<>!~]+)(?P<sign>!=|>=|<=|=|>|<|~)(?P<value>.*)", re.DOTALL)
_OPS = {"=": Op.EQ, "!=": Op.NE, ">=": Op.GTE, "<=": Op.LTE, ">": Op.GT, "<": Op.LT, "~": Op.CONTAINS}


def parse_value(text: str) -> str | int | float | bool:
    """A number or a boolean if the text is one, else the text; in double quotes it is always text."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    if text in {"true", "false"}:
        return text == "true"
    if _NUMBER.fullmatch(text):
        number = float(text) if "." in text else int(text)
        if abs(number) <= MAX_EXACT_NUMBER:  # longer digits are an identifier, not a quantity
            return number
    return text


def parse_pairs(given: Sequence[str], flag: str, parse: Callable[[str], Any] = parse_value) -> dict[str, Any]:
    """Parses `NAME=VALUE` options. Raises Invalid."""
    values: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise Invalid(f"invalid {flag} {pair}: expected NAME=VALUE", details={"field": flag})
        values[name.strip()] = parse(value)
    return values


def parse_conditions(given: Sequence[str], flag: str) -> Filter:
    """Parses `FIELD=VALUE` options (or another operator) to a filter that requires all of them. Raises Invalid."""
    conditions = []
    for each in given:
        match = _CONDITION.fullmatch(each)
        if not match:
            raise Invalid(
                f"invalid {flag} {each}: expected FIELD=VALUE, or one of != >= <= > < ~ (contains) instead of =",
                details={"field": flag},
            )
        conditions.append(Condition(match["field"].strip(), _OPS[match["sign"]], parse_value(match["value"])))
    return Filter(must=tuple(conditions))


def format_conditions(where: Filter) -> dict[str, Any]:
    """The filter of `parse_conditions` as JSON for a gateway."""
    return {"must": [{"field": each.field, "op": each.op, "value": each.value} for each in where.must]}
