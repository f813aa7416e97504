"""Accepts arguments that are plainly valid without asking the worker, which takes 0.4 ms. Most schemas of tools only
name properties and their types. Whatever needs more than that, or looks wrong, is for the worker to judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Each step, a value and a schema for it, takes some microseconds of the event loop.
MAX_STEPS, MAX_DEPTH = 500, 20
# Keywords that no validator checks, or that the worker ignores.
ANNOTATIONS = frozenset(
    {"$comment", "default", "deprecated", "description", "examples", "format", "pattern", "readOnly", "title"}
    | {"writeOnly"}
)
# Other versions give some keywords another meaning.
DIALECTS = ("http://json-schema.org/draft-07/schema", "https://json-schema.org/draft/2020-12/schema")


def accept(schema: Any, arguments: Any) -> bool:
    """Whether the arguments are valid; false also where only a validator can decide."""
    return _PlainCheck().accepts(schema, arguments)


class _PlainCheck:
    def __init__(self) -> None:
        self._steps = self._depth = 0

    def accepts(self, schema: Any, value: Any) -> bool:
        self._steps += 1
        if self._steps > MAX_STEPS or self._depth == MAX_DEPTH:
            return False
        if not isinstance(schema, Mapping):
            return schema is True
        self._depth += 1
        rules = [(keyword, rule) for keyword, rule in schema.items() if keyword not in ANNOTATIONS]
        is_valid = all(self._meets(keyword, rule, schema, value) for keyword, rule in rules)
        self._depth -= 1
        return is_valid

    def _meets(self, keyword: str, rule: Any, schema: Mapping[str, Any], value: Any) -> bool:
        match keyword:
            case "$schema":
                return isinstance(rule, str) and rule.removesuffix("#") in DIALECTS
            case "type":
                types = rule if isinstance(rule, list) else [rule]
                return any(isinstance(each, str) and each in TYPES and TYPES[each](value) for each in types)
            case "enum":
                return isinstance(rule, list) and isinstance(value, str) and value in rule
            case "anyOf":
                return isinstance(rule, list) and any(self.accepts(each, value) for each in rule)
            case "properties" if isinstance(rule, Mapping) and isinstance(value, Mapping):
                return all(self.accepts(rule[name], value[name]) for name in value if name in rule)
            case "required" if isinstance(rule, list) and isinstance(value, Mapping):
                return all(isinstance(name, str) and name in value for name in rule)
            case "additionalProperties" if isinstance(value, Mapping):
                known = schema.get("properties", {})
                return "patternProperties" not in schema and (rule is True or all(name in known for name in value))
            case "items" if isinstance(value, Sequence) and not isinstance(value, str):
                return "prefixItems" not in schema and all(self.accepts(rule, each) for each in value)
            case "minimum" | "maximum" if _is_number(rule) and _is_number(value):
                return bool(value >= rule if keyword == "minimum" else value <= rule)
            case _:
                return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TYPES: Mapping[str, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "object": lambda value: isinstance(value, Mapping),
    "string": lambda value: isinstance(value, str),
}
