"""Runs MCP clients of other makers without a terminal, each with an empty home folder and a scripted model."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.processes import TOOLSCRIPT
from tests.servers.real import ENVIRONMENT
from tests.servers.scripted_model import MODEL

MODULES = ENVIRONMENT / "clients/node_modules"
SYSTEM_PATH = "/usr/bin:/bin"
PROMPT = "Echo a text."
TIMEOUT_SECONDS = 240
OPERATING_SYSTEM = sys.platform
PROCESSOR = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())

Configure = Callable[[Path, str, Sequence[str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class ClientRun:
    """What a client printed, and how it ended."""

    status: int
    transcript: str
    errors: str


@dataclass(frozen=True, slots=True)
class RealClient:
    """A client: where its program is in the packages of npm, how it is configured and started."""

    name: str
    pattern: str
    """The program's path below `node_modules`, for an operating system and a processor."""
    arguments: tuple[str, ...]
    configure: Configure
    """Writes the configuration into a home folder, for the URL of a model and the command of an MCP server; returns
    environment variables."""

    def find_program(self) -> Path | None:
        """The program itself: what npm links needs a script of its package to be run first."""
        return find_program(self.pattern)

    def run(self, home: Path, model_url: str, server: Sequence[str]) -> ClientRun:
        """Sends the prompt and waits for the end of the client. Raises TimeoutExpired when it does not end."""
        variables = self.configure(home, model_url, server)
        (folder := home / "project").mkdir(exist_ok=True)
        done = subprocess.run(
            [str(self.find_program()), *self.arguments, PROMPT],
            cwd=folder,
            env={"HOME": str(home), "PATH": SYSTEM_PATH, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return ClientRun(done.returncode, done.stdout, done.stderr)


def find_program(pattern: str) -> Path | None:
    """The program of a package of npm, if the package is installed."""
    return next(MODULES.glob(pattern.format(os=OPERATING_SYSTEM, cpu=PROCESSOR)), None)


def run_setup(home: Path, servers: Mapping[str, Any]) -> list[str]:
    """Gives Claude Code the servers and runs `toolscript setup`; returns the command of the server that it writes."""
    file = home / ".claude.json"
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    command = [str(TOOLSCRIPT), "setup", "--yes", "--no-measure"]
    environment = {"HOME": str(home), "PATH": SYSTEM_PATH}
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ((name, entry),) = json.loads(file.read_text(encoding="utf-8"))["mcpServers"].items()
    assert (name, entry["alwaysLoad"]) == ("toolscript", True)
    return [entry["command"], *entry["args"]]


def _configure_claude_code(home: Path, model_url: str, server: Sequence[str]) -> Mapping[str, str]:
    """Its file is as `toolscript setup` has left it; the server's command may be another one."""
    file = home / ".claude.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["mcpServers"]["toolscript"] |= {"command": server[0], "args": server[1:]}
    file.write_text(json.dumps(content), encoding="utf-8")
    variables = {"ANTHROPIC_BASE_URL": model_url, "ANTHROPIC_API_KEY": "none"}
    return variables | {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def _configure_codex(home: Path, model_url: str, server: Sequence[str]) -> Mapping[str, str]:
    (home / ".codex").mkdir(exist_ok=True)
    # A string or a list of strings is written alike in JSON and in TOML.
    (home / ".codex/config.toml").write_text(
        f"""
model = "{MODEL}"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "{model_url}/v1"
wire_api = "responses"

[mcp_servers.toolscript]
command = {json.dumps(server[0])}
args = {json.dumps(server[1:])}
default_tools_approval_mode = "approve"
""",
        encoding="utf-8",
    )
    return {}


def _configure_opencode(home: Path, model_url: str, server: Sequence[str]) -> Mapping[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{model_url}/v1", "apiKey": "none"},
        "models": {MODEL: {"tool_call": True}},
    }
    content = {
        "model": f"scripted/{MODEL}",
        "autoupdate": False,
        "provider": {"scripted": provider},
        "mcp": {"toolscript": {"type": "local", "command": list(server)}},
    }
    (folder := home / ".config/opencode").mkdir(parents=True, exist_ok=True)
    (folder / "opencode.json").write_text(json.dumps(content), encoding="utf-8")
    # It would load its list of models, plugins and language servers from the network.
    names = ("MODELS_FETCH", "DEFAULT_PLUGINS", "LSP_DOWNLOAD")
    return {f"OPENCODE_DISABLE_{name}": "1" for name in names}


ALLOWED = "mcp__toolscript__search_tools,mcp__toolscript__call_tool"
CLIENTS = [
    RealClient(
        "claude-code",
        "@anthropic-ai/claude-code-{os}-{cpu}/claude",
        ("--allowedTools", ALLOWED, "--output-format", "stream-json", "--verbose", "--print"),
        _configure_claude_code,
    ),
    RealClient(
        "codex",
        "@openai/codex-{os}-{cpu}/vendor/*/bin/codex",
        ("exec", "--skip-git-repo-check", "--json"),
        _configure_codex,
    ),
    RealClient("opencode", "opencode-{os}-{cpu}/bin/opencode", ("run", "--format", "json"), _configure_opencode),
]
