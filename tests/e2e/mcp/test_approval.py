"""Approval with `toolscript mcp`: the question reaches the agent of either era, from this process's own gateway or
through another; commands are refused."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

from tests.fixtures.examples import choose
from tests.servers import make_scripted_spec
from tests.servers.preloaded import toolscript_command
from tests.servers.processes import wait_for_end_of_gateway
from tests.servers.real import real_servers

pytestmark = pytest.mark.req("G-05", "G-08", "G-13")

MODES = ["2026-07-28", "legacy"]
VARIABLES = {**os.environ, "TOOLSCRIPT_SEARCH_MODEL": "hashed-64"}
COMMAND_SECONDS = 120


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """Options of commands on a data folder with a server whose tools need approval, and one whose tools do not."""
    careful = make_scripted_spec(tools=["echo"]) | {"approval": "writes"}
    asking = make_scripted_spec(tools=["ask"], modern=True) | {"approval": "destructive"}
    servers = {"careful": careful, "asking": asking, "free": make_scripted_spec(tools=["echo"])}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    return ["--config", str(tmp_path / "servers.json"), "--data-dir", str(tmp_path / "data")]


class Agent:
    """A client whose user allows calls until told otherwise."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.allows = True
        self.questions: list[str] = []

    async def answer(self, _: Any, params: ElicitRequestParams) -> ElicitResult:
        self.questions.append(params.message.partition(" (")[0])
        if not params.message.startswith("Allow "):
            return ElicitResult(action="accept", content={"name": "Ada"})
        return ElicitResult(action="accept", content={"allow": self.allows})

    async def call(self, tool: str, **arguments: Any) -> tuple[Any, str]:
        """The structured result, and the text."""
        result = await self.client.call_tool("call_tool", {"tool_id": tool, "arguments": arguments})
        assert isinstance(result, CallToolResult)
        return result.structured_content, str(getattr(result.content[0], "text", ""))


@asynccontextmanager
async def open_agent(options: list[str], mode: Any) -> AsyncIterator[Agent]:
    command, *arguments = toolscript_command()
    server = StdioServerParameters(command=command, args=[*arguments, "mcp", "--linger", "0", *options], env=VARIABLES)
    agents: list[Agent] = []

    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
        return await agents[0].answer(context, params)

    async with Client(server, mode=mode, elicitation_callback=answer) as client:
        agents.append(Agent(client))
        yield agents[0]


@pytest.mark.extended
@pytest.mark.parametrize("first", choose(MODES, MODES[1]))
@pytest.mark.parametrize("second", choose(MODES, MODES[0]))
async def test_each_question_reaches_the_user_of_its_agent_whichever_process_is_the_gateway(
    options: list[str], first: str, second: str
) -> None:
    async with open_agent(options, first) as owner:
        assert (await owner.call("free__echo", text="a"))[0] == {"text": "a"}
        async with open_agent(options, second) as other:
            for agent in (owner, other):
                assert (await agent.call("careful__echo", text="a"))[0] == {"text": "a"}
                answered, _ = await agent.call("asking__ask")
                assert answered["responses"] == {"name": {"action": "accept", "content": {"name": "Ada"}}}
                assert answered["isMine"]
                assert agent.questions == ["Allow careful__echo", "Allow asking__ask", "Your name?"]
                agent.allows = False
                _, text = await agent.call("careful__echo", text="b")
                assert text.startswith("careful__echo was not called: the user declined it")


def run_command(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, check=False, env=VARIABLES, capture_output=True, timeout=COMMAND_SECONDS)


async def test_commands_are_refused_with_and_without_a_gateway(options: list[str]) -> None:
    command = [*toolscript_command(), "call", "careful__echo", '{"text": "a"}', *options]
    async with open_agent(options, "legacy") as agent:
        assert (await agent.call("careful__echo", text="a"))[0] == {"text": "a"}
        with_gateway = await asyncio.to_thread(run_command, command)
    await asyncio.to_thread(wait_for_end_of_gateway, Path(options[-1]))
    alone = await asyncio.to_thread(run_command, command)
    for finished in (with_gateway, alone):
        assert finished.returncode == 6, finished.stderr
        assert b"careful__echo needs a person's approval before each call" in finished.stderr
        assert b"this caller cannot be asked" in finished.stderr


POLICIES = [("writes", ["create_directory", "write_file"]), ("destructive", ["write_file"])]


@pytest.mark.parametrize(("policy", "needed"), [POLICIES[1], pytest.param(*POLICIES[0], marks=pytest.mark.extended)])
async def test_a_real_server_says_which_of_its_tools_need_approval(
    tmp_path: Path, policy: str, needed: list[str]
) -> None:
    entry = real_servers(tmp_path / "work")["filesystem"] | {"approval": policy}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"disk": entry}}))
    files = Path(entry["args"][-1])
    options = ["--config", str(tmp_path / "servers.json"), "--data-dir", str(tmp_path / "data")]
    async with open_agent(options, "2026-07-28") as agent:
        _, text = await agent.call("disk__read_text_file", path=str(files / "hello.txt"))
        assert text == "Hello from a file.\n"
        await agent.call("disk__create_directory", path=str(files / "new"))
        await agent.call("disk__write_file", path=str(files / "new" / "a.txt"), content="approved")
        agent.allows = False
        await agent.call("disk__write_file", path=str(files / "new" / "a.txt"), content="declined")
        declined = [f"Allow disk__{needed[-1]}"]
        assert agent.questions == [f"Allow disk__{name}" for name in needed] + declined
    assert (files / "new" / "a.txt").read_text() == "approved"
