"""The profile of `toolscript mcp --profile`: in the process that is the gateway, and in one that forwards to it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.servers import make_scripted_spec
from tests.servers.preloaded import toolscript_command

pytestmark = pytest.mark.req("G-13", "G-08")

PROFILES = {
    "writers": {"allow": {"tools": ["good__echo"]}},
    "others": {"deny": {"tools": ["good__echo"], "servers": ["none"]}},
}


def run_mcp(folder: Path, profile: str) -> StdioServerParameters:
    file = folder / "servers.json"
    spec = make_scripted_spec(prompts=True, resources=True)
    file.write_text(json.dumps({"mcpServers": {"good": spec}, "profiles": PROFILES}))
    command, *arguments = toolscript_command()
    options = ["--config", str(file), "--data-dir", str(folder / "data"), "--profile", profile]
    variables = {**os.environ, "TOOLSCRIPT_SEARCH_MODEL": "hashed-64"}
    return StdioServerParameters(command=command, args=[*arguments, "mcp", "--linger", "0", *options], env=variables)


async def read_text(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    return str(getattr(result.content[0], "text", ""))


@pytest.mark.extended
async def test_each_agent_sees_the_tools_of_its_profile_whichever_process_is_the_gateway(tmp_path: Path) -> None:
    async with Client(run_mcp(tmp_path, "writers")) as writer, Client(run_mcp(tmp_path, "others")) as other:
        for client, is_writer in [(writer, True), (other, False), (writer, True)]:
            found = await read_text(client, "search_tools", query="good__echo", limit=20)
            assert ("good__echo  " in found) is is_writer
            called = await read_text(client, "call_tool", tool_id="good__echo", arguments={"text": "hello"})
            assert ("no such tool: 'good__echo'" in called) is not is_writer
            assert bool((await client.list_prompts()).prompts) is not is_writer
            assert bool((await client.list_resources()).resources) is not is_writer
