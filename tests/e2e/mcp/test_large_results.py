"""A large file and a large tree of real servers, over every way into the gateway."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from tests.fixtures.examples import choose
from tests.servers.gateway import run_gateway
from tests.servers.preloaded import toolscript_command
from tests.servers.real import real_servers

pytestmark = pytest.mark.req("G-18", "G-08")

TIMEOUT_SECONDS = 120.0
TOKENS = 2000
LINES = [f"{n}: an ordinary line of a long file" for n in range(50_000)]
LINES[31_415] = "31415: the wombat escaped"
WAYS = choose(["http", "stdio", "forwarded"], "http", "forwarded")  # which is over stdio as well


@dataclass(frozen=True, slots=True)
class Place:
    """A running gateway, and the folder of its files."""

    url: str
    folder: Path

    @asynccontextmanager
    async def connect(self, way: str) -> AsyncIterator[Client]:
        """A client. Over stdio it has a gateway of its own, unless its calls are forwarded to this one."""
        command, *arguments = toolscript_command()
        place = ["--gateway", self.url] if way == "forwarded" else ["--config", str(self.folder / "mcp.json")]
        variables = {
            "TOOLSCRIPT_SEARCH_MODEL": "hashed-64",
            "TOOLSCRIPT_RESULT_TOKENS": str(TOKENS),
            "HOME": str(self.folder),
        }
        arguments += ["mcp", "--linger", "0", *place, "--data-dir", str(self.folder / way)]
        stdio = StdioServerParameters(command=command, args=arguments, env=variables)
        async with Client(f"{self.url}/mcp" if way == "http" else stdio) as client:
            yield client


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("gateway")
    entry = real_servers(folder / "work")["filesystem"]
    files = folder / "work" / "files"
    (files / "long.txt").write_text("\n".join(LINES))
    for number in range(400):
        (files / f"folder-{number % 20}").mkdir(exist_ok=True)
        (files / f"folder-{number % 20}" / f"a-file-with-a-name-{number}.txt").touch()
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"filesystem": entry}}))
    options = ["--config", str(folder / "mcp.json")]
    with run_gateway(folder, *options, DATA_DIR=str(folder / "data"), RESULT_TOKENS=str(TOKENS)) as running:
        yield Place(running.url, folder)


async def call(client: Client, tool: str, arguments: dict[str, Any]) -> list[str]:
    """The texts of a result, once the tool's server is connected."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            result = await client.call_tool(tool, arguments)
            assert isinstance(result, CallToolResult)
            texts = [block.text for block in result.content if isinstance(block, TextContent)]
            if not (result.is_error and "no such tool" in texts[0]):
                assert not result.is_error, texts
                return texts
            await asyncio.sleep(0.1)


def find_handle(text: str) -> str:
    found = re.search(r'read_result\(handle="(r_\w+)"', text)
    assert found, text
    return found[1]


@pytest.mark.extended
@pytest.mark.parametrize("way", WAYS)
async def test_a_long_file_is_cut_searched_and_read(place: Place, way: str) -> None:
    path = str(place.folder / "work" / "files" / "long.txt")
    async with place.connect(way) as client:
        arguments = {"tool_id": "filesystem__read_text_file", "arguments": {"path": path}}
        (text,) = await call(client, "call_tool", arguments)
        assert len(text) < 4 * TOKENS
        assert text.startswith("0: an ordinary line of a long file\n1: ")
        handle = find_handle(text)
        (hit,) = await call(client, "read_result", {"handle": handle, "query": "escaped wombats"})
        assert LINES[31_415] in hit
        page = int(re.findall(r"^\[page=(\d+)\]", hit)[0])
        assert LINES[31_415] in (await call(client, "read_result", {"handle": handle, "page": page}))[0]


@pytest.mark.parametrize("way", WAYS)
async def test_a_large_tree_has_a_shape_and_paths(place: Place, way: str) -> None:
    arguments = {"path": str(place.folder / "work" / "files")}
    async with place.connect(way) as client:
        called = {"tool_id": "filesystem__directory_tree", "arguments": arguments}
        (text,) = await call(client, "call_tool", called)
        assert "[Shape: [22 of {" in text
        handle = find_handle(text)
        names = [(await call(client, "read_result", {"handle": handle, "path": f"{n}.name"}))[0] for n in range(22)]
        assert sorted(names) == sorted(["hello.txt", "long.txt", *(f"folder-{n}" for n in range(20))])
