"""Reads a `SKILL.md`: its frontmatter in YAML, and its text."""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from toolscript.domain.agent_skills import MAIN_FILE
from toolscript.domain.errors import Invalid

# The frontmatter of published agent skills has less than 4 KiB.
MAX_FRONTMATTER = 64 * 2**10
MAX_BITS = 64
MAX_DEPTH = 32
_UNSTORABLE = re.compile(r"[\0\ud800-\udfff]")
_FRONTMATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


class _FrontmatterLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads what JSON can express."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (a table of the class that is extended)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def parse_main_file(content: bytes) -> tuple[dict[str, Any], str]:
    """The frontmatter of a `SKILL.md`, and the text behind it. Raises Invalid."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"its {MAIN_FILE} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    if "\0" in text:
        raise Invalid(f"its {MAIN_FILE} is a binary file")
    found = _FRONTMATTER.match(text)
    if found is None:
        raise Invalid(f"its {MAIN_FILE} does not begin with frontmatter: a line ---, name and description, a line ---")
    if len(found[1]) > MAX_FRONTMATTER:
        raise Invalid(f"its frontmatter has more than {MAX_FRONTMATTER // 2**10} KiB")
    try:
        _check_structure(found[1])
        frontmatter = yaml.load(found[1], Loader=_FrontmatterLoader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 2})" if mark else ""
        problem = getattr(error, "problem", None) or "it has an invalid value"
        raise Invalid(f"its frontmatter is not valid YAML: {problem}{place}") from error
    if not isinstance(frontmatter, dict) or not _is_json(frontmatter):
        raise Invalid(
            "its frontmatter must be names with texts, numbers, lists and objects, as JSON and stores take them"
        )
    return frontmatter, text[found.end() :]


def _check_structure(text: str) -> None:
    """Raises Invalid for aliases, a few bytes of which can mean gigabytes, and for deep nesting."""
    depth = 0
    for event in yaml.parse(text, Loader=_FrontmatterLoader):
        if isinstance(event, yaml.AliasEvent):
            raise Invalid("its frontmatter has aliases (*name), which are not allowed")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise Invalid(f"its frontmatter is not valid YAML: it is nested deeper than {MAX_DEPTH} levels")


def _is_json(value: Any) -> bool:
    match value:
        case None | bool():
            return True
        case str():
            return not _UNSTORABLE.search(value)
        case int():
            return value.bit_length() < MAX_BITS
        case float():
            return math.isfinite(value)
        case list():
            return all(map(_is_json, value))
        case dict():
            return all(isinstance(key, str) and _is_json(key) and _is_json(each) for key, each in value.items())
        case _:
            return False
