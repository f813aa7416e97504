"""Pinned tools of real servers: over HTTP, in the process of the agent, and in one that forwards to its gateway."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent, Tool

from tests.servers.preloaded import toolscript_command
from tests.servers.real import real_servers

# tests/surfaces/mcp/test_tool_list.py shows the same with scripted servers, and test_profiles.py that a process which
# forwards has its own profile.
pytestmark = [pytest.mark.req("G-14", "G-08"), pytest.mark.extended]

TIMEOUT_SECONDS = 120.0
PROFILES = {
    "default": {"pinned": ["everything__get-sum", "filesystem__read_*"]},
    "reader": {"allow": {"servers": ["filesystem"]}, "readOnly": True, "pinned": ["*"]},
}


def run_mcp(folder: Path, *options: str) -> StdioServerParameters:
    """The command of an agent, in the folder of a configuration with two real servers."""
    file = folder / "servers.json"
    if not file.exists():
        servers = {name: spec for name, spec in real_servers(folder).items() if name in ("everything", "filesystem")}
        file.write_text(json.dumps({"mcpServers": servers, "profiles": PROFILES}))
    command, *arguments = toolscript_command()
    given = ["--config", str(file), "--data-dir", str(folder / "data"), *options]
    variables = {**os.environ, "TOOLSCRIPT_SEARCH_MODEL": "hashed-64"}
    return StdioServerParameters(command=command, args=[*arguments, "mcp", *given], env=variables)


async def list_when_ready(client: Client) -> dict[str, Tool]:
    """The tools, once the gateway in another process knows its servers."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            tools = {tool.name: tool for tool in (await client.list_tools(cache_mode="refresh")).tools}
            if "filesystem (" in (tools["search_tools"].description or "") and len(tools) > 8:
                return tools
            await asyncio.sleep(0.1)


async def read_text(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


async def test_agents_see_and_call_the_pinned_tools_of_their_profile_whichever_process_is_the_gateway(
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
            reads = await list_when_ready(reader)
            assert "filesystem__read_text_file" in reads
            assert not {"everything__get-sum", "filesystem__write_file"} & reads.keys()
            assert "everything" not in (reads["search_tools"].description or "")
            assert "no such tool" in await read_text(reader, "everything__get-sum", a=3, b=4)
    pinned = [name for name in tools if "__" in name]
    assert pinned[0] == "everything__get-sum"
    assert all(name.startswith("filesystem__read_") for name in pinned[1:])
    assert tools["filesystem__read_text_file"].output_schema is None
    assert tools["filesystem__read_text_file"].annotations is not None
