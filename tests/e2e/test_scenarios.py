"""Every scenario of the source document on tool search, one test each, as a user meets it.

Where the specification goes beyond a scenario, the specification is what is tested: a machine without a network has a
model all the same, and a new configuration makes no vector twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner, Result

from tests.fixtures.examples import is_thorough
from tests.fixtures.http_services import HttpDouble, Hub, hub_layout
from tests.fixtures.limits import set_limits
from tests.servers import make_scripted_spec
from tests.servers.gateway import run_gateway
from tests.servers.preloaded import toolscript_command
from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item
from toolscript.services.catalogue.indexing import SyncReport
from toolscript.settings import DEFAULT_MODEL, Settings, load_settings
from toolscript.surfaces.cli.client.announcement import announce_gateway
from toolscript.surfaces.cli.main import run
from toolscript.surfaces.http.server import HttpServer

OTHER_MODEL, ITS_NAME = "Xenova/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"
BGE = "Xenova/bge-small-en-v1.5"
PREFIX = "Represent this sentence for searching relevant passages: "
INITIALIZED_WITHIN = 5.0 if is_thorough() else 30.0

# What the servers of a user offer: names and descriptions, and each tool's one parameter.
TOOLS: dict[str, dict[str, tuple[str, str]]] = {
    "desktop-commander": {
        "read_file": ("Read file contents from disk", "path"),
        "write_file": ("Write text to a file on disk", "path"),
        "search_files": ("Search for files by name pattern", "pattern"),
        "search_code": ("Search for text inside files, as grep does, and show the matching lines", "text"),
    },
    "filesystem": {
        "read": ("Read file from filesystem", "file_path"),
        "list_directory": ("List what is in a folder", "path"),
    },
    "Shell": {"execute": ("Run a command in the terminal and return its output", "command")},
    "database": {
        "query": ("Run a SQL query on the database", "sql"),
        "list_tables": ("List the tables of the database", "schema"),
        "insert_rows": ("Insert rows into a table of the database", "table"),
        "explain": ("Show how the database would run a query", "sql"),
        "backup": ("Make a backup of the whole database", "target"),
        "drop_index": ("Remove an index from a table of the database", "index"),
    },
    "weather": {"get_forecast": ("Get the weather forecast for a city", "city")},
}
MORE_TOOLS: dict[str, dict[str, tuple[str, str]]] = {
    "github": {
        "create_issue": ("Open an issue in a repository", "title"),
        "list_pull_requests": ("List the pull requests of a repository", "repo"),
    },
    "myserver": {"echo": ("Returns what it is given", "text"), "ping": ("Answers pong", "host")},
    "otherserver": {"read_file": ("Read a file elsewhere", "path"), "delete_file": ("Delete a file", "path")},
}

Toolscript = Callable[..., Result]


def schema(parameter: str, kind: str = "string") -> dict[str, Any]:
    return {"type": "object", "properties": {parameter: {"type": kind}}, "required": [parameter]}


def items_of(*servers: str) -> list[Item]:
    known = TOOLS | MORE_TOOLS
    return [
        Item(server, name, description, input_schema=schema(parameter))
        for server in servers
        for name, (description, parameter) in known[server].items()
    ]


def configure(folder: Path, *servers: str, file: str = "servers.json") -> Path:
    """A configuration with real processes behind those names."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = {}
    for server in servers:
        lists = folder / f"{server}.lists.json"
        tools = [
            {"name": i.name, "description": i.description, "inputSchema": i.input_schema} for i in items_of(server)
        ]
        lists.write_text(json.dumps({"tools": tools}))
        entries[server] = make_scripted_spec(watch=str(lists))
    (folder / file).write_text(json.dumps({"mcpServers": entries}))
    return folder / file


@dataclass(frozen=True, slots=True)
class World:
    """A user's configuration and data folder, indexed."""

    config: Path
    data: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Indexed once by a first search, as any user's is; tests only search it."""
    folder = tmp_path_factory.mktemp("world")
    made = World(configure(folder, *TOOLS), folder / "data")
    environment = {"TOOLSCRIPT_HUB_URL": "http://127.0.0.1:9", "HOME": str(folder)}
    first = ["search", "warm up", "--config", str(made.config), "--data-dir", str(made.data)]
    result = CliRunner().invoke(run, first, env=environment)
    assert result.exit_code == 0, result.output
    return made


