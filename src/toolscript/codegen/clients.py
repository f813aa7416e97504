"""The language-independent model of a client module: the tools of each server, their types and the types' names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import quote

from toolscript.codegen.names import UniqueNames, assign_names, to_pascal_case
from toolscript.codegen.schemas import Path, SchemaShape, get_label, read_arguments, read_schema
from toolscript.codegen.shapes import ANY_OBJECT, NEVER, UNKNOWN, Shape, accepts_no_arguments
from toolscript.domain.catalog import Item, ItemType, select_items


@dataclass(frozen=True, slots=True)
class Declaration:
    """A named type."""

    name: str
    shape: Shape
    description: str = ""


@dataclass(frozen=True, slots=True)
class Declarations:
    """The types of one schema, its root first, and the type names of its definitions by path."""

    types: tuple[Declaration, ...]
    titles: Mapping[Path, str]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool with its types."""

    item: Item
    params: Declarations
    result: Declarations

    @property
    def params_type(self) -> str:
        """The name of the type of the arguments."""
        return self.params.titles[()]

    @property
    def result_type(self) -> str:
        """The name of the type of the result."""
        return self.result.titles[()]

    @property
    def needs_no_params(self) -> bool:
        """Whether the tool can be called without arguments."""
        return accepts_no_arguments(self.params.types[0].shape)

    @property
    def path(self) -> str:
        """The tool's id as a URL path segment; safe in any string literal."""
        return quote(self.item.id, safe="", errors="replace")


@dataclass(frozen=True, slots=True)
class ServerTools:
    """A server with its tools. `type_name` is its name in PascalCase, unique among the servers."""

    name: str
    type_name: str
    tools: tuple[Tool, ...]


def group_by_server(items: Iterable[Item], names: UniqueNames) -> list[ServerTools]:
    """Groups the tools among the items by server, each once, sorted by name, without tools in quarantine. Type names
    are taken from `names`."""
    tools = sorted(
        (item for item in select_items(items, None) if item.type is ItemType.TOOL and not item.quarantine),
        key=lambda item: (item.server, item.name),
    )
    type_names = assign_names((item.server for item in tools), to_pascal_case)
    return [
        ServerTools(server, type_names[server], tuple(_tool(item, type_names[server], names) for item in offered))
        for server, offered in groupby(tools, key=lambda item: item.server)
    ]


def _tool(item: Item, server: str, names: UniqueNames) -> Tool:
    name = names.take(server + to_pascal_case(item.name), "Params", "Result")
    return Tool(
        item,
        _declarations(f"{name}Params", read_arguments(item.input_schema), names),
        _declarations(f"{name}Result", read_schema(item.output_schema), names),
    )


def _declarations(name: str, reading: SchemaShape, names: UniqueNames) -> Declarations:
    root = ANY_OBJECT if reading.root in (UNKNOWN, NEVER) else reading.root
    titles = {(): name} | {path: names.take(name + to_pascal_case(get_label(path))) for path in reading.definitions}
    parts = [Declaration(titles[path], part.shape, part.description) for path, part in reading.definitions.items()]
    return Declarations((Declaration(name, root), *parts), titles)
