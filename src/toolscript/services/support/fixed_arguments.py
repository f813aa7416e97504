"""The arguments of a call as its server gets them: with the values and defaults of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import Conflict, InvalidArguments, NotFound
from toolscript.domain.tool_overrides import Overrides, ToolOverride, find_override


def fill_arguments(
    overrides: Overrides, item: Item, arguments: Mapping[str, Any], expected: object = None
) -> Mapping[str, Any]:
    """The arguments as they are sent: with the values that the configuration fixes, and its defaults for what the
    caller leaves out.

    Raises NotFound unless the item is what the configuration means by its name, InvalidArguments for an argument that
    callers cannot give, and Conflict for a result that differs from `expected`: a person has approved those arguments.
    """
    filled = _fill(overrides, item, arguments)
    if expected not in (None, filled):
        raise Conflict(
            f"{item.id} was not called: the configuration of its arguments has changed meanwhile: call it again",
            details={"tool": item.id},
        )
    return filled


def _fill(overrides: Overrides, item: Item, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    if item.type is not ItemType.TOOL or not (overrides or find_override(item) is not None):
        return arguments
    override = overrides.get(item.listed_name, ToolOverride())
    is_taken = any(other.name == item.name for name, other in overrides.items() if name != item.listed_name)
    if override.hidden or is_taken or (override.name or item.listed_name) != item.name:
        raise NotFound(
            f"no such tool: {item.id!r}: the configuration has hidden it or given it another name: search again",
            details={"tool": item.id},
        )
    for name in override.fixed:
        if name in arguments:
            raise InvalidArguments(
                f"{name}: the configuration sets this argument, and callers cannot: leave it out",
                details={"field": name, "problem": "cannot be given", "tool": item.id},
            )
    defaults = {name: argument.default for name, argument in override.arguments.items() if argument.has_default}
    return {**defaults, **arguments} if defaults else arguments