@pytest.fixture
def toolscript(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Toolscript:
    """Runs the command, on the indexed world by default."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLSCRIPT_CONFIG", str(world.config))
    monkeypatch.setenv("TOOLSCRIPT_DATA_DIR", str(world.data))
    monkeypatch.setenv("COLUMNS", "160")

    def invoke(*arguments: str, code: int = 0, **variables: str) -> Result:
        for name, value in variables.items():
            monkeypatch.setenv(f"TOOLSCRIPT_{name}", value)
        monkeypatch.setattr("sys.argv", ["toolscript", *arguments])
        result = CliRunner().invoke(run, list(arguments))
        assert result.exit_code == code, result.output
        return result

    return invoke


def hits(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)["results"]
    assert [hit["confidence"] for hit in found] == sorted((hit["confidence"] for hit in found), reverse=True)
    return found


def events(result: Result) -> dict[str, dict[str, Any]]:
    """The log lines on standard error, by event."""
    lines = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    return {line["event"]: line for line in lines}


def caches(data: Path) -> dict[str, dict[str, Any]]:
    return {p.name: json.loads(p.read_bytes()) for p in (data / "cache" / "embeddings").glob("*")}


# --- Hybrid Search Engine ---


@pytest.mark.req("S-01")
def test_natural_language_tool_discovery(toolscript: Toolscript) -> None:
    found = hits(toolscript("search", "find files containing specific text", "--json"))
    assert found[0]["toolId"] == "desktop-commander__search_code"
    for hit in found:
        assert 0 <= hit["confidence"] <= 1
        assert re.match(r"(Semantic|Keyword|Fuzzy|Exact|Capability)", hit["reason"])


@pytest.mark.req("S-02")
def test_typo_tolerant_keyword_search(toolscript: Toolscript) -> None:
    mistyped = hits(toolscript("search", "read_fil", "--json"))[0]
    exact = hits(toolscript("search", "read_file", "--json"))[0]
    worse = hits(toolscript("search", "red_fil", "--json"))[0]
    assert mistyped["toolId"] == exact["toolId"] == worse["toolId"] == "desktop-commander__read_file"
    assert "Fuzzy match" in mistyped["reason"]
    assert worse["confidence"] < mistyped["confidence"] < exact["confidence"] == 1


@pytest.mark.req("S-03")
def test_semantic_intent_matching(toolscript: Toolscript) -> None:
    found = hits(toolscript("search", "commit my changes to git", "--json"))
    shell = next(hit for hit in found if hit["toolId"] == "Shell__execute")
    assert "Capability inference (shell → git)" in shell["reason"]
    aimless = hits(toolscript("search", "carve my changes into stone", "--json", "--threshold", "0", "--limit", "50"))
    unaided = next((hit["confidence"] for hit in aimless if hit["toolId"] == "Shell__execute"), 0.0)
    assert shell["confidence"] > max(0.35, unaided)


# --- Embedding Model Support ---


async def search_once(folder: Path, hub: Hub, **variables: str) -> subprocess.CompletedProcess[str]:
    """Searches with the command in a process of its own, on a data folder that does not exist before."""
    command = [*toolscript_command(), "search", "execute", "--json", "--config", str(configure(folder, "Shell"))]
    own = {"TOOLSCRIPT_HUB_URL": hub.root, "TOOLSCRIPT_DATA_DIR": str(folder / "data")} | variables
    running = partial(subprocess.run, env=os.environ | own, capture_output=True, text=True, check=True)
    done = await asyncio.to_thread(running, command)
    assert json.loads(done.stdout)["results"][0]["toolId"] == "Shell__execute"
    return done


@pytest.mark.req("S-07")
async def test_default_model_initialization(tmp_path: Path) -> None:
    """Scenario: Default model initialization. It is in the package: nothing is downloaded, nothing is reported."""
    with Hub(BGE, hub_layout(tmp_path / "repository")) as hub:
        done = await search_once(tmp_path, hub)
        assert "model" not in done.stderr
        assert {cache["model"] for cache in caches(tmp_path / "data").values()} == {DEFAULT_MODEL}
        began = time.process_time()
        async with open_app(load_settings(variables={}, data_dir=tmp_path / "data", hub_url=hub.root)) as app:
            assert time.process_time() - began < INITIALIZED_WITHIN
            assert app.model.embedder is not None
            assert (app.model.embedder.model, app.model.fallback_reason) == (DEFAULT_MODEL, None)
        assert hub.requests == []


# tests/unit/adapters/onnx/test_model_folders.py shows that a model is downloaded once and found afterwards.
@pytest.mark.extended
@pytest.mark.req("S-07")
async def test_a_model_of_the_hub_is_downloaded_once(tmp_path: Path) -> None:
    """Scenario: Default model initialization, of the model that was the default there."""
    data = tmp_path / "data"
    with Hub(BGE, hub_layout(tmp_path / "repository")) as hub:
        done = await search_once(tmp_path, hub, TOOLSCRIPT_SEARCH_MODEL=BGE)
        assert any("onnx/model_quantized.onnx" in request_lines for request_lines in hub.requests)
        assert "%" in done.stderr or "MB" in done.stderr  # the progress of the download
        assert (data / "models" / "bge-small-en-v1.5" / "onnx" / "model_quantized.onnx").is_file()
        assert {cache["model"] for cache in caches(data).values()} == {"bge-small-en-v1.5"}
        requests_before = len(hub.requests)
        began = time.process_time()
        async with open_app(load_settings(variables={}, data_dir=data, hub_url=hub.root, search_model=BGE)) as app:
            assert time.process_time() - began < INITIALIZED_WITHIN
            assert app.model.embedder is not None
            assert (app.model.embedder.model, app.model.fallback_reason) == ("bge-small-en-v1.5", None)
        assert len(hub.requests) == requests_before


@pytest.mark.req("S-09")
def test_gpu_acceleration(toolscript: Toolscript, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Scenario: GPU acceleration. A GPU that is reported and cannot be used: the CPU is used instead."""
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    result = toolscript("search", "read_file", "--json", LOG_LEVEL="debug")
    assert hits(result)[0]["toolId"] == "desktop-commander__read_file"
    response = events(result)["gpu_disabled"]
    assert response["level"] == "debug"


@pytest.mark.req("S-07")
def test_model_selection_via_cli(toolscript: Toolscript, tmp_path: Path) -> None:
    own = ("--data-dir", str(tmp_path / "data"))
    found = hits(toolscript("search", "read_file", "--json", "--model", OTHER_MODEL, *own, SEARCH_MODEL="hashed-64"))
    assert found[0]["toolId"] == "desktop-commander__read_file"
    assert {cache["model"] for cache in caches(tmp_path / "data").values()} == {ITS_NAME}
    refused = toolscript("search", "x", "--model", "not-a-model", *own, code=2)
    assert BGE in refused.stderr
    assert OTHER_MODEL in refused.stderr


@pytest.mark.extended
@pytest.mark.req("S-07")
def test_model_selection_via_environment_variable(toolscript: Toolscript, tmp_path: Path) -> None:
    own = ("--data-dir", str(tmp_path / "data"))
    result = toolscript("search", "read_file", "--json", *own, SEARCH_MODEL=OTHER_MODEL)
    assert hits(result)[0]["toolId"] == "desktop-commander__read_file"
    assert "model_fallback" not in events(result)
    assert {cache["model"] for cache in caches(tmp_path / "data").values()} == {ITS_NAME}
    assert OTHER_MODEL in toolscript("search", "x", *own, code=2, SEARCH_MODEL="not-a-model").stderr


@pytest.mark.req("S-07")
async def test_query_prefix_for_retrieval_optimization(tmp_path: Path) -> None:
    hub_layout(tmp_path / "models" / "bge-small-en-v1.5")
    async with open_app(load_settings(variables={}, data_dir=tmp_path, search_model=BGE)) as app:
        embedder = app.model.embedder
        assert embedder is not None
        assert embedder.model == "bge-small-en-v1.5"
        query = await embedder.embed_query("read a file")
        prefixed, plain = await embedder.embed_documents([f"{PREFIX}read a file", "read a file"])
        assert np.allclose(query, prefixed, atol=1e-5)
        assert not np.allclose(query, plain, atol=1e-2)


@pytest.mark.req("S-08")
def test_graceful_fallback_on_model_failure(toolscript: Toolscript, tmp_path: Path) -> None:
    """Scenario: Graceful fallback on model failure. First to the model of the package, then to words alone."""
    data = tmp_path / "data"
    result = toolscript("search", "read_fil", "--json", "--data-dir", str(data), "--model", BGE)
    assert hits(result)[0]["toolId"] == "desktop-commander__read_file"
    assert (events(result)["model_fallback"]["level"], events(result)["model_fallback"]["used"]) == (
        "warning",
        DEFAULT_MODEL,
    )
    broken = tmp_path / "none"
    (broken / "models" / DEFAULT_MODEL).mkdir(parents=True)
    without = toolscript("search", "read_fil", "--json", "--data-dir", str(broken))
    assert hits(without)[0]["toolId"] == "desktop-commander__read_file"
    response = events(without)["no_model"]
    assert (response["level"], response["consequence"]) == ("warning", "search by words only")


# --- Persistent Embedding Cache ---


@pytest.fixture
def small_config(tmp_path: Path) -> Path:
    return configure(tmp_path, "Shell", "weather")


CACHE_FILE = r"embeddings-[0-9a-f]{64}\.json"


def only_cache(folder: Path) -> Path:
    (file,) = folder.iterdir()
    assert re.fullmatch(CACHE_FILE, file.name)
    return file


@pytest.mark.req("S-10")
def test_cache_location_resolution(toolscript: Toolscript, small_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLSCRIPT_DATA_DIR")
    assert not (Path.home() / ".toolscript").exists()
    toolscript("search", "execute", "--model", "hashed-64", "--config", str(small_config))
    only_cache(Path(os.environ["HOME"]) / ".toolscript" / "cache" / "embeddings")


@pytest.mark.req("S-10")
def test_custom_data_directory_via_environment_variable(
    toolscript: Toolscript, small_config: Path, tmp_path: Path
) -> None:
    custom = tmp_path / "custom" / "path"
    arguments = ("search", "execute", "--model", "hashed-64", "--config", str(small_config))
    toolscript(*arguments, DATA_DIR=str(custom))
    only_cache(custom / "cache" / "embeddings")
    assert not (Path.home() / ".toolscript").exists()


@pytest.mark.req("S-10")
def test_custom_data_directory_via_cli_flag(toolscript: Toolscript, small_config: Path, tmp_path: Path) -> None:
    custom, unused = tmp_path / "custom", tmp_path / "unused"
    arguments = ("search", "execute", "--model", "hashed-64", "--config", str(small_config))
    toolscript(*arguments, "--data-dir", str(custom), DATA_DIR=str(unused))
    only_cache(custom / "cache" / "embeddings")
    assert not unused.exists()


@pytest.mark.req("S-10")
def test_configuration_aware_cache_lookup(toolscript: Toolscript, tmp_path: Path) -> None:
    data = tmp_path / "data"
    names: list[set[str]] = []
    for number, servers in enumerate([("Shell", "weather"), ("filesystem",), ("weather", "Shell")]):
        config = configure(tmp_path / str(number), *servers)
        toolscript("sync", "--config", str(config), "--data-dir", str(data), SEARCH_MODEL="hashed-64")
        names.append(set(caches(data)))
    assert [len(seen) for seen in names] == [1, 2, 2]  # the order of servers does not matter
    listed = json.dumps(["Shell", "weather"], separators=(",", ":"))
    assert names[0] == {f"embeddings-{hashlib.sha256(listed.encode()).hexdigest()}.json"}
    response = {tuple(cache["servers"]): set(cache["tools"]) for cache in caches(data).values()}
    assert response[("filesystem",)] == {"filesystem__read", "filesystem__list_directory"}
    assert response[("Shell", "weather")] == {"Shell__execute", "weather__get_forecast"}


def small_settings(data: Path, **chosen: Any) -> Settings:
    return load_settings(variables={}, data_dir=data, search_model="hashed-64", **chosen)


async def read_index(settings: Settings, items: list[Item], *, forget_index: bool = False) -> SyncReport:
    """One run of the application over what servers offer. Without its index, vectors can only come from the cache."""
    async with open_app(settings, fresh_index=forget_index) as app:
        return await app.catalogue.sync.run(items)


@pytest.mark.req("S-10")
async def test_cache_creation_on_first_indexing(tmp_path: Path) -> None:
    items = items_of("Shell", "database")
    assert (await read_index(small_settings(tmp_path), items)).embedded == len(items)
    (cache,) = caches(tmp_path).values()
    assert (cache["model"], cache["version"], cache["dimensions"]) == ("hashed-64", 1, 64)
    assert cache["tools"].keys() == {item.id for item in items}
    assert len({tool["hash"] for tool in cache["tools"].values()}) == len(items)


@pytest.mark.req("S-10")
async def test_cache_validation_on_startup(tmp_path: Path) -> None:
    items, settings = items_of("Shell", "database"), small_settings(tmp_path)
    await read_index(settings, items)
    assert (await read_index(settings, items)).embedded == 0
    again = await read_index(settings, items, forget_index=True)
    assert (again.indexed, again.embedded) == (len(items), 0)
    other = replace(settings, search_model="hashed-32")
    assert (await read_index(other, items, forget_index=True)).embedded == len(items)
    only_cache(tmp_path / "cache" / "embeddings").write_text('{"version": 1, "tools"')
    assert (await read_index(other, items, forget_index=True)).embedded == len(items)
    assert (await read_index(other, items, forget_index=True)).embedded == 0


@pytest.mark.req("S-10")
async def test_incremental_cache_updates(tmp_path: Path) -> None:
    """Scenario: Incremental cache updates. A new file for the new configuration, with the vectors that were there."""
    before, after = items_of("Shell", "database"), items_of("Shell", "database", "weather")
    await read_index(small_settings(tmp_path), before)
    report = await read_index(small_settings(tmp_path), after, forget_index=True)
    assert report.embedded == len(after) - len(before)
    cached_tools = sorted((cache["servers"], set(cache["tools"])) for cache in caches(tmp_path).values())
    assert cached_tools == [
        (["Shell", "database"], {item.id for item in before}),
        (["Shell", "database", "weather"], {item.id for item in after}),
    ]


@pytest.mark.req("S-10")
async def test_cache_invalidation_on_schema_change(tmp_path: Path) -> None:
    items = items_of("Shell", "database")
    await read_index(small_settings(tmp_path), items)
    (before,) = caches(tmp_path).values()
    items[0] = replace(items[0], input_schema=schema("command", "array"))
    assert (await read_index(small_settings(tmp_path), items)).embedded == 1
    (after,) = caches(tmp_path).values()
    changed = {i for i in after["tools"] if after["tools"][i]["hash"] != before["tools"][i]["hash"]}
    assert changed == {items[0].id}


# --- Search CLI Command ---


@pytest.mark.req("S-05")
def test_basic_search_invocation_with_default_output(toolscript: Toolscript) -> None:
    confident, _, closest = toolscript("search", "read file contents").stdout.partition("Less sure:\n")
    assert closest
    header, *rows = confident.splitlines()
    assert header.split() == ["Tool", "Confidence", "Reason"]
    assert [row.split()[0] for row in rows] == ["desktop-commander__read_file", "filesystem__read"]  # no other reads
    assert re.match(r"desktop-commander__read_file +0\.\d\d  Semantic similarity \(file operations\)", rows[0])
    confidences = [float(row.split()[1]) for row in rows]
    assert confidences == sorted(confidences, reverse=True)


@pytest.mark.req("S-05")
def test_limit_results_via_cli_flag(toolscript: Toolscript) -> None:
    everything = hits(toolscript("search", "database query", "--limit", "50", "--threshold", "0", "--json"))
    limited = hits(toolscript("search", "database query", "--limit", "5", "--threshold", "0", "--json"))
    assert len(everything) > 5
    assert limited == everything[:5]


@pytest.mark.req("S-05")
def test_limit_results_via_environment_variable(toolscript: Toolscript) -> None:
    found = hits(toolscript("search", "database query", "--threshold", "0", "--json", SEARCH_LIMIT="10"))
    assert len(found) == 10
    assert len(hits(toolscript("search", "database query", "--limit", "2", "--json"))) == 2


@pytest.mark.req("S-05")
def test_confidence_threshold_filtering_via_cli(toolscript: Toolscript) -> None:
    everything = hits(toolscript("search", "read file contents", "--threshold", "0", "--limit", "50", "--json"))
    kept = hits(toolscript("search", "read file contents", "--threshold", "0.5", "--limit", "50", "--json"))
    assert kept == [hit for hit in everything if hit["confidence"] >= 0.5]
    assert 0 < len(kept) < len(everything)
    assert hits(toolscript("search", "play the xylophone", "--threshold", "0.5", "--json")) == []


@pytest.mark.req("S-05")
def test_confidence_threshold_via_environment_variable(toolscript: Toolscript) -> None:
    everything = hits(toolscript("search", "read file contents", "--threshold", "0", "--limit", "50", "--json"))
    result = toolscript("search", "read file contents", "--limit", "50", "--json", SEARCH_THRESHOLD="0.4")
    assert json.loads(result.stdout)["threshold"] == 0.4
    assert hits(result) == [hit for hit in everything if hit["confidence"] >= 0.4]


@pytest.mark.req("S-05")
def test_default_threshold_and_limit_values(toolscript: Toolscript) -> None:
    everything = hits(toolscript("search", "find files", "--threshold", "0", "--limit", "50", "--json"))
    result = toolscript("search", "find files", "--json")
    assert json.loads(result.stdout)["threshold"] == 0.35
    assert hits(result) == [hit for hit in everything if hit["confidence"] >= 0.35][:3]
    assert len(hits(result)) == 3
    few = hits(toolscript("search", "tell me whether it will rain tomorrow", "--json"))
    assert [hit["toolId"] for hit in few] == ["weather__get_forecast"]


class Relay(HttpDouble):
    """Passes requests on to a gateway, and records them."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        with urllib.request.urlopen(f"{self._url}{request.path}", timeout=30) as response:
            self.send(request, response.status, response.read(), {"Content-Type": response.headers["Content-Type"]})


@pytest.mark.req("S-06")
def test_typescript_types_output_format(toolscript: Toolscript, gateway: str, tmp_path: Path) -> None:
    with Relay(gateway) as relay, announce_gateway(load_settings(data_dir=tmp_path), relay.root):
        shown = toolscript("search", "read file", "--output", "types", DATA_DIR=str(tmp_path)).stdout
    found = json.loads(get(f"{gateway}/search?q=read+file&limit=3"))["results"]
    ids = ",".join(hit["toolId"] for hit in found)
    request_lines = [each.replace("%2C", ",") for each in relay.requests if "/health" not in each]
    assert request_lines[0].startswith("GET /search?q=read+file&limit=3")
    assert request_lines[-1] == f"GET /runtime/tools.ts?filter={ids}"
    rows = [f"| {h['toolId']} | {h['confidence']:.2f} | {h['reason']} |" for h in found]
    table = "\n".join(
        ["## Search Results", "", "| Tool | Confidence | Reason |", "|------|-----------|--------|", *rows]
    )
    assert shown.startswith(f"{table}\n\n```typescript\n// Auto-generated TypeScript client for MCP tools\n")
    module = shown.partition("```typescript\n")[2].partition("\n```")[0]
    assert module == get(f"{gateway}/runtime/tools.ts?filter={ids}").rstrip()
    for part in ("export interface DesktopCommanderReadFileParams {\n  path: string;\n}", "desktopCommander: {"):
        assert part in module
    usage = shown.partition("Usage example:\n")[2].splitlines()
    assert usage[:2] == ["```typescript", 'import { tools } from "toolscript";']
    clients = {"desktop-commander__read_file": "desktopCommander", "otherserver__read_file": "otherserver"}
    assert usage[-2].startswith(f"const result = await tools.{clients[found[0]['toolId']]}.read_file({{ path: ")
    assert usage[-1] == "```"


@pytest.mark.req("S-05")
def test_no_results_found(toolscript: Toolscript) -> None:
    first, second = toolscript("search", "play the xylophone").stdout.splitlines()
    assert first == "No tools found matching query"
    assert "different keywords" in second
    assert "--threshold" in second


# --- Gateway Search Endpoint ---


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real gateway with all the servers behind it."""
    folder = tmp_path_factory.mktemp("gateway")
    config = configure(folder, *TOOLS, *MORE_TOOLS)
    with run_gateway(folder, "--config", str(config), DATA_DIR=str(folder / "data")) as running:
        yield running.url


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.req("S-04")
def test_search_endpoint_invocation(gateway: str) -> None:
    response = json.loads(get(f"{gateway}/search?q=find+files&limit=5"))
    assert response.keys() == {"query", "results", "totalResults", "threshold"}
    assert (response["query"], response["threshold"]) == ("find files", 0.35)
    assert 1 <= response["totalResults"] == len(response["results"]) <= 5
    first = response["results"][0]
    assert 0.35 <= first.pop("confidence") <= 1
    assert "Semantic similarity (file operations)" in first.pop("reason")
    assert first == {
        "toolId": "desktop-commander__search_files",
        "serverName": "desktop-commander",
        "toolName": "search_files",
        "description": "Search for files by name pattern",
    }


@pytest.mark.req("S-04")
async def test_search_endpoint_error_handling(small: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, open_app=0.01)
    server = HttpServer(replace(small, port=0))
    serving = asyncio.create_task(server.run())
    async with httpx.AsyncClient(base_url=server.url) as http:
        refused = await http.get("/search", params={"q": "find files"})
    server.stop()
    await serving
    assert refused.status_code == 503
    assert "search engine is not ready" in refused.json()["error"]["message"]


# --- Advanced Configuration via Environment Variables ---


@pytest.fixture(scope="module")
async def by_alpha(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mapping[str, App]]:
    """The same catalogue, weighed by meaning alone, by words alone, as by default and by eight to two."""
    opened: dict[str, App] = {}
    async with AsyncExitStack() as stack:
        for alpha in ("1", "0", "", "0.8"):
            data = tmp_path_factory.mktemp("alpha")
            (data / "no_tables.json").write_text('{"replace": true}')
            chosen = {
                "TOOLSCRIPT_SEARCH_ALPHA": alpha,
                "TOOLSCRIPT_SEARCH_MODEL": "hashed-64",
                "TOOLSCRIPT_SEARCH_CAPABILITIES": str(data / "no_tables.json"),
            }
            app = await stack.enter_async_context(open_app(load_settings(variables=chosen, data_dir=data)))
            await app.catalogue.sync.run(items_of(*TOOLS, *MORE_TOOLS))
            opened[alpha] = app
        yield opened


async def weigh(app: App) -> dict[str, float]:
    """The confidence of each hit, relative to the first one's."""
    hits = (await app.tools.search.search("show what the tables would hold", limit=50, threshold=0)).hits
    assert not any(re.search(r"Exact|Fuzzy", hit.reason) for hit in hits[:5])
    return {hit.id: hit.confidence / hits[0].confidence for hit in hits}


async def confirm_weight(by_alpha: Mapping[str, App], alpha: str, weight: float) -> None:
    """Words count as much as they were learned to."""
    semantic, words, mixed = [await weigh(by_alpha[a]) for a in ("1", "0", alpha)]
    loudness = by_alpha[alpha].tools.ranking.learned.keyword
    scores = {i: weight * semantic.get(i, 0) + (1 - weight) * loudness * words.get(i, 0) for i in mixed}
    expected = {i: score / max(scores.values()) for i, score in scores.items()}
    best = list(mixed)[:5]
    assert {i: mixed[i] for i in best} == pytest.approx({i: expected[i] for i in best}, abs=2e-3)


@pytest.mark.req("S-01")
async def test_configure_semantic_weight_alpha_via_environment(by_alpha: Mapping[str, App]) -> None:
    await confirm_weight(by_alpha, "0.8", 0.8)


@pytest.mark.req("S-01")
async def test_default_alpha_value(by_alpha: Mapping[str, App]) -> None:
    assert by_alpha[""].settings.search_alpha == 0.7
    await confirm_weight(by_alpha, "", 0.7)


@pytest.mark.req("S-10")
async def test_disable_embedding_cache_via_environment(tmp_path: Path) -> None:
    items, cached = items_of("Shell", "database"), small_settings(tmp_path)
    await read_index(cached, items)
    (kept,) = caches(tmp_path).values()
    environment = {"TOOLSCRIPT_SEARCH_NO_CACHE": "true", "TOOLSCRIPT_SEARCH_MODEL": "hashed-64"}
    uncached = load_settings(variables=environment, data_dir=tmp_path)
    for _ in range(2):
        assert (await read_index(uncached, items)).embedded == len(items)
    assert list(caches(tmp_path).values()) == [kept]
    fresh = load_settings(variables=environment, data_dir=tmp_path / "fresh")
    await read_index(fresh, items)
    assert not (tmp_path / "fresh" / "cache").exists()


@pytest.mark.req("S-09")
def test_disable_gpu_acceleration_via_environment(toolscript: Toolscript, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[str]] = []
    real = onnxruntime.InferenceSession

    def remembering(*arguments: Any, providers: list[str], **more: Any) -> Any:
        tried.append(providers)
        return real(*arguments, providers=providers, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", remembering)
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    result = toolscript("search", "read_file", "--json", SEARCH_DEVICE="cpu")
    assert hits(result)[0]["toolId"] == "desktop-commander__read_file"
    assert tried
    assert all(providers == ["CPUExecutionProvider"] for providers in tried)


@pytest.mark.req("S-09")
def test_force_gpu_acceleration_via_environment(toolscript: Toolscript, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    refused = toolscript("search", "read_file", code=3, SEARCH_DEVICE="gpu")
    assert "TOOLSCRIPT_SEARCH_DEVICE=gpu" in refused.stderr
    assert "no GPU here" in refused.stderr
    assert refused.stdout == ""


# --- Gateway Types Endpoint Enhancement ---


def call(module: str) -> set[str]:
    return set(re.findall(r'callTool\("([^"]+)"', module))


def types(toolscript: Toolscript, gateway: str, tmp_path: Path, wanted: str) -> str:
    """The module, once it is sure that it is what `get-types` prints."""
    module = get(f"{gateway}/runtime/tools.ts?filter={wanted}")
    with announce_gateway(load_settings(data_dir=tmp_path), gateway):
        assert module == toolscript("get-types", wanted, DATA_DIR=str(tmp_path)).stdout
    return module


@pytest.mark.req("G-06")
def test_filter_by_server_name(toolscript: Toolscript, gateway: str, tmp_path: Path) -> None:
    module = types(toolscript, gateway, tmp_path, "github")
    assert call(module) == {"github__create_issue", "github__list_pull_requests"}


@pytest.mark.req("G-06")
def test_filter_by_specific_tool(toolscript: Toolscript, gateway: str, tmp_path: Path) -> None:
    assert call(types(toolscript, gateway, tmp_path, "myserver__echo")) == {"myserver__echo"}


@pytest.mark.req("G-06")
def test_filter_multiple_servers_and_tools(toolscript: Toolscript, gateway: str, tmp_path: Path) -> None:
    module = types(toolscript, gateway, tmp_path, "github,myserver__echo,otherserver__read_file")
    assert call(module) == {
        "github__create_issue",
        "github__list_pull_requests",
        "myserver__echo",
        "otherserver__read_file",
    }


def test_every_scenario_has_its_test(shared_data: Path) -> None:
    """The titles of the source document, as sentences."""
    source = (shared_data.parent / "seeds" / "001_677e8df177813e51.txt").read_text(encoding="utf-8")
    titles = re.findall(r"^#### Scenario: (.+)$", source, re.MULTILINE)
    names = ["test_" + re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_") for title in titles]
    assert len(names) == 35
    assert [name for name in names if name not in globals()] == []
