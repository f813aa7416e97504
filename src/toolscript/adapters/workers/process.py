"""Worker processes: for work that a hostile input could make endless, because a process can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import IO

import toolscript

CLOSE_SECONDS = 1.0


async def start_worker(module: str, *arguments: str, stdin: IO[bytes] | int = PIPE) -> Process:
    """Starts `main()` of a module in another process, with its standard output as a pipe and nothing of our own
    environment: it may hold API keys."""
    code = f"from {module} import main; main()"
    # Only what Python needs to find the code.
    paths = [str(Path(toolscript.__file__).parents[1]), *(each for each in sys.path if each)]
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-P", "-B", "-c", code, *arguments),
        stdin=stdin,
        stdout=PIPE,
        stderr=DEVNULL,
        env={**kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUTF8": "1"},
    )


async def stop_process(process: Process) -> None:
    """Kills the process if it still runs, and waits for its end."""
    if process.returncode is None and sys.platform != "win32":
        # Before Python 3.12.9 asyncio's own `kill` could take the status of a process that had just ended away from
        # whoever waits for it, who then logs an unknown child process.
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    elif process.returncode is None:
        process.kill()
    await process.communicate()
    await close_stdin(process)


async def close_stdin(process: Process) -> None:
    """Closes the standard input of a process that has ended. What could not be written is dropped.

    asyncio before Python 3.11.4 passes the BrokenPipeError of such a pipe to the exception handler of the event loop
    unless somebody waits for its end.
    """
    if process.stdin is None:
        return
    process.stdin.close()
    with suppress(OSError):  # also TimeoutError: a child of the process may keep the pipe open
        async with asyncio.timeout(CLOSE_SECONDS):
            await asyncio.shield(process.stdin.wait_closed())  # cancelled, it would fail when the pipe ends later


def describe_exit(code: int) -> str:
    """`exited with code 3` or `killed by SIGSEGV`."""
    return f"exited with code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
