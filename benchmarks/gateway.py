"""Times the gateway as a process: restarts with everything cached, searches over HTTP, and tool calls."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from mcp import Client, StdioServerParameters

from benchmarks.embedding import find_packaged_model
from benchmarks.texts import make_catalogue, make_documents, make_queries
from benchmarks.timing import (
    Row,
    Sample,
    Table,
    compare_table,
    format_duration,
    format_number,
    measure_seconds,
    side_by_side,
)
from tests.servers import make_scripted_spec
from tests.servers.real import real_servers
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.onnx.model_folders import PACKAGED
from toolscript.app.app import App, open_app
from toolscript.configuration.files import load_configuration
from toolscript.domain.servers import META_KEY, CallRelay, ServerSpec
from toolscript.services.results.document import split_result
from toolscript.services.tools.token_costs import estimate_tokens
from toolscript.settings import PREFIX, load_settings

DATA = Path(os.environ.get("TOOLSCRIPT_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
START_NOTE = (
    "`toolscript gateway start` as a process of its own, with a server that lists all tools in pages of 500: from the "
    "start of the process until `GET /ready` says yes and the index has everything, first with an empty folder, then "
    "again with what is there (ready once the catalogue of the last run is open: servers connect meanwhile, and calls "
    "wait for them). Memory is what is resident then. The reference is a process that only imports what a gateway that "
    "is started again imports until then."
)
SEARCH_NOTE = (
    "One client on one connection, new queries, over HTTP; beside embedding the same queries and nothing else."
)
COMMAND_NOTE = "`toolscript search` as a process of its own, from its start to its end."
CALL_NOTE = (
    "The tool `echo` of a server on stdio: `POST /tools/{id}` on one connection, beside the same call made by the "
    "official client directly. The difference of the two is what the gateway adds."
)

CUT_NOTE = (
    "Answers of real servers about this repository, over MCP with the default budget: the tokens (of four bytes) of "
    "the answer as the server sent it, of what the agent gets, of both together after `read_result` with a query, and "
    "whether that has found what was looked for. Text and structured content that say the same are counted once."
)
LARGE_NOTE = (
    "A result that a tool has answered, in the gateway: from the answer until the cut one is ready and the whole is in "
    "a SQLite file, then what `read_result` takes. The query has frequent words, the worst case. In "
    "brackets the time of the processor, all threads together: others used the machine."
)
QUERIES = ("create a new file", "send a message", "list all issues")
ROOT = Path(__file__).parents[1]
# What is called with what, a query, and a text that the answer to the query must have.
LARGE_ANSWERS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "tree of `src`": ("filesystem__directory_tree", {"path": "src"}, "rate buckets", "rate_buckets.py"),
    "`training/queries.jsonl`": (
        "filesystem__read_text_file",
        {"path": "training/queries.jsonl"},
        "convert a currency",
        "currency",
    ),
    "`tests/toolchain/package-lock.json`": (
        "filesystem__read_text_file",
        {"path": "tests/toolchain/package-lock.json"},
        "version of server-everything",
        "server-everything",
    ),
    "log of 400 commits": ("git__git_log", {"repo_path": ".", "max_count": 400}, "servers that keep failing", "fail"),
    "status of the repository": ("git__git_status", {"repo_path": "."}, "", ""),
    "the time": ("time__get_current_time", {"timezone": "UTC"}, "", ""),
}


async def run(quick: bool) -> list[Table]:
    """Starts, searches and calls, with a large catalogue."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        count = write_tools(place / "tools.jsonl.gz", 300 if quick else None)
        echo = make_scripted_spec()
        servers = {"big": make_scripted_spec(catalog=str(place / "tools.jsonl.gz"), page_size=500), "echo": echo}
        (place / ".toolscript.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        starts = [_start_and_stop(place, count) for _ in range(3 if quick else 4)]
        with start_gateway(place, count) as gateway:
            searches = await time_searches(gateway, f"{count:,} tools", 60 if quick else 400)
            calls, added = await _calls(gateway, echo, 100 if quick else 500)
            command = await _command(place, f"{count:,} tools", 5 if quick else 15)
    title = "Calls of a tool"
    return [
        _start_table(starts, f"{count:,} tools"),
        compare_table("Searches over HTTP", [searches], SEARCH_NOTE),
        compare_table("The command line, with a gateway running", [command], COMMAND_NOTE),
        compare_table(title, [calls], f"{CALL_NOTE} Here: **{format_duration(added)}** (p50)."),
    ]


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A running gateway, the time of its start, and its state afterwards."""

    url: str
    pid: int
    ready_seconds: float
    embedded: int
    resident: int


@contextmanager
def start_gateway(place: Path, tools: int, *, settings: dict[str, str] | None = None) -> Iterator[RunningGateway]:
    """Starts a gateway on the configuration in that folder, with further settings; waits until it has all tools."""
    environment = build_environment(place) | (settings or {})
    command = [sys.executable, "-m", "toolscript", "gateway", "start", "--port", "0", "--model", PACKAGED]
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            note = place / ".toolscript" / "gateway.json"
            wait_until(lambda: note.exists() and json.loads(note.read_text())["pid"] == process.pid)
            url = str(json.loads(note.read_text())["url"])
            wait_until(lambda: _is_ready(url, tools))
            took = time.perf_counter() - began
            stats = fetch_json(f"{url}/search/stats")
            yield RunningGateway(url, process.pid, took, stats["embeddedSinceStart"], _resident(process.pid))
        finally:
            process.terminate()


def _start_and_stop(place: Path, tools: int) -> RunningGateway:
    with start_gateway(place, tools) as started:
        return started


def _is_ready(url: str, tools: int) -> bool:
    """Whether everything is indexed. Tools are found by words before their server counts as started."""
    try:
        is_indexed = fetch_json(f"{url}/ready") and fetch_json(f"{url}/search/stats")["indexedTools"] >= tools
        return bool(is_indexed) and not fetch_json(f"{url}/search?q=ready").get("serversStarting")
    except OSError:
        return False


def fetch_json(url: str) -> Any:
    """The JSON at a URL."""
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def wait_until(condition: Callable[[], object]) -> None:
    """Waits until a condition is true."""
    while not condition():
        time.sleep(0.01)


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else 0


def _start_table(starts: Sequence[RunningGateway], size: str) -> Table:
    imports = "import uvicorn, toolscript.app.app, toolscript.surfaces.http.server"
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", imports], check=True)
    bare = time.perf_counter() - began
    first, again = starts[0], sorted(starts[1:], key=lambda s: s.ready_seconds)
    middle = again[len(again) // 2]
    rows = [
        (
            name,
            size,
            format_duration(s.ready_seconds),
            f"{s.embedded:,}",
            f"{s.resident / 2**20:.0f} MiB",
            format_duration(bare),
        )
        for name, s in (("first start", first), ("started again (median)", middle))
    ]
    ratios = [format_number(s.ready_seconds / bare) for s in (first, middle)]
    return Table(
        "Starting",
        ("What", "Size", "Ready after", "Texts embedded", "Memory", "Imports alone", "Time ÷ reference"),
        [(*row, ratio) for row, ratio in zip(rows, ratios, strict=True)],
        START_NOTE,
    )


async def time_searches(gateway: RunningGateway, size: str, count: int) -> Row:
    """New queries over HTTP, one after the other."""
    alone = OnnxEmbedder(find_packaged_model(), device="cpu")
    connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"))

    async def search(query: str) -> None:
        connection.request("GET", f"/search?q={quote(query)}")
        json.load(connection.getresponse())

    for query in make_queries(20, seed=5):
        await search(query)
        await alone.embed_query(query)
    ours, beside = await side_by_side(make_queries(count, seed=7), search, alone.embed_query)
    await alone.close()
    connection.close()
    return Row("`GET /search`, new queries", size, ours, "embedding alone", beside)


async def _command(place: Path, size: str, times: int) -> Row:
    environment = build_environment(place)

    async def search(query: str) -> None:
        command = [sys.executable, "-m", "toolscript", "search", query]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, cwd=place, env=environment)

    async def run_nothing(_: str) -> None:
        command = [sys.executable, "-c", "pass"]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, cwd=place, env=environment)

    ours, beside = await side_by_side(make_queries(times, seed=9), search, run_nothing)
    return Row("`toolscript search`", size, ours, "`python -c pass`", beside)


def build_environment(place: Path) -> dict[str, str]:
    """The variables of this process without settings, and with the folder as home."""
    return {n: v for n, v in os.environ.items() if not n.startswith(PREFIX)} | {"HOME": str(place)}


async def _calls(gateway: RunningGateway, echo: dict[str, Any], count: int) -> tuple[Row, float]:
    connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"))

    async def call_gateway(text: str) -> None:
        connection.request("POST", "/tools/echo__echo", json.dumps({"text": text}))
        assert json.load(connection.getresponse()) == {"text": text}

    parameters = StdioServerParameters(command=echo["command"], args=echo["args"], env=echo["env"])
    async with Client(parameters) as client:

        async def call_directly(text: str) -> None:
            assert (await client.call_tool("echo", {"text": text})).structured_content == {"text": text}

        for text in ("warm", "up"):
            await call_gateway(text)
            await call_directly(text)
        ours, beside = await side_by_side([f"text {n}" for n in range(count)], call_gateway, call_directly)
    connection.close()
    return Row("`POST /tools/{id}`", "1 line", ours, "directly", beside), ours.p50 - beside.p50


def write_tools(file: Path, limit: int | None, *, fill: bool = False) -> int:
    """Writes the large real catalogue if it is installed, else one made from the demo tools; returns its size. With
    `fill`, tools are repeated for other servers up to the limit."""
    real = DATA / "tools" / "mcp_catalog_A" / "tools.jsonl.gz"
    if real.exists():
        lines = gzip.decompress(real.read_bytes()).decode().splitlines()
    else:
        made = make_catalogue(5_792)
        lines = [
            json.dumps(
                {
                    "id": i.id,
                    "server": i.server,
                    "name": i.name,
                    "description": i.description,
                    "input_schema": i.input_schema,
                }
            )
            for i in made
        ]
    chosen = [line for line in lines if line.strip()]
    if fill and limit:
        again = [json.loads(line) for line in chosen[: limit - len(chosen)]] if limit > len(chosen) else []
        chosen += [json.dumps({**tool, "server": f"second-{tool['server']}"}) for tool in again]
    chosen = chosen[:limit]
    file.write_bytes(gzip.compress("\n".join(chosen).encode()))
    return len(chosen)


async def run_large_results(quick: bool) -> list[Table]:
    """Tokens of real servers' answers before and after they are cut, and times for 5 MB."""
    with TemporaryDirectory() as folder:
        settings = load_settings(variables={}, data_dir=Path(folder), search_model=PACKAGED)
        async with open_app(settings) as app:
            await app.servers.gateway.apply(_configure_servers(Path(folder)))
            await app.servers.gateway.settle(60)
            cuts = [await _cut_answer(app, name, *about) for name, about in LARGE_ANSWERS.items()]
            size = 500_000 if quick else 5_000_000
            times = [await _time_result(app, kind, text) for kind, text in _make_large(size).items()]
    columns = ("Answer", "Tool", "Whole", "The agent gets", "With a query", "Found")
    steps = ("Result", "Size", "Cut and kept", "Page", "Query")
    return [
        Table("Tokens of answers", columns, cuts, CUT_NOTE),
        Table("Times for a large result", steps, times, LARGE_NOTE),
    ]


def _configure_servers(folder: Path) -> Sequence[ServerSpec]:
    entries = real_servers(folder / "servers")
    entries["filesystem"]["args"][-1] = str(ROOT)
    entries["git"]["args"][-1] = str(ROOT)
    file = folder / "mcp.json"
    chosen = {name: entries[name] | {"cwd": str(ROOT)} for name in ("filesystem", "git", "time")}
    file.write_text(json.dumps({"mcpServers": chosen}), encoding="utf-8")
    return load_configuration(file, home=folder, folder=folder, environment={}).servers


async def _cut_answer(
    app: App, name: str, tool: str, arguments: dict[str, Any], query: str, expected: str
) -> tuple[str, ...]:
    given = {key: str(ROOT / value) if key.endswith("path") else value for key, value in arguments.items()}
    result = (await app.tools.call.call(tool, given, relay=CallRelay(user=""))).raw
    whole, _, _ = split_result(result)
    cut = await app.texts.large_results.cut(result, "")
    got = estimate_tokens(sum(len(block.get("text", "").encode()) for block in cut["content"]))
    row = (name, f"`{tool}`", f"{estimate_tokens(len(whole.text.encode())):,}", f"{got:,}")
    if META_KEY not in cut.get("_meta", {}):
        return (*row, "", "not cut")
    hits = await app.texts.large_results.search(cut["_meta"][META_KEY]["handle"], "", query)
    more = estimate_tokens(sum(len(hit.text.encode()) for hit in hits))
    return (*row, f"{got + more:,}", "yes" if any(expected in f"{hit.path} {hit.text}" for hit in hits) else "no")


def _make_large(size: int) -> dict[str, str]:
    texts = make_documents(size // 400, 50, seed=1)
    rows = [{"id": number, "name": text[:40], "about": text} for number, text in enumerate(texts)]
    return {"JSON, rows": json.dumps({"rows": rows}), "text, lines": "\n".join(texts)}


async def _time_result(app: App, kind: str, text: str) -> tuple[str, ...]:
    handle = ""

    async def cut(_: int) -> None:
        nonlocal handle
        result = await app.texts.large_results.cut({"content": [{"type": "text", "text": text}]}, "")
        handle = result["_meta"][META_KEY]["handle"]

    async def read(page: int) -> None:
        await app.texts.large_results.read_page(handle, "", page=page)

    async def search(number: int) -> None:
        await app.texts.large_results.search(handle, "", QUERIES[number - 1])

    return (kind, f"{len(text) / 1e6:.1f} MB", *[await _time_step(step) for step in (cut, read, search)])


async def _time_step(step: Callable[[int], Awaitable[None]]) -> str:
    """The times of three runs: on the clock, and of the processor, which others on this machine do not lengthen."""
    wall, processor = [], []
    for number in (1, 2, 3):
        began = time.process_time()
        wall.append(await measure_seconds(step, number))
        processor.append(time.process_time() - began)
    return f"{format_duration(Sample(wall).p50)} ({format_duration(Sample(processor).p50)})"
