"""Checks arguments in a worker process that can be killed: a schema of two kilobytes can keep a validator busy for
ever, and nothing can interrupt it within a process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from asyncio.subprocess import Process
from collections.abc import Mapping
from typing import Any

from toolscript.adapters.worker_process import start_worker, stop_worker
from toolscript.domain.catalog import Schema
from toolscript.domain.errors import TimedOut, Unavailable
from toolscript.ports.schemas import ArgumentProblem

CHECK_SECONDS = 1.0
START_SECONDS = 10.0
# Other calls wait while a check uses up its time, so that schema is not checked again at once.
PAUSE_SECONDS = 60.0


class WorkerChecker:
    """Checks arguments in one worker, one check at a time. The worker starts with the first check, and again after it
    was killed."""

    def __init__(self, seconds: float = CHECK_SECONDS) -> None:
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._worker: Process | None = None
        self._paused_until: dict[str, float] = {}

    async def check(self, schema: Schema, arguments: Mapping[str, Any], *, within: float) -> ArgumentProblem | None:
        """The worst problem; None for valid arguments, and for a schema that cannot be used. Raises TimedOut after
        `within` or a second of checking, whichever is first, and Unavailable when the worker cannot run."""
        digest = hashlib.sha256(json.dumps(schema).encode()).hexdigest()
        if self._paused_until.get(digest, 0.0) > time.monotonic():
            raise TimedOut("its schema took too long to check a moment ago")
        try:
            async with asyncio.timeout(within), self._lock:
                reply = await self._check(digest, schema, arguments)
        except TimeoutError:
            raise TimedOut(f"the check took longer than {min(within, self._seconds):g} s") from None
        except (OSError, ValueError) as error:
            raise Unavailable(f"arguments cannot be checked: {error}") from error
        return ArgumentProblem(reply["field"], reply["message"]) if "message" in reply else None

    async def close(self) -> None:
        """Ends the worker."""
        async with self._lock:
            await self._stop()

    async def _check(self, digest: str, schema: Schema, arguments: Mapping[str, Any]) -> dict[str, Any]:
        worker = self._worker or await self._start()
        request = {"digest": digest, "arguments": arguments}
        is_done = False
        try:
            async with asyncio.timeout(self._seconds) as limit:
                reply = await _exchange(worker, request)
                if "unknown" in reply:
                    reply = await _exchange(worker, {**request, "schema": schema})
            is_done = True
        finally:
            if limit.expired():
                self._pause(digest)
            if not is_done:  # the worker is busy, dead, or about to send a reply that nobody waits for
                await self._stop()
        return reply

    async def _start(self) -> Process:
        worker = await start_worker("toolscript.adapters.json_schema.worker")
        self._worker = worker
        try:
            async with asyncio.timeout(START_SECONDS):
                await _read(worker)
        except BaseException:
            await self._stop()
            raise
        return worker

    async def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker:
            await stop_worker(worker)

    def _pause(self, digest: str) -> None:
        now = time.monotonic()
        self._paused_until = {d: until for d, until in self._paused_until.items() if until > now}
        self._paused_until[digest] = now + PAUSE_SECONDS


async def _exchange(worker: Process, request: Mapping[str, Any]) -> dict[str, Any]:
    assert worker.stdin  # noqa: S101
    worker.stdin.write(json.dumps(request).encode() + b"\n")
    await worker.stdin.drain()
    return await _read(worker)


async def _read(worker: Process) -> dict[str, Any]:
    """Reads a reply. Raises ValueError when the worker has ended."""
    assert worker.stdout  # noqa: S101
    line = await worker.stdout.readline()
    if not line:
        raise ValueError("the worker ended")
    reply: dict[str, Any] = json.loads(line)
    return reply
