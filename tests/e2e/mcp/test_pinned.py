"""Pinned tools of real servers: over HTTP, and over pipes to the same gateway."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent, Tool

from tests.servers.preloaded import toolscript_command
from tests.servers.real import real_servers

# tests/surfaces/mcp/test_tool_list.py shows the same with scripted servers, and test_profiles.py that each pipe has its
# own profile.
pytestmark = [pytest.mark.req("G-14", "G-08"), pytest.mark.extended]

TIMEOUT_SECONDS = 120.0
PROFILES = {
    "default": {"pinned": ["everything__get-sum", "filesystem__read_*"]},
    "reader": {"allow": {"servers": ["filesystem"]}, "readOnly": True, "pinned": ["*"]},
}
SERVERS = ("everything", "filesystem")


def run_mcp(folder: Path, *options: str) -> StdioServerParameters:
    """The command of an agent, in the folder of a configuration with two real servers."""
    file = folder / "servers.json"
    if not file.exists():
        servers = {name: spec for name, spec in real_servers(folder).items() if name in SERVERS}
        file.write_text(json.dumps({"mcpServers": servers, "profiles": PROFILES}))
    command, *arguments = toolscript_command()
    given = ["--config", str(file), "--data-dir", str(folder / "data"), *options]
    variables = {**os.environ, "TOOLSCRIPT_SEARCH_MODEL": "hashed-64"}
    return StdioServerParameters(command=command, args=[*arguments, "mcp", "--linger", "0", *given], env=variables)


async def list_when_ready(client: Client, servers: Sequence[str] = SERVERS) -> dict[str, Tool]:
    """The tools, once the gateway in another process knows those servers."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            tools = {tool.name: tool for tool in (await client.list_tools(cache_mode="refresh")).tools}
            described = tools["search_tools"].description or ""
            if all(f"{server} (" in described for server in servers):
                return tools
            await asyncio.sleep(0.1)


async def read_text(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


async def test_agents_see_and_call_the_pinned_tools_of_their_profile(
    tmp_path: Path,
) -> None:
    async with Client(run_mcp(tmp_path), mode="legacy") as first:
        tools = await list_when_ready(first)
        url = json.loads((tmp_path / "data" / "gateway.json").read_text())["url"]
        async with (
            Client(run_mcp(tmp_path), mode="legacy") as forwarded,
            Client(run_mcp(tmp_path, "--profile", "reader")) as reader,
            Client(f"{url}/mcp") as over_http,
        ):
            for client in (forwarded, over_http):
                assert await list_when_ready(client) == tools
            for client in (first, forwarded, over_http):
                assert "7" in await read_text(client, "everything__get-sum", a=3, b=4)
                assert await read_text(client, "filesystem__read_text_file", path="hello.txt") == "Hello from a file.\n"
                assert "no such tool" in await read_text(client, "filesystem__write_file", path="a", content="b")
            reads = await list_when_ready(reader, ["filesystem"])
            assert "filesystem__read_text_file" in reads
            assert not {"everything__get-sum", "filesystem__write_file"} & reads.keys()
            assert "everything" not in (reads["search_tools"].description or "")
            assert "no such tool" in await read_text(reader, "everything__get-sum", a=3, b=4)
    pinned = [name for name in tools if "__" in name]
    assert pinned[0] == "everything__get-sum"
    assert all(name.startswith("filesystem__read_") for name in pinned[1:])
    assert tools["filesystem__read_text_file"].output_schema is None
    assert tools["filesystem__read_text_file"].annotations is not None
