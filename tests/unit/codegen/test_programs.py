"""What programs find around them: names, types and bindings, whatever servers call their tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import pytest

from toolscript.adapters.deno.sandbox import DenoSandbox
from toolscript.adapters.monty.sandbox import MontySandbox
from toolscript.codegen.programs import (
    NamedTool,
    ProgramTools,
    find_named_tools,
    format_call,
    name_servers,
    name_tools,
)
from toolscript.domain.catalog import Item
from toolscript.domain.programs import Language, Program, RunEnd, SandboxLimits
from toolscript.ports.sandboxes import Sandbox

pytestmark = pytest.mark.req("C-01", "C-02")

LIMITS = SandboxLimits(cpu_seconds=20.0, memory_bytes=64 * 2**20, output_bytes=2**20)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
HOSTILE = [
    Item("odd server", "read-file", '"""\nimport os\n"""', input_schema=SCHEMA),
    Item("odd server", "read_file", "*/ process.exit() /*", input_schema=SCHEMA),
    Item("odd server", 'quote"); evil("', "\u2028line\u2029", input_schema=SCHEMA),
    Item("odd server", "class", "A keyword.", input_schema=SCHEMA),
    Item("odd server", "__class__", "Of every object.", input_schema=SCHEMA),
    Item("odd server", "日本語", "Letters of Japan.", input_schema=SCHEMA),
    Item("odd server", "\\", "A backslash.", input_schema={"type": "object", "properties": {"a b": {}, "self": {}}}),
    Item("odd server", "bare", "No schema at all."),
    Item("2nd", "0", "Digits.", input_schema={"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
]


class EchoHost:
    """Gives back what it is asked."""

    def begin(self) -> None:
        pass

    def count_call(self) -> None:
        """Allows any number."""

    async def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
        return {"function": function, **arguments}

    def take_output(self, text: str) -> None:
        """Prints nothing."""


@pytest.fixture(params=Language, scope="module")
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    opened: Sandbox = MontySandbox() if request.param is Language.PYTHON else DenoSandbox()
    yield opened
    await opened.close()


def name_all(language: Language, items: list[Item]) -> ProgramTools:
    servers = {server: name for name, server in name_servers(language, {item.server for item in items}).items()}
    tools = []
    for server, name in servers.items():
        own = {item.name: item for item in items if item.server == server}
        tools += [(name, called, own[tool]) for called, tool in name_tools(language, own).items()]
    return ProgramTools(language, tools)


def test_the_tools_of_a_program_are_found_with_their_lines() -> None:
    source = 'a = await tools.disk.read({})\nb = tools . post["send-mail"]({})\nc = tools["x y"].z\nd = tools.alone\n'
    assert find_named_tools(source) == [
        NamedTool("disk", "read", 1),
        NamedTool("post", "send-mail", 2),
        NamedTool("x y", "z", 3),
        NamedTool("alone", "", 4),
    ]


def test_a_call_is_written_as_its_language_has_it() -> None:
    assert format_call(Language.PYTHON, "disk", "read_file") == "tools.disk.read_file"
    assert format_call(Language.TYPESCRIPT, "disk", "read-file") == 'tools.disk["read-file"]'
    assert name_tools(Language.PYTHON, ["get-env", "get_env", "class"]) == {
        "get_env": "get_env",
        "get_env2": "get-env",
        "class_": "class",
    }


@pytest.mark.slow
async def test_nothing_that_a_server_says_becomes_code(sandbox: Sandbox) -> None:
    language = sandbox.language
    tools = name_all(language, HOSTILE)
    assert len(tools.tools) == len(HOSTILE)

    def call(which: Collection[Item]) -> Program:
        calls = [
            f'await {format_call(language, server, name)}({{"path": "a"}})'
            for server, name, item in tools.tools
            if item in which
        ]
        return Program(f"return [{', '.join(calls)}]", tools.write_bindings(), tools.write_types())

    fitting = [item for item in HOSTILE if item.name in {"read-file", "class", "日本語"}]
    assert await sandbox.check(call(fitting), 60.0) == []
    outcome = await sandbox.run(call(HOSTILE), EchoHost(), LIMITS)
    assert outcome.end is RunEnd.DONE, outcome
    assert outcome.value == [
        {"function": "call_tool", "tool_id": item.id, "arguments": {"path": "a"}} for _, _, item in tools.tools
    ]
    assert {item.id for _, _, item in tools.tools} == {item.id for item in HOSTILE}


@pytest.mark.slow
async def test_a_missing_argument_is_found_in_every_language(sandbox: Sandbox) -> None:
    tools = name_all(sandbox.language, HOSTILE[:1])
    call = format_call(sandbox.language, *tools.tools[0][:2])
    program = Program(f"return await {call}({{}})", tools.write_bindings(), tools.write_types())
    (problem,) = await sandbox.check(program, 60.0)
    assert problem.line == 1
    assert "path" in problem.message


@pytest.mark.slow
async def test_the_functions_of_the_host_are_there(sandbox: Sandbox) -> None:
    tools = ProgramTools(sandbox.language, [])
    answers = {
        'search_tools("a", 3)': {"function": "search_tools", "query": "a", "limit": 3},
        'describe_tool("a__b")': {"function": "describe_tool", "tool_id": "a__b"},
        'save_result("a", [1])': {"function": "save_result", "name": "a", "value": [1]},
        'load_result("a")': {"function": "load_result", "name": "a"},
    }
    source = f"return [{', '.join(f'await {call}' for call in answers)}]"
    program = Program(source, tools.write_bindings(), tools.write_types())
    assert await sandbox.check(program, 60.0) == []
    assert (await sandbox.run(program, EchoHost(), LIMITS)).value == list(answers.values())


def test_members_of_other_things_are_no_tools() -> None:
    source = "r.tools.length\nconfig?.tools.items.x\nmy_tools.a.b\n$tools.a.b\nf(...tools.disk.read)\n"
    assert find_named_tools(source) == [NamedTool("disk", "read", 5)]
