"""What a program in a sandbox finds around it: `tools.SERVER.NAME(params)` for the tools that it names, and a few
functions of the host. The same names as in the generated clients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from toolscript.codegen.clients import Tool, group_by_server
from toolscript.codegen.names import (
    UniqueNames,
    assign_names,
    format_typescript_key,
    quote_typescript,
    split_comment_lines,
    to_camel_case,
    to_snake_case,
)
from toolscript.codegen.python import BUILTINS, TYPING, PythonTypes, add_typing, format_docstring, to_python_identifier
from toolscript.codegen.typescript import format_documentation, indent, write_types
from toolscript.domain.catalog import Item
from toolscript.domain.programs import Language

_KEY = r"""(?:\.\s*([\w$]+)|\[\s*["']([^"'\\]+)["']\s*\])"""
# Not a member of something else, which `.tools` is, and `...tools` is not.
_NAMED = re.compile(rf"(?<![\w$])(?<!(?<!\.\.)\.)tools\s*{_KEY}(?:\s*{_KEY})?")

_PYTHON_TYPES = '''\
class FoundTool(TypedDict):
    """A tool that a search found: `call` is how a program calls it. One that is quarantined cannot be called."""

    id: str
    call: str
    confidence: float
    is_confident: bool
    description: str
    signature: str
    quarantined: NotRequired[str]


async def search_tools(query: str, limit: int = 5) -> list[FoundTool]:
    """Finds tools for a task: confident ones, then the closest of those that are not."""
    ...


async def describe_tool(tool_id: str) -> dict[str, Any]:
    """The schemas of a tool, by its id."""
    ...


async def save_result(name: str, value: Any) -> None:
    """Keeps a value for later runs of the same session."""
    ...


async def load_result(name: str) -> Any:
    """A value that an earlier run of the same session has kept."""
    ...
'''
_PYTHON_BINDINGS = """\
async def search_tools(query, limit=5):
    return await call_host("search_tools", {"query": query, "limit": limit})
async def describe_tool(tool_id):
    return await call_host("describe_tool", {"tool_id": tool_id})
async def save_result(name, value):
    return await call_host("save_result", {"name": name, "value": value})
async def load_result(name):
    return await call_host("load_result", {"name": name})
"""
_TYPESCRIPT_TYPES = """\
/** A tool that a search found: `call` is how a program calls it. One that is quarantined cannot be called. */
interface FoundTool {
  id: string;
  call: string;
  confidence: number;
  is_confident: boolean;
  description: string;
  signature: string;
  quarantined?: string;
}

/** Finds tools for a task: confident ones, then the closest of those that are not. */
declare function search_tools(query: string, limit?: number): Promise<FoundTool[]>;
/** The schemas of a tool, by its id. */
declare function describe_tool(tool_id: string): Promise<Record<string, unknown>>;
/** Keeps a value for later runs of the same session. */
declare function save_result(name: string, value: unknown): Promise<void>;
/** A value that an earlier run of the same session has kept. */
declare function load_result(name: string): Promise<any>;
"""
_TYPESCRIPT_BINDINGS = """\
const search_tools = (query, limit = 5) => call_host("search_tools", { query, limit });
const describe_tool = (tool_id) => call_host("describe_tool", { tool_id });
const save_result = (name, value) => call_host("save_result", { name, value });
const load_result = (name) => call_host("load_result", { name });
"""
# A schema with only these describes any object.
_EMPTY_KEYS = frozenset(["$schema", "additionalProperties", "description", "title", "type"])


@dataclass(frozen=True, slots=True)
class NamedTool:
    """`tools.SERVER.NAME` in a program; without a name, the server alone."""

    server: str
    name: str
    line: int

    def __str__(self) -> str:
        return f"tools.{self.server}.{self.name}" if self.name else f"tools.{self.server}"


def find_named_tools(source: str) -> list[NamedTool]:
    """The tools that a program names, in order; names in comments and strings, too."""
    found, line, end = [], 1, 0
    for match in _NAMED.finditer(source):
        line, end = line + source.count("\n", end, match.start()), match.start()
        found.append(NamedTool(match[1] or match[2], match[3] or match[4] or "", line))
    return found


def name_servers(language: Language, servers: Iterable[str]) -> dict[str, str]:
    """The servers by their names in programs."""
    convert = _name_python_server if language is Language.PYTHON else to_camel_case
    return {name: server for server, name in assign_names(servers, convert).items()}


def name_tools(language: Language, tools: Iterable[str]) -> dict[str, str]:
    """The tools of one server by their names in programs."""
    if language is Language.TYPESCRIPT:
        return {name: name for name in tools}
    return {name: tool for tool, name in assign_names(tools, to_python_identifier).items()}


def format_call(language: Language, server: str, name: str) -> str:
    """`tools.SERVER.NAME` as a program writes it."""
    if language is Language.PYTHON:
        return f"tools.{server}.{name}"
    key = format_typescript_key(name)
    return f"tools.{server}[{key}]" if key.startswith('"') else f"tools.{server}.{key}"


@dataclass(frozen=True, slots=True)
class ProgramTools:
    """The tools of a program, by the names of server and tool in it."""

    language: Language
    tools: Sequence[tuple[str, str, Item]]

    def write_types(self, *, with_host: bool = True) -> str:
        """The declarations that a program is checked against; without the host's functions unless `with_host`."""
        write = _write_python_types if self.language is Language.PYTHON else _write_typescript_types
        return write(self, with_host=with_host)

    def write_bindings(self) -> str:
        """The source that defines what the types declare, by means of `call_host`."""
        return _write_python_bindings(self) if self.language is Language.PYTHON else _write_typescript_bindings(self)

    def group(self) -> Iterator[tuple[str, list[tuple[str, Item]]]]:
        """The tools of each server, by their names."""
        for server in sorted({server for server, _, _ in self.tools}):
            yield server, [(name, item) for each, name, item in self.tools if each == server]


