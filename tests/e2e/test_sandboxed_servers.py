"""A hostile server in a sandbox of bubblewrap: no attempt to get out succeeds, and the server still answers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from tests.fixtures.sandboxes import require_bwrap
from tests.fixtures.waiting import until
from tests.servers import hostile, make_scripted_server, make_scripted_spec
from tests.servers.gateway_process import is_alive
from toolscript.adapters.mcp.client import McpServers
from toolscript.adapters.mcp.launch import HOME, HOMES, build_launch
from toolscript.adapters.mcp.stdio import stdio_transport
from toolscript.domain.errors import Unavailable
from toolscript.domain.servers import SandboxKind, SandboxSpec, ServerSpec, Transport
from toolscript.ports.servers import ToolServer
from toolscript.surfaces.cli.main import run

pytestmark = [pytest.mark.req("O-04"), pytest.mark.slow]

TIMEOUT_SECONDS = 60.0
SECRET = "a secret of the user"


@pytest.fixture(autouse=True)
def _bwrap() -> None:
    require_bwrap()


@dataclass(frozen=True)
class Place:
    """A machine to break into: what a server may not reach, and two folders that it is given."""

    home: Path
    data: Path
    notes: Path
    out: Path
    port: int
    sockets: tuple[str, str]
    bystander: int

    @property
    def key(self) -> Path:
        return self.home / ".ssh" / "id_ed25519"

    def describe(self, *, network: bool = False, **about: Any) -> ServerSpec:
        folders = ((str(Path(hostile.__file__)), False), (str(self.notes), False), (str(self.out), True))
        return ServerSpec(
            "hostile",
            Transport.STDIO,
            sys.executable,
            args=("-I", "-S", hostile.__file__, f"mark={self.home.name}"),
            env={"TOKEN": "S3cretT0ken"},
            sandbox=SandboxSpec(SandboxKind.BWRAP, network, folders),
            **about,
        )

    def find_processes(self) -> list[psutil.Process]:
        """The processes of the hostile server, bubblewrap's among them."""
        mark = f"mark={self.home.name}"
        return [p for p in psutil.process_iter() if is_alive(p) and mark in _read_command(p)]


def _read_command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline()) or [""]
    except psutil.Error:
        return [""]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        # Paths of sockets are short.
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandbox-")))
        (home / ".ssh").mkdir()
        (home / ".ssh" / "id_ed25519").write_text(SECRET)
        data, notes, out = home / "data", tmp_path / "notes", tmp_path / "out"
        for folder in (data, notes, out):
            folder.mkdir()
        (data / "local.key").write_text(SECRET)
        (notes / "today").write_text("buy milk")
        names = (str(data / "gateway.sock"), f"@{home.name}")
        for name in names:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(name.replace("@", "\0", 1))
            listener.listen()
        web = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        bystander = subprocess.Popen(["sleep", "600"])
        stack.callback(bystander.wait)
        stack.callback(bystander.kill)
        yield Place(home, data, notes, out, web.getsockname()[1], names, bystander.pid)


class Hostile:
    """The connected server."""

    def __init__(self, server: ToolServer, tool: Any) -> None:
        self._server, self._tool = server, tool

    async def attempt(self, name: str, aim: object = "") -> dict[str, Any]:
        result = await self._server.call(self._tool, {"attempt": name, "aim": str(aim)}, within=TIMEOUT_SECONDS)
        assert isinstance(result.structured, dict)
        return result.structured


@asynccontextmanager
async def connect(place: Place, spec: ServerSpec) -> AsyncIterator[Hostile]:
    async with McpServers(data=place.data).connect(spec, within=TIMEOUT_SECONDS) as server:
        (tool,) = (await server.list_items()).items
        yield Hostile(server, tool)


