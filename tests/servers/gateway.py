"""Runs `toolscript gateway start` for tests, in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers.preloaded import toolscript_command


@dataclass(slots=True)
class RunningGateway:
    """A gateway that serves: its address, the file of its log lines, and its output until it served or ended."""

    url: str
    log: Path
    output: str


@contextmanager
def run_gateway(folder: Path, *arguments: str, preloaded: bool = True, **variables: str) -> Iterator[RunningGateway]:
    """Runs a gateway in that folder, on a free port and with a tiny model, until the block ends; it must exit with 0.

    Its environment is that of the test without the settings of searches, with the folder as home, and with these
    variables, which are named without `TOOLSCRIPT_`.
    """
    chosen = {"SEARCH_MODEL": "hashed-64"} | variables
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLSCRIPT_SEARCH")}
    environment |= {f"TOOLSCRIPT_{name}": value for name, value in chosen.items()}
    command = toolscript_command() if preloaded else [sys.executable, "-m", "toolscript"]
    log = folder / "gateway.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, "gateway", "start", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment | {"HOME": str(folder), "PYTHONUNBUFFERED": "1"},
            cwd=folder,
        ) as process,
    ):
        assert process.stdout is not None
        output = ""
        while not (found := re.search(r"Serving (http://\S+)", output)):
            line = process.stdout.readline()
            if not line:
                pytest.fail(output + log.read_text())
            output += line
        gateway = RunningGateway(found[1], log, output)
        try:
            yield gateway
        finally:
            process.send_signal(signal.SIGTERM)
            gateway.output += process.stdout.read()
            status = process.wait(timeout=30)
            assert status == 0, f"the gateway ended with {status}: {log.read_text()}"
