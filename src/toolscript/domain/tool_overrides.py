"""What the configuration changes of a server's tools: their names and descriptions, and arguments that it fixes.

The override of a tool is part of its definition in the catalogue, without fixed values: quarantine shows both, and a
call reaches the tool that the definition names, never one that only has its name."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolscript.domain.catalog import Item, ItemType, Schema

# Their values are lists of schemas, or one schema, about the same object.
_LISTS = ("allOf", "anyOf", "oneOf")
_BRANCHES = ("if", "then", "else")


@dataclass(frozen=True, slots=True)
class ArgumentOverride:
    """What the configuration changes of an argument."""

    default: Any = field(default=None, repr=False)
    has_default: bool = False
    description: str | None = None
    hidden: bool = False
    """Callers neither see it nor give it: each call has the default."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The texts of the default that come from variables of the environment."""

    def describe(self) -> dict[str, Any]:
        """What callers may know, and stores keep."""
        if self.hidden:
            return {"hidden": True}
        described = {"default": self.default} if self.has_default else {}
        return described if self.description is None else {**described, "description": self.description}


@dataclass(frozen=True, slots=True)
class ToolOverride:
    """What the configuration changes of a tool."""

    name: str = ""
    """Empty: the server's own name."""
    description: str | None = None
    hidden: bool = False
    arguments: Mapping[str, ArgumentOverride] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """The override without fixed values: they may be secrets."""
        described: dict[str, Any] = {"name": self.name} if self.name else {}
        if self.description is not None:
            described["description"] = self.description
        if self.hidden:
            described["hidden"] = True
        if self.arguments:
            described["arguments"] = {name: each.describe() for name, each in self.arguments.items()}
        return described

    @property
    def fixed(self) -> dict[str, Any]:
        """The arguments that each call has, whatever its caller gives."""
        return {name: each.default for name, each in self.arguments.items() if each.hidden}


Overrides = Mapping[str, ToolOverride]
"""By the names that the server gives its tools."""


def attach_override(item: Item, override: ToolOverride | None) -> Item:
    """The server's definition with the override beside it, as it is pinned."""
    return replace(item, definition={"name": item.name, "override": override.describe()}) if override else item


def find_override(item: Item) -> Schema | None:
    """The override in the definition of a tool; None if there is none."""
    return (item.definition or {}).get("override") if item.type is ItemType.TOOL else None


def get_catalogue_id(item: Item) -> str:
    """The id that the catalogue has for a tool as its server defines it."""
    name = (find_override(item) or {}).get("name")
    return f"{item.server}__{name}" if name else item.id


def apply_override(item: Item) -> Item:
    """The item as callers see it. The server's title goes with the server's name."""
    override = find_override(item)
    if override is None:
        return item
    item = replace(item, description=override.get("description", item.description))
    if arguments := override.get("arguments"):
        item = replace(item, input_schema=_change_arguments(item.input_schema or {"type": "object"}, arguments))
    if name := override.get("name"):
        notes = {key: each for key, each in (item.annotations or {}).items() if key != "title"}
        item = replace(item, name=name, title=None, annotations=notes or None)
    return item


def list_arguments(schema: Schema) -> Iterator[str]:
    """The names of the properties of a schema and of its branches."""
    properties = schema.get("properties")
    yield from properties if isinstance(properties, Mapping) else ()
    for branch in _list_branches(schema):
        yield from list_arguments(branch)


def _list_branches(schema: Schema) -> Iterator[Schema]:
    lists = (each for key in _LISTS if isinstance(each := schema.get(key), list))
    for branch in (*(each for branches in lists for each in branches), *(schema.get(key) for key in _BRANCHES)):
        if isinstance(branch, Mapping):
            yield branch


