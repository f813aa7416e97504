"""Starts Deno so that it can reach nothing: no permissions, no environment, no folder that it could write to."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from toolscript.adapters.workers.process import stop_process
from toolscript.domain.errors import Unavailable

FOLDER = Path(__file__).parent
ENVIRONMENT = {
    # Deno keeps its caches here. Nothing can be made below a device, so it keeps nothing.
    "DENO_DIR": "/dev/null/none" if sys.platform != "win32" else "NUL\\none",
    "DENO_NO_UPDATE_CHECK": "1",
    "NO_COLOR": "1",
}
# Answers of a program are limited far below; what is longer than this comes from a broken process.
MAX_LINE_BYTES = 64 * 2**20
# What Deno maps itself: 570 MB with two cores, and more with each, for the stacks of threads. The process watches its
# own memory; this is for a moment in which it does not get to that.
DENO_DATA_BYTES = 2**30 + (os.cpu_count() or 1) * 2**25
# Their text follows on a line of its own: as a string in JSON it would be read twice.
MESSAGES_WITH_TEXT = frozenset({"call", "result"})
# By these signals V8 ends a process whose heap is full.
OUT_OF_MEMORY = frozenset({signal.SIGTRAP, signal.SIGABRT, signal.SIGILL} if sys.platform != "win32" else ())


@cache
def find_deno() -> str:
    """The path of Deno's program. Raises Unavailable."""
    try:
        from deno import find_deno_bin

        return str(find_deno_bin())
    except (ImportError, FileNotFoundError):
        raise Unavailable("Deno is not installed: pip install 'toolscript[code-typescript]'") from None


async def start_deno(*arguments: str, v8_flags: str, data_bytes: int) -> Process:
    """Starts Deno with pipes, and with limits of the operating system where it has them. Raises Unavailable."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(find_deno(), *arguments),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=ENVIRONMENT | {"DENO_V8_FLAGS": v8_flags},
            cwd=FOLDER.anchor,
            limit=MAX_LINE_BYTES,
            start_new_session=True,  # Ctrl-C in a terminal is for the gateway, which ends its programs itself
        )
    except OSError as error:
        raise Unavailable(f"the sandbox for TypeScript cannot be started: {error}") from error
    if sys.platform == "linux":
        import resource

        limits = {resource.RLIMIT_DATA: data_bytes, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
        for resource_id, maximum in limits.items():
            try:
                resource.prlimit(process.pid, resource_id, (maximum, maximum))
            except (OSError, ValueError):  # it has ended already, or the limit is lower than this
                continue
    return process


class ProgramProcess:
    """A process that runs one program. It loads what it needs while it waits for the program."""

    def __init__(self, process: Process, secret: str, memory_bytes: int) -> None:
        self._process = process
        self._secret = secret.encode()
        self.memory_bytes = memory_bytes

    @classmethod
    async def start(cls, memory_bytes: int) -> ProgramProcess:
        """Starts a process for a program that may use so much memory. Raises Unavailable."""
        megabytes = max(8, memory_bytes // 2**20)
        process = await start_deno(
            *("run", "--quiet", "--no-prompt", "--no-config", "--no-lock", "--no-remote", "--no-npm", "--cached-only"),
            *("--no-code-cache", f"--import-map={FOLDER / 'imports.json'}", str(FOLDER / "host.js")),
            v8_flags=f"--max-old-space-size={megabytes}",
            data_bytes=memory_bytes + DENO_DATA_BYTES,
        )
        started = cls(process, secrets.token_hex(16), memory_bytes)
        await started.send({"secret": started._secret.decode(), "worker": _read_worker()})
        return started

    @property
    def is_running(self) -> bool:
        """Whether it can still take a program."""
        return self._process.returncode is None

    async def send(self, message: Mapping[str, Any], text: str | None = None) -> None:
        """Writes a message, and JSON that belongs to it; waits while the pipe is full. A process that has ended takes
        it silently."""
        assert self._process.stdin  # noqa: S101
        lines = [json.dumps({**message, "has_text": text is not None}), *([] if text is None else [text])]
        self._process.stdin.writelines(line.encode("utf-8", "replace") + b"\n" for line in lines)
        try:
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when the process has ended. Raises ValueError for what is not from our own code."""
        line = await self._read_line()
        if not line:
            return None
        message: dict[str, Any] = json.loads(line)
        if message["kind"] in MESSAGES_WITH_TEXT:
            message["text"] = (await self._read_line()).decode()
        return message

    async def _read_line(self) -> bytes:
        """Empty when the process has ended. Raises ValueError."""
        assert self._process.stdout  # noqa: S101
        line = await self._process.stdout.readline()
        if line and not line.startswith(self._secret):
            raise ValueError("the program wrote to the pipe of its sandbox")
        return line[len(self._secret) : -1]

    async def wait_for_exit(self) -> int:
        """The exit code of the process; below 0 the signal that has ended it."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Kills the process."""
        await stop_process(self._process)


@cache
def _read_worker() -> str:
    return (FOLDER / "worker.js").read_text(encoding="utf-8")
