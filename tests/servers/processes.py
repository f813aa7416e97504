"""Runs a server for tests in a process of its own."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]


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
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                process.wait()
                errors.seek(0)
                raise ServerFailed(f"{name} could not start: {errors.read().strip()}\n{advice}".rstrip())
            yield json.loads(line)
        finally:
            if kill:
                process.kill()
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