def _name_python_server(server: str) -> str:
    return to_python_identifier(to_snake_case(server))


def _find_tools(program: ProgramTools, names: UniqueNames) -> dict[str, Tool]:
    servers = group_by_server([item for _, _, item in program.tools], names)
    return {tool.item.id: tool for server in servers for tool in server.tools}


def _write_python_types(program: ProgramTools, *, with_host: bool) -> str:
    names = UniqueNames([*TYPING, *BUILTINS, "FoundTool", "Tools"])
    tools, types = _find_tools(program, names), PythonTypes(names)
    classes, fields = [], []
    for tool in tools.values():
        types.declare(tool.params)
        types.declare(tool.result)
    for server, named in program.group():
        kind = names.take(f"_{server}Tools")
        functions = [_declare_python(tools[item.id], name) for name, item in named]
        classes.append("\n".join([f"class {kind}:", *functions]))
        fields.append(f"    {server}: {kind}")
    tree = [*classes, "\n".join(["class Tools:", *fields]), "tools: Tools"] if fields else []
    return add_typing("\n\n".join([*types.format_types(), *tree, *([_PYTHON_TYPES] if with_host else [])]))


def _declare_python(tool: Tool, name: str) -> str:
    params = f"{tool.params_type} | None = None" if tool.needs_no_params else tool.params_type
    about = split_comment_lines(tool.item.description)[:1]
    return "\n".join(
        [
            f"    async def {name}(self, params: {params}) -> {tool.result_type}:",
            *([format_docstring(about, 8)] if about else []),
            "        ...",
        ]
    )


def _write_python_bindings(program: ProgramTools) -> str:
    lines, fields = [_PYTHON_BINDINGS], []
    for number, (server, named) in enumerate(program.group()):
        lines.append(f"class _Server{number}:")
        for name, item in named:
            request = f'{{"tool_id": {item.id!a}, "arguments": params or {{}}}}'
            lines += [
                f"    async def {name}(self, params=None):",
                f'        return await call_host("call_tool", {request})',
            ]
        fields.append(f"    {server} = _Server{number}()")
    tree = ["class _Tools:", *fields, "tools = _Tools()"] if fields else []
    return "\n".join([*lines, *tree, ""])


def _write_typescript_types(program: ProgramTools, *, with_host: bool) -> str:
    tools = _find_tools(program, UniqueNames(["FoundTool"]))
    types = [text for tool in tools.values() for text in write_types(tool, exported=False)]
    fields = []
    for server, named in program.group():
        functions = [indent(_declare_typescript(tools[item.id], name)) for name, item in named]
        fields.append(indent(f"{server}: {{\n" + "\n".join(functions) + "\n};"))
    tree = ["declare const tools: {\n" + "\n".join(fields) + "\n};\n"] if fields else []
    return "\n".join([*types, *tree, *([_TYPESCRIPT_TYPES] if with_host else [])])


def _declare_typescript(tool: Tool, name: str) -> str:
    mark = "?" if tool.needs_no_params else ""
    # Most servers do not say what their tools return: `unknown` would reject every program that uses it.
    schema = tool.item.output_schema or {}
    says_nothing = schema.get("additionalProperties", True) is True and set(schema) <= _EMPTY_KEYS
    result = "any" if says_nothing else tool.result_type
    about = format_documentation(split_comment_lines(tool.item.description)[:1], [])
    return f"{about}{format_typescript_key(name)}(params{mark}: {tool.params_type}): Promise<{result}>;"


def _write_typescript_bindings(program: ProgramTools) -> str:
    fields = []
    for server, named in program.group():
        functions = [
            f"    {format_typescript_key(name)}: (params = {{}}) => "
            f'call_host("call_tool", {{ tool_id: {quote_typescript(item.id)}, arguments: params }}),'
            for name, item in named
        ]
        fields.append("\n".join([f"  {server}: {{", *functions, "  },"]))
    tree = ["const tools = {", *fields, "};"] if fields else []
    return "\n".join([_TYPESCRIPT_BINDINGS.rstrip(), *tree, ""])
