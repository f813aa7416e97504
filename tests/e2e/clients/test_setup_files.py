"""Clients of other makers list what `toolscript setup` has written into their files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients.real_clients import CLIENTS, MODULES, SYSTEM_PATH, TIMEOUT_SECONDS, find_program
from tests.servers import make_scripted_spec
from tests.servers.processes import TOOLSCRIPT, end_gateway

pytestmark = [
    pytest.mark.req("A-06", "G-21"),
    pytest.mark.extended,
    pytest.mark.skipif(not MODULES.exists(), reason="no MCP clients of other makers: `make test-all` installs them"),
]

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClientConfiguration:
    """A client's file with a server, and how the client lists its servers."""

    file: str
    write: Callable[[Entry], str]
    says_connected: str
    """What the list says of a server that the client could connect to; empty if it only reads the file."""
    pattern: str = ""
    """The program's path below `node_modules`, for a client without a session against a scripted model."""
    words: tuple[str, ...] = ("mcp", "list")
    """What makes the client list its servers."""

    def find_command(self, name: str) -> list[str]:
        """The command that lists the servers. Skips the test where the client is not installed."""
        pattern = self.pattern or next(client.pattern for client in CLIENTS if client.name == name)
        program = find_program(pattern)
        if program is None:
            pytest.skip(f"the lock file of tests/toolchain/clients has no {name} for this system and processor")
        start = [str(Path(sys.prefix, "bin", "node"))] if program.suffix == ".js" else []
        return [*start, str(program), *self.words]


def _write_json(entry: Entry) -> str:
    return json.dumps({"mcpServers": {"scripted": entry}}, indent=2)


def _write_codex(entry: Entry) -> str:
    # A string or a list of strings is written alike in JSON and in TOML.
    lines = [f"{key} = {json.dumps(entry[key])}" for key in ("command", "args")]
    return "\n".join(["# mine", "[mcp_servers.scripted]", *lines, ""])


def _write_opencode(entry: Entry) -> str:
    server = {"type": "local", "command": [entry["command"], *entry["args"]], "enabled": True}
    schema = "https://opencode.ai/config.json"  # it would add that itself
    return f'{{\n  // mine\n  "$schema": "{schema}",\n  "mcp": {json.dumps({"scripted": server})}\n}}\n'


CONFIGURATIONS = {
    "claude-code": ClientConfiguration(".claude.json", _write_json, "Connected"),
    "codex": ClientConfiguration(".codex/config.toml", _write_codex, ""),
    "opencode": ClientConfiguration(".config/opencode/opencode.json", _write_opencode, "connected"),
    "gemini": ClientConfiguration(
        ".gemini/settings.json", _write_json, "Connected", "@google/gemini-cli/bundle/gemini.js"
    ),
    "copilot": ClientConfiguration(".copilot/mcp-config.json", _write_json, "", "@github/copilot-{os}-{cpu}/copilot"),
    "cline": ClientConfiguration(
        ".cline/data/settings/cline_mcp_settings.json",
        _write_json,
        "",
        "@cline/cli-{os}-{cpu}/bin/cline",
        ("config", "mcp"),
    ),
}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    try:
        yield tmp_path
    finally:
        end_gateway(tmp_path)


def run(home: Path, *command: str) -> str:
    names = ("MODELS_FETCH", "DEFAULT_PLUGINS", "LSP_DOWNLOAD")
    variables = {f"OPENCODE_DISABLE_{name}": "1" for name in names} | {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    environment = {"HOME": str(home), "PATH": f"{SYSTEM_PATH}{os.pathsep}{TOOLSCRIPT.parent}", **variables}
    done = subprocess.run(
        command,
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("client", CONFIGURATIONS)
def test_a_client_lists_toolscript_after_a_setup_and_its_own_server_after_an_undo(home: Path, client: str) -> None:
    configuration = CONFIGURATIONS[client]
    command = configuration.find_command(client)
    # Gemini CLI connects in folders that its user trusts.
    (home / ".gemini").mkdir()
    (home / ".gemini" / "trustedFolders.json").write_text(json.dumps({str(home): "TRUST_FOLDER"}), encoding="utf-8")
    file = home / configuration.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(configuration.write(make_scripted_spec(tools=["echo"])), encoding="utf-8")
    before = file.read_bytes()

    run(home, str(TOOLSCRIPT), "setup", "--client", client, "--yes", "--no-measure")
    listed = run(home, *command)
    assert "toolscript" in listed
    assert "scripted" not in listed
    if configuration.says_connected:
        (line,) = [
            line for line in listed.splitlines() if "toolscript" in line and configuration.says_connected in line
        ]
        assert "ailed" not in line
    if client == "claude-code":  # it writes its file while it runs
        return
    run(home, str(TOOLSCRIPT), "setup", "--undo")
    assert file.read_bytes() == before
    assert "scripted" in run(home, *command)
