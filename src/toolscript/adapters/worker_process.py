"""Worker processes: for work that a hostile input could make endless, because a process can be killed."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import IO

import toolscript


async def start_worker(module: str, *arguments: str, stdin: IO[bytes] | int = PIPE) -> Process:
    """Starts `main()` of a module in another process, with its standard output as a pipe and nothing of our own
    environment, which may hold API keys."""
    code = f"from {module} import main; main()"
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-P", "-B", "-c", code, *arguments),
        stdin=stdin,
        stdout=PIPE,
        stderr=DEVNULL,
        env=_minimal_environment(),
    )


async def stop_worker(worker: Process) -> None:
    """Kills the worker if it still runs, and waits for its end."""
    if worker.returncode is None:
        worker.kill()
    await worker.communicate()


def _minimal_environment() -> dict[str, str]:
    """Only what Python needs to find the code."""
    paths = [str(Path(toolscript.__file__).parents[1]), *(each for each in sys.path if each)]
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUTF8": "1"}