def list_reachable(place: Place) -> list[tuple[str, object]]:
    """What every program of the user reaches."""
    return [
        ("read", place.key),
        ("read", place.home),
        ("read", place.data / "local.key"),
        ("read", f"/proc/{os.getpid()}/environ"),
        ("write", place.data / "escaped"),
        ("write", place.notes / "escaped"),
        ("connect", f"127.0.0.1:{place.port}"),
        *(("connect", name) for name in place.sockets),
        ("send_signal", os.getpid()),
        ("see", os.getpid()),
        ("link", f"{place.key} {place.out}/link"),
    ]


async def test_no_attempt_of_a_hostile_server_gets_out(place: Place) -> None:
    attempts = [
        *list_reachable(place),
        *(("read", path) for path in ("/etc/shadow", "/var", "/run", "/sys", "/proc/1/root/etc/shadow")),
        *(("read", path) for path in (place.data, place.data / HOMES)),
        *(("write", path) for path in ("/escaped", "/usr/escaped", "/etc/escaped", "/home/escaped")),
        *(("open_for_writing", f"/proc/{name}") for name in ("sys/kernel/core_pattern", "sysrq-trigger")),
        ("connect", "192.0.2.1:9"),
        ("trace", place.bystander),
        *((name, path) for name in ("mount", "remount") for path in (place.out, place.notes, HOME)),
        *(("remount", path) for path in ("/", "/usr", "/proc")),
        ("make_namespace", ""),
        ("make_device", f"{HOME}/disk"),
        ("link", f"{place.key} {HOME}/link"),
    ]
    async with connect(place, place.describe()) as server:
        outcomes = [(name, aim, await server.attempt(name, aim)) for name, aim in attempts]
        allowed = [
            await server.attempt("read", place.notes / "today"),
            await server.attempt("write", place.out / "result"),
            await server.attempt("write", f"{HOME}/kept"),
        ]
    assert [(name, str(aim)) for name, aim, outcome in outcomes if outcome["escaped"]] == []
    assert [outcome["escaped"] for outcome in allowed] == [True, True, True]
    assert (place.out / "result").read_text() == "written"
    assert not [path for path in (place.notes, place.data) for _ in path.glob("escaped")]
    async with connect(place, place.describe()) as server:  # its home is there the next time
        assert (await server.attempt("read", f"{HOME}/kept"))["text"] == "written"


async def test_without_a_sandbox_the_same_attempts_succeed(place: Place) -> None:
    async with connect(place, replace(place.describe(), sandbox=None)) as server:
        outcomes = [(str(aim), await server.attempt(name, aim)) for name, aim in list_reachable(place)]
    assert [(aim, outcome["text"]) for aim, outcome in outcomes if not outcome["escaped"]] == []


async def test_with_network_the_loopback_of_the_machine_is_reached_and_no_file(place: Place) -> None:
    async with connect(place, place.describe(network=True)) as server:
        assert (await server.attempt("connect", f"127.0.0.1:{place.port}"))["escaped"]
        assert not (await server.attempt("connect", place.sockets[0]))["escaped"]
        assert not (await server.attempt("read", place.key))["escaped"]


async def test_no_process_is_left_and_no_secret_is_in_the_list_of_processes(place: Place) -> None:
    async with connect(place, place.describe()) as server:
        await server.attempt("leave_a_daemon", f"{HOME}/heartbeat")
        await until(lambda: len(place.find_processes()) >= 4)  # two of bubblewrap, the server and its daemon
        processes = place.find_processes()
        assert not [p.pid for p in processes if "S3cretT0ken" in " ".join(_read_command(p))]
    await until(lambda: not any(is_alive(process) for process in processes))


async def test_a_link_that_the_server_leaves_shows_nothing_at_the_next_start(place: Place) -> None:
    work = place.out / "work"
    work.mkdir()
    async with connect(place, place.describe(cwd=str(work))) as server:
        assert (await server.attempt("write", "here"))["escaped"]
    (work / "here").unlink()
    work.rmdir()
    work.symlink_to(place.home / ".ssh")
    with pytest.raises(Unavailable, match="bwrap: "):
        async with connect(place, place.describe(cwd=str(work))):
            pytest.fail("started in a folder of the user")


