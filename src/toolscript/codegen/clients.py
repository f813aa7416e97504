"""What every language's client module is made of: the tools of each server, their types, and names for both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import quote

from toolscript.codegen.names import Names, names_of, pascal
from toolscript.codegen.schemas import Path, Reading, label, read_arguments, read_schema
from toolscript.codegen.shapes import ANY_OBJECT, NEVER, UNKNOWN, Shape, accepts_nothing_said
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.selection import select_items


@dataclass(frozen=True, slots=True)
class Declaration:
    """A type to be declared under a name."""

    name: str
    shape: Shape
    description: str = ""


@dataclass(frozen=True, slots=True)
class Declarations:
    """A schema's types, the schema's own first, and the names of its definitions by their path."""

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
        """The name of the type of the answer."""
        return self.result.titles[()]

    @property
    def needs_no_params(self) -> bool:
        """Whether the tool can be called with nothing."""
        return accepts_nothing_said(self.params.types[0].shape)

    @property
    def path(self) -> str:
        """The tool's id as a part of a URL, safe in any string literal."""
        return quote(self.item.id, safe="", errors="replace")


@dataclass(frozen=True, slots=True)
class ToolServer:
    """A server with its tools. `type_name` is its name in PascalCase, unlike that of any other server."""

    name: str
    type_name: str
    tools: tuple[Tool, ...]


def tool_servers(items: Iterable[Item], names: Names) -> list[ToolServer]:
    """The tools among the items by server, each once, in the order of names; their types' names come from `names`."""
    tools = sorted(
        (item for item in select_items(items, None) if item.type is ItemType.TOOL),
        key=lambda item: (item.server, item.name),
    )
    type_names = names_of((item.server for item in tools), pascal)
    return [
        ToolServer(server, type_names[server], tuple(_tool(item, type_names[server], names) for item in offered))
        for server, offered in groupby(tools, key=lambda item: item.server)
    ]


def _tool(item: Item, server: str, names: Names) -> Tool:
    name = names.give(server + pascal(item.name), "Params", "Result")
    return Tool(
        item,
        _declarations(f"{name}Params", read_arguments(item.input_schema), names),
        _declarations(f"{name}Result", read_schema(item.output_schema), names),
    )


def _declarations(name: str, reading: Reading, names: Names) -> Declarations:
    root = ANY_OBJECT if reading.root in (UNKNOWN, NEVER) else reading.root
    titles = {(): name} | {path: names.give(name + pascal(label(path))) for path in reading.definitions}
    parts = [Declaration(titles[path], part.shape, part.description) for path, part in reading.definitions.items()]
    return Declarations((Declaration(name, root), *parts), titles)
