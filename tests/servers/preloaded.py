"""Runs `toolscript` commands, and servers for tests, in forks of one process that has imported what they need.

The imports of a gateway take 3 s of processor time; a fork has them already. `python -m tests.servers.preloaded SOCKET`
prints one line of JSON when it is ready, and ends with its input. `preloaded_command.py` asks it for a command and
looks to its caller as the command itself would: its streams, signals and exit code are those of the command.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.fixtures.limits import extend_limits
from tests.servers.processes import run_server

VARIABLE = "TOOLSCRIPT_TEST_PRELOADED"
# What commands import before they are done, also where the package imports it late: the client of MCP servers and the
# embedded index alone take 1 s. None of them may start a thread: a fork has only the thread that forks.
MODULES = """
    anyio._backends._asyncio httpcore httpcore2 httpx mcp.server.mcpserver numpy.random rich._emoji_codes rich.console
    uvicorn.lifespan.on uvicorn.loops.auto uvicorn.protocols.http.httptools_impl
    toolscript.adapters.files.reader toolscript.adapters.json_schema.checker toolscript.adapters.mcp.client
    toolscript.adapters.observability.prometheus toolscript.adapters.qdrant.edge toolscript.adapters.sql.sqlite
    toolscript.adapters.tokens.jwt toolscript.surfaces.cli.client.completion toolscript.surfaces.cli.main
    toolscript.surfaces.cli.client.remote_gateway toolscript.surfaces.http.guard toolscript.surfaces.http.server
    toolscript.surfaces.mcp.pipe_server toolscript.surfaces.mcp.remote_changes
    toolscript.surfaces.cli.commands.documents toolscript.surfaces.cli.commands.gateway
    toolscript.surfaces.cli.commands.knowledge toolscript.surfaces.cli.commands.mcp
    toolscript.surfaces.cli.commands.search toolscript.surfaces.cli.commands.tools
""".split()


def build_command(module: str) -> list[str]:
    """The beginning of a command line that runs the module in a process: preloaded where `run_preloaded` is used."""
    if address := os.environ.get(VARIABLE):
        return [sys.executable, "-I", "-S", str(Path(__file__).with_name("preloaded_command.py")), address, module]
    return [sys.executable, "-m", module]


def toolscript_command() -> list[str]:
    return build_command("toolscript")


@contextmanager
def run_preloaded() -> Iterator[str]:
    """Runs the process until the block ends, and yields the address of its socket."""
    with TemporaryDirectory(prefix="preloaded-") as folder:
        address = str(Path(folder, "socket"))
        command = [sys.executable, "-m", "tests.servers.preloaded", address]
        with run_server("The process that runs commands", command) as ready:
            yield ready["address"]


def _wait_for_command(address: str) -> dict[str, Any] | None:
    """Returns in each fork what to run, and None in the process itself when its input ends."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        sys.stdout.write(json.dumps({"address": address}) + "\n")
        sys.stdout.flush()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the watching processes
        while sys.stdin.fileno() not in select.select([server.fileno(), sys.stdin.fileno()], [], [])[0]:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                return _watch_command(connection)
            connection.close()
    return None


def _watch_command(connection: socket.socket) -> dict[str, Any]:
    """Returns in a fork of its own what the caller wants to run. Here it waits for the end of that fork, to report its
    exit code; it kills the fork when the caller is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rw") as lines:
        request: dict[str, Any] = json.loads(lines.readline())
        ended, never_written = os.pipe()  # closed by the end of the fork; programs that it starts do not inherit it
        pid = os.fork()
        if pid == 0:
            return request | {"streams": streams}
        os.close(never_written)
        for each in (*streams, 0, 1, 2):
            os.close(each)
        lines.write(f"{pid}\n")
        lines.flush()
        if ended not in select.select([connection.fileno(), ended], [], [])[0]:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        try:
            lines.write(f"{os.waitstatus_to_exitcode(status)}\n")
            lines.flush()
        finally:
            os._exit(0)


def _run(command: dict[str, Any]) -> None:
    """Runs the command in this process, as `python -m` would."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background without it
    for number, stream in enumerate(command["streams"]):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=is_unbuffered)  # type: ignore[union-attr]
    sys.argv = [command["module"], *command["arguments"]]
    sys.orig_argv = [sys.executable, *command["command"]]
    code: object = None
    try:
        runpy.run_module(command["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    if code is None or isinstance(code, int):
        _end(code or 0)
    sys.exit(str(code))


def _end(code: int) -> None:
    """Ends the process as Python does, without taking all modules apart, which copies 140 MB and takes 0.5 s."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = 120
    os._exit(code)


def main() -> None:
    for module in MODULES:
        importlib.import_module(module)
    extend_limits(pytest.MonkeyPatch(), only_services=True)
    gc.collect()
    gc.freeze()
    if command := _wait_for_command(sys.argv[1]):
        _run(command)


if __name__ == "__main__":
    main()