def _change_arguments(schema: Schema, arguments: Mapping[str, Schema]) -> Schema:
    """The schema without hidden arguments. Nobody has to give an argument that has a default."""
    changed = _change_object(schema, arguments)
    if unused := _find_used(schema) - _find_used(changed):
        changed["$defs"] = {name: each for name, each in schema["$defs"].items() if name not in unused}
    return changed


def _change_object(schema: Schema, arguments: Mapping[str, Schema]) -> dict[str, Any]:
    hidden = {name for name, each in arguments.items() if each.get("hidden")}
    filled = hidden | {name for name, each in arguments.items() if "default" in each}
    changed = {key: _change_value(key, each, arguments, hidden) for key, each in _open(schema, filled).items()}
    empty = {"required"} if changed.get("required") == [] else set()
    return {key: each for key, each in changed.items() if key not in empty | ({"examples"} if hidden else set())}


def _open(schema: Schema, filled: Collection[str]) -> Schema:
    """The schema with anyOf between branches that arguments decide which a call may lack: without them several branches
    are valid, or the wrong one. The server gets these arguments, and decides."""
    if not filled:
        return schema
    opened, choices = dict(schema), []
    opened.pop("minProperties", None)
    if any(_mentions(each, filled) for each in _list_branches({"oneOf": schema.get("oneOf")})):
        choices.append(opened.pop("oneOf"))
    if _mentions(schema.get("if"), filled):
        branches = [opened.pop(key, {}) for key in _BRANCHES][1:]
        choices += [branches] if any(branch != {} for branch in branches) else []
    if _mentions(schema.get("not"), filled):
        del opened["not"]
    if not choices:
        return opened
    if len(choices) == 1 and "anyOf" not in opened:
        return {**opened, "anyOf": choices[0]}
    all_of = opened.get("allOf")
    kept = all_of if isinstance(all_of, list) else []
    return {**opened, "allOf": [*kept, *({"anyOf": branches} for branches in choices)]}


def _mentions(schema: Any, names: Collection[str]) -> bool:
    """Whether the schema, or one of its branches, is about one of these arguments."""
    if not isinstance(schema, Mapping):
        return False
    keys = (each for key in ("properties", "required") if isinstance(each := schema.get(key), Mapping | list))
    if any(name in each for each in keys for name in names):
        return True
    return any(_mentions(branch, names) for branch in _list_branches(schema))


def _change_value(key: str, value: Any, arguments: Mapping[str, Schema], hidden: set[str]) -> Any:
    """The value of a keyword of the schema of an object."""
    match key, value:
        case "properties", Mapping():
            return {name: _describe(each, arguments.get(name)) for name, each in value.items() if name not in hidden}
        case "required", list():
            optional = hidden | {name for name, each in arguments.items() if "default" in each}
            return [name for name in value if name not in optional]
        case "dependentRequired" | "dependentSchemas" | "dependencies", Mapping():
            return {
                name: _change_value("branch", each, arguments, hidden)
                for name, each in value.items()
                if name not in hidden
            }
        case "branch", list():
            return [name for name in value if name not in hidden]
        case "allOf" | "anyOf" | "oneOf", list():
            return [_change_value("branch", each, arguments, hidden) for each in value]
        case "branch" | "if" | "then" | "else", Mapping():
            return _change_object(value, arguments)
        case "default", Mapping():
            return {name: each for name, each in value.items() if name not in hidden}
    return value


def _describe(schema: Any, override: Schema | None) -> Any:
    return {**(schema if isinstance(schema, Mapping) else {}), **override} if override else schema


def _find_used(schema: Schema) -> set[str]:
    """The names of the definitions that the schema refers to, also by other definitions."""
    definitions = schema.get("$defs")
    if not isinstance(definitions, Mapping):
        return set()
    used: set[str] = set()
    text = json.dumps({key: each for key, each in schema.items() if key != "$defs"})
    while new := {name for name in definitions if name not in used and f'"#/$defs/{name}"' in text}:
        used |= new
        text = json.dumps([definitions[name] for name in new])
    return used
