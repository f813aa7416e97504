"""Puts the overrides of the configuration beside the definitions that a server lists, and says what does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.servers import ServerListing
from toolscript.domain.spelling import suggest
from toolscript.domain.tool_overrides import Overrides, ToolOverride, attach_override, list_arguments


def attach_overrides(listing: ServerListing, overrides: Overrides) -> ServerListing:
    """The listing with overrides. Left out are hidden tools, tools whose name the configuration has given to another
    one, and tools without an argument that callers must not set: under another name it would be open to them."""
    if not overrides:
        return listing
    tools = {item.name: item for item in listing.items if item.type is ItemType.TOOL}
    names = {override.name: name for name, override in overrides.items() if override.name not in {"", name}}
    problems = [
        f"tools.{name}: the server has no such tool, or includeTools and excludeTools leave it out"
        f"{suggest(name, tools)}"
        for name in overrides.keys() - tools.keys()
    ]
    left_out = {name for name in tools if name in names and not overrides.get(name, ToolOverride()).name}
    problems += [
        f"tools.{names[name]}.name: the server has a tool {name!r} itself, which is left out: choose another name"
        for name in left_out
    ]
    for name in overrides.keys() & tools.keys():
        for argument, problem in _find_unknown_arguments(tools[name], overrides[name]):
            left_out |= {name} if overrides[name].arguments[argument].hidden else set()
            problems.append(f"tools.{name}.arguments.{argument}: {problem}")
    left_out |= {name for name, override in overrides.items() if override.hidden}
    items = [
        attach_override(item, overrides.get(item.name)) if item.type is ItemType.TOOL else item
        for item in listing.items
        if item.type is not ItemType.TOOL or item.name not in left_out
    ]
    return replace(listing, items=items, problems=[*listing.problems, *sorted(problems)])


def describe_taken(item: Item, before: Item) -> str:
    """Why a tool is left out whose id was another tool's: programs and rules that name the id mean that one."""
    return (
        f"its tool {item.listed_name!r} is left out: {item.id} was its tool {before.listed_name!r} before, and what is "
        "stored for it and who calls it may mean that one: give it another name (`tools` in the server's entry)"
    )


def _find_unknown_arguments(item: Item, override: ToolOverride) -> Iterator[tuple[str, str]]:
    schema = item.input_schema
    known = {*list_arguments(schema)} if isinstance(schema, Mapping) else set()
    for name in override.arguments:
        if known and name not in known:
            consequence = " and is left out, because callers must not set it" if override.arguments[name].hidden else ""
            yield name, f"the tool has no such argument{consequence}{suggest(name, known)}"
