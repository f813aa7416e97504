"""From the files of two clients to one server, and back: `toolscript setup` in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from tests.fixtures.serving import ALWAYS_LISTED
from tests.servers import make_scripted_spec
from tests.servers.preloaded import toolscript_command

pytestmark = pytest.mark.req("G-21")

TIMEOUT_SECONDS = 120


class Machine:
    """A home folder in which commands run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        own = {k: v for k, v in os.environ.items() if not k.startswith(("TOOLSCRIPT_", "XDG_", "CLAUDE_"))}
        preloaded = {k: v for k, v in os.environ.items() if k.startswith("TOOLSCRIPT_TEST_")}
        self.environment = own | preloaded | {"HOME": str(home), "TOOLSCRIPT_SEARCH_MODEL": "hashed-64"}

    def write(self, name: str, content: str) -> Path:
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode())
        return file

    def list_backups(self) -> list[Path]:
        return list(self.home.rglob("*.backup-*"))

    def run(self, *arguments: str) -> dict[str, Any]:
        command = [*toolscript_command(), *arguments, "--json"]
        done = subprocess.run(
            command,
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def text_of(result: Any) -> str:
    assert isinstance(result, CallToolResult)
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


@pytest.mark.extended
async def test_servers_move_behind_toolscript_work_there_and_come_back_byte_for_byte(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    first = make_scripted_spec(tools=["echo", "env"], env={"SHARED": "of cursor"})
    second = make_scripted_spec(tools=["env"], env={"SHARED": "of vs code"})
    cursor = machine.write(".cursor/mcp.json", json.dumps({"mcpServers": {"helper": first}}))
    editor = machine.write(
        ".config/Code/User/mcp.json",
        f'{{\r\n\t// two\r\n\t"servers": {{\r\n\t\t"helper": {json.dumps(second)},\r\n\t}},\r\n}}\r\n',
    )
    before = {file: file.read_bytes() for file in (cursor, editor)}

    report = machine.run("setup", "--yes")
    assert [client["before"]["tools"] for client in report["clients"]] == [2, 1]
    (own,) = json.loads(cursor.read_text())["mcpServers"].values()
    assert Path(own["command"]).is_absolute()

    environment = {k: v for k, v in machine.environment.items() if k in {"HOME", "PATH", "TOOLSCRIPT_SEARCH_MODEL"}}
    parameters = StdioServerParameters(command=own["command"], args=own["args"], env=environment, cwd=tmp_path)
    async with Client(parameters) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert [name for name in listed if name != "search_skills"] == [tool.name for tool in ALWAYS_LISTED]
        found = text_of(await client.call_tool("search_tools", {"query": "returns an environment variable"}))
        assert {"helper__env", "helper-vscode__env"} <= set(found.split())
        for tool, value in {"helper__env": "of cursor", "helper-vscode__env": "of vs code"}.items():
            arguments = {"tool_id": tool, "arguments": {"name": "SHARED"}}
            assert value in text_of(await client.call_tool("call_tool", arguments))

    assert {file["action"] for file in machine.run("setup", "--undo")["files"]} == {"restored", "removed"}
    assert {file: file.read_bytes() for file in before} == before
    assert not (tmp_path / ".toolscript.json").exists()
    assert machine.list_backups() == []