def test_no_server_writes_a_file_that_toolscript_would_obey(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that could write `.toolscript.json` would have the gateway start any program."""
    spec = place.describe()
    folders = [hostile.__file__, f"{place.out}:rw"]
    entry = {"command": spec.command, "args": list(spec.args), "sandbox": {"kind": "bwrap", "folders": folders}}
    file = place.notes / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"hostile": entry}}), encoding="utf-8")
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_MODEL", "hashed-64")
    options = ["list-servers", "--json", "--config", str(file), "--data-dir", str(place.data)]
    for folder, state in ((place.home, "ready"), (place.out, "failed")):
        monkeypatch.chdir(folder)
        listed = CliRunner().invoke(run, options)
        assert state in listed.output, (folder, listed.output)
    assert f"Toolscript reads or runs {place.out}" in listed.output


def test_the_command_line_says_what_is_in_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = make_scripted_spec(tools=["echo"])
    entry["sandbox"] = {"kind": "bwrap", "folders": [entry["args"][2]]}
    file = tmp_path / ".toolscript.json"
    file.write_text(json.dumps({"mcpServers": {"own": entry}}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_MODEL", "hashed-64")
    options = ["--config", str(file), "--data-dir", str(tmp_path / "data")]
    listed = CliRunner().invoke(run, ["list-servers", *options])
    assert listed.exit_code == 0, listed.output
    assert "bwrap, no network" in listed.output
    added = CliRunner().invoke(run, ["servers", "add", "--dry-run", "--config", str(tmp_path / "new.json"), str(file)])
    assert "  in a sandbox: bwrap, no network\n" in added.output


async def test_a_server_that_ends_by_itself_says_why(tmp_path: Path) -> None:
    spec = make_scripted_server(crash=True)
    shown = replace(spec, sandbox=SandboxSpec(SandboxKind.BWRAP, folders=((spec.args[2], False),)))
    with pytest.raises(Unavailable) as plain:
        async with McpServers().connect(spec, within=TIMEOUT_SECONDS):
            pytest.fail("connected")
    with pytest.raises(Unavailable) as sandboxed:
        async with McpServers(data=tmp_path).connect(shown, within=TIMEOUT_SECONDS):
            pytest.fail("connected")
    assert sandboxed.value.message == plain.value.message


async def test_a_server_has_time_to_finish_what_it_does(tmp_path: Path) -> None:
    script = 'trap "echo bye >$HOME/bye; exit" TERM; echo ready >&2; while :; do sleep 600 & wait; done'
    spec = ServerSpec("slow", Transport.STDIO, "sh", ("-c", script), sandbox=SandboxSpec(SandboxKind.BWRAP))
    lines: list[str] = []
    async with stdio_transport(spec, 1000, lines.append, data=tmp_path):
        await until(lambda: "ready" in lines)
    (home,) = (tmp_path / HOMES).iterdir()
    assert (home / "bye").read_text() == "bye\n"


async def test_the_server_ends_with_a_gateway_that_is_killed(place: Place) -> None:
    spec = replace(
        place.describe(), command="sh", args=("-c", "trap '' TERM HUP; sleep 600", f"mark={place.home.name}")
    )
    launch = build_launch(spec, place.data)
    start = "import subprocess, sys; subprocess.run(sys.argv[1:], start_new_session=True)"
    words = (sys.executable, "-I", "-S", "-c", start, *launch.words)
    gateway = await asyncio.create_subprocess_exec(*words, env=launch.environment)
    try:
        await until(lambda: any("/sh" in _read_command(p)[0] for p in place.find_processes()))
        processes = [p for p in place.find_processes() if p.pid != gateway.pid]
    finally:
        gateway.kill()
        await gateway.wait()
    await until(lambda: not any(is_alive(process) for process in processes))
