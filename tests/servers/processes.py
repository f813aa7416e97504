"""Runs a server for tests in a process of its own, and finds ports for such servers."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from toolscript.pipe.place import GATEWAY, lock_folder

TOOLSCRIPT = Path(sys.prefix, "bin", "toolscript")
REPOSITORY = Path(__file__).parents[2]
# Systems give ports from 32768 on to whoever asks for any, which every connection does. Each process of a run with `-n`
# chooses from some of the ports below.
FIRST_PORT, PORTS_OF_PROCESS, MAX_PROCESSES = 20_000, 1_500, 8


class ServerFailed(RuntimeError):
    """A server for tests did not start. The message says why, and what to do."""


@contextmanager
def run_server(name: str, command: Sequence[str], advice: str = "", *, kill: bool = False) -> Iterator[dict[str, Any]]:
    """Runs the command until the block ends, and yields the line of JSON that it prints when it is ready.

    The command must end when its standard input ends: it then ends with the tests, however those end. `kill` ends it
    without a chance to finish what it does. Raises ServerFailed with what the command wrote to stderr when it ends
    before it is ready.
    """
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=REPOSITORY
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                process.wait()
                errors.seek(0)
                raise ServerFailed(f"{name} could not start: {errors.read().strip()}\n{advice}".rstrip())
            yield json.loads(line)
        finally:
            if kill:
                process.kill()
                process.stdout.read()  # a preloaded command ends a moment after the process that stands for it
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def find_processes(home: Path) -> list[psutil.Process]:
    """The processes whose home folder it is."""
    return [each for each in psutil.process_iter(["environ"]) if (each.info["environ"] or {}).get("HOME") == str(home)]


def end_gateway(home: Path, timeout_seconds: float = 60) -> None:
    """Stops the gateway of that home folder, also one that is only starting, and waits until no process has this home.
    Raises ServerFailed with the processes that do not end by themselves, after it has killed them."""
    deadline = time.monotonic() + timeout_seconds
    while left := find_processes(home):
        if time.monotonic() > deadline:
            lines = [" ".join(process.cmdline()) for process in left]
            for process in left:
                process.kill()
            raise ServerFailed(f"processes that did not end: {lines}")
        environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
        # It fails while the gateway has not said where it is.
        subprocess.run([TOOLSCRIPT, "gateway", "stop"], cwd=home, env=environment, capture_output=True, check=False)
        psutil.wait_procs(left, timeout=1)


def wait_for_end_of_gateway(data: Path) -> None:
    """Waits until no gateway holds the data folder: one without clients takes a moment to end."""
    while (lock := lock_folder(str(data), GATEWAY)) is None:
        time.sleep(0.05)
    os.close(lock)


def find_free_port() -> int:
    """A port of this machine that stays free until the test uses it: no other process gets it by chance."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % MAX_PROCESSES
    while True:
        port = FIRST_PORT + process * PORTS_OF_PROCESS + random.randrange(PORTS_OF_PROCESS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
