"""Times how soon `toolscript mcp` answers a client that starts it, and measures its memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from benchmarks.gateway import build_environment, start_gateway, write_tools
from benchmarks.timing import Sample, Table, format_duration, format_number
from tests.servers import make_scripted_spec
from tests.servers.processes import TOOLSCRIPT, end_gateway
from tests.servers.real import PROGRAMS, require_programs
from toolscript.configuration.files import FILE_NAME

ROUNDS = 7
END_TIMEOUT_SECONDS = 60
TIME_SERVER = [str(PROGRAMS / "mcp-server-time"), "--local-timezone", "UTC"]
IMPORT = [sys.executable, "-c", "import mcp.server.lowlevel, mcp.server.stdio"]
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}
NOTE = (
    "The installed command `toolscript mcp` as a client starts it, over stdio: from the start of the process until the "
    "answer to `{method}` has been read. The references are measured in the same rounds, one after the other: "
    "`python -c 'import mcp.server.lowlevel, mcp.server.stdio'` until its end, and `mcp-server-time` until the same "
    "answer. Medians of {rounds} rounds. Except at the first start and beside a running gateway, a gateway has run "
    "with these servers before, and none runs when a round begins."
)
MEMORY_NOTE = (
    "Resident memory of the process that the client has started, after the answer to `tools/list`, without its "
    "children and without the gateway if that is another process. Medians."
)


@dataclass(frozen=True, slots=True)
class Handshake:
    """Seconds from the start of a server until its answers, and its resident memory in bytes after them."""

    initialize: float
    tools: float
    resident: int


@dataclass(frozen=True, slots=True)
class Situation:
    """What is there when a client starts the server."""

    title: str
    servers: Mapping[str, Any]
    tools: int = 0
    """How many tools the catalogue has from an earlier run; without any, each round is the first start ever."""
    is_running: bool = False
    """Whether a gateway runs."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The measurements of a situation."""

    title: str
    ours: list[Handshake] = field(default_factory=list)
    time_server: list[Handshake] = field(default_factory=list)
    imports: list[float] = field(default_factory=list)


async def run(quick: bool) -> list[Table]:
    """Starts `toolscript mcp` and the references by turns in five situations."""
    require_programs()
    rounds = 2 if quick else ROUNDS
    with TemporaryDirectory() as folder:
        place = Path(folder)
        measured = [
            measure_situation(situation, place / str(number), rounds)
            for number, situation in enumerate(_list_situations(place, quick=quick))
        ]
    return build_tables(measured)


def _list_situations(place: Path, *, quick: bool) -> list[Situation]:
    tools = write_tools(place / "tools.jsonl.gz", 300 if quick else None)
    many = 10 if quick else 100
    echo = make_scripted_spec(tools=["echo"])
    one = {"echo": echo}
    return [
        Situation("first start ever", one),
        Situation("a server that never answers", one | {"silent": make_scripted_spec(hang=True)}, 1),
        Situation(f"{many} servers", {f"server{number}": echo for number in range(many)}, many),
        Situation(f"{tools:,} tools", {"big": make_scripted_spec(catalog=str(place / "tools.jsonl.gz"))}, tools),
        Situation("beside a running gateway", one, 1, is_running=True),
    ]


def measure_situation(situation: Situation, folder: Path, rounds: int) -> Rounds:
    """Runs the rounds, after one that does not count. Nothing that was started is left afterwards."""
    measured = Rounds(situation.title)
    with _prepare(situation, folder) as find_home:
        for number in range(rounds + 1):
            home = find_home()
            ours = shake_hands([str(TOOLSCRIPT), "mcp"], home)
            if not situation.is_running:
                end_gateway(home)
            began = time.perf_counter()
            subprocess.run(IMPORT, env=build_environment(home), check=True)
            imports = time.perf_counter() - began
            time_server = shake_hands(TIME_SERVER, home)
            if number:
                measured.ours.append(ours)
                measured.imports.append(imports)
                measured.time_server.append(time_server)
    return measured


@contextmanager
def _prepare(situation: Situation, folder: Path) -> Iterator[Callable[[], Path]]:
    """Yields a function that returns the home folder of the next round."""
    numbers = count()

    def make_home() -> Path:
        home = folder / f"home{next(numbers)}"
        home.mkdir(parents=True)
        (home / FILE_NAME).write_text(json.dumps({"mcpServers": situation.servers}), encoding="utf-8")
        return home

    if not situation.tools:
        yield make_home
        return
    home = make_home()
    try:
        with start_gateway(home, situation.tools):
            if situation.is_running:
                yield lambda: home
        if not situation.is_running:
            yield lambda: home
    finally:
        end_gateway(home)


def shake_hands(command: Sequence[str], home: Path) -> Handshake:
    """Starts a server on stdio as clients do, asks for its tools, and ends it by the end of its input."""
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=home,
        env=build_environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            _request(process, 0, "initialize", INITIALIZE)
            initialize = time.perf_counter() - began
            _send(process, method="notifications/initialized")
            _request(process, 1, "tools/list", {})
            tools = time.perf_counter() - began
            resident = psutil.Process(process.pid).memory_info().rss
        except BaseException:
            process.kill()
            raise
        assert process.stdin is not None
        process.stdin.close()
        process.wait(END_TIMEOUT_SECONDS)
    return Handshake(initialize, tools, resident)


def _send(process: subprocess.Popen[bytes], **message: object) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def _request(process: subprocess.Popen[bytes], number: int, method: str, params: Mapping[str, Any]) -> None:
    """Waits for the result; whatever else the server sends is skipped."""
    assert process.stdout is not None
    _send(process, id=number, method=method, params=params)
    for line in process.stdout:
        message = json.loads(line)
        if message.get("id") == number and "method" not in message:
            assert "result" in message, message
            return
    raise AssertionError(f"{process.args!r} ended before it answered {method}")


def build_tables(measured: Sequence[Rounds]) -> list[Table]:
    """A table for each of the two answers, and one for the memory."""
    columns = ("Situation", "Time", "Slowest", "Import", "Time ÷ import", "mcp-server-time", "Time ÷ mcp-server-time")
    tables = []
    for method, attribute in (("initialize", "initialize"), ("tools/list", "tools")):
        rows = []
        for each in measured:
            ours = Sample([getattr(handshake, attribute) for handshake in each.ours])
            server = Sample([getattr(handshake, attribute) for handshake in each.time_server])
            imports = Sample(each.imports)
            rows.append(
                (
                    each.title,
                    format_duration(ours.p50),
                    format_duration(max(ours.seconds)),
                    format_duration(imports.p50),
                    format_number(ours.p50 / imports.p50),
                    format_duration(server.p50),
                    format_number(ours.p50 / server.p50),
                )
            )
        note = NOTE.format(method=method, rounds=len(measured[0].ours))
        tables.append(Table(f"Time until `{method}` is answered", columns, rows, note))
    memory = [(each.title, _format_memory(each.ours), _format_memory(each.time_server)) for each in measured]
    return [*tables, Table("Memory", ("Situation", "toolscript mcp", "mcp-server-time"), memory, MEMORY_NOTE)]


def _format_memory(handshakes: Sequence[Handshake]) -> str:
    middle = sorted(handshake.resident for handshake in handshakes)[len(handshakes) // 2]
    return f"{middle / 2**20:.0f} MiB"
