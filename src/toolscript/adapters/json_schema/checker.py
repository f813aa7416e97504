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
# The part of a call's time for each step: to wait for other checks, to start the worker, to check. The rest is for the
# tool.
SHARE = 0.25
# Other calls wait while a check uses up its time, so that schema is not checked again at once. With large arguments it
# may be their fault.
PAUSE_SECONDS = 60.0
MAX_SMALL_CHARACTERS = 16 * 2**10


class WorkerChecker:
    """Checks arguments in one worker, one check at a time. The worker starts with the first check, and again after it
    was killed."""

    def __init__(self, seconds: float = CHECK_SECONDS) -> None:
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._worker: Process | None = None
        self._paused_until: dict[str, float] = {}

    async def check(self, schema: Schema, arguments: Mapping[str, Any], *, within: float) -> ArgumentProblem | None:
        """The worst problem; None for valid arguments, and for a schema that cannot be used. Raises TimedOut when
        that takes more than a second or a quarter of `within`, and Unavailable when the worker cannot run."""
        reply = await self._ask(schema, arguments, within)
        return ArgumentProblem(reply["field"], reply["message"]) if "message" in reply else None

    async def find_fault(self, schema: Schema, *, within: float) -> str:
        """Why a schema, or a reference within it, cannot be used; empty if all can. Raises as `check` does."""
        return str((await self._ask(schema, {}, within, references=True)).get("unusable", ""))

    async def _ask(
        self, schema: Schema, arguments: Mapping[str, Any], within: float, *, references: bool = False
    ) -> dict[str, Any]:
        digest = hashlib.sha256(json.dumps(schema).encode()).hexdigest()
        self._refuse_paused(digest)
        try:
            async with asyncio.timeout(min(2 * self._seconds, SHARE * within)):
                await self._lock.acquire()
        except TimeoutError:
            raise TimedOut("other checks took too long") from None
        try:
            self._refuse_paused(digest)  # it may be one of those
            return await self._check(digest, schema, arguments, within, references)
        except (OSError, ValueError) as error:
            raise Unavailable(f"arguments cannot be checked: {error}") from error
        finally:
            self._lock.release()

    async def close(self) -> None:
        """Ends the worker."""
        async with self._lock:
            await self._stop()

    async def _check(
        self, digest: str, schema: Schema, arguments: Mapping[str, Any], within: float, references: bool
    ) -> dict[str, Any]:
        worker = self._worker or await self._start(min(START_SECONDS, SHARE * within))
        seconds = min(self._seconds, SHARE * within)
        content, is_done = json.dumps(arguments), False
        request = f'{{"digest": "{digest}", "references": {json.dumps(references)}, "arguments": {content}'
        try:
            async with asyncio.timeout(seconds):
                reply = await _exchange(worker, f"{request}}}")
                if "unknown" in reply:
                    reply = await _exchange(worker, f'{request}, "schema": {json.dumps(schema)}}}')
            is_done = True
        except TimeoutError:
            if len(content) <= MAX_SMALL_CHARACTERS:
                self._pause(digest)
            raise TimedOut(f"the check took longer than {seconds:g} s") from None
        finally:
            if not is_done:  # the worker is busy, dead, or about to send a reply that nobody waits for
                await self._stop()
        return reply

    async def _start(self, seconds: float) -> Process:
        worker = await start_worker("toolscript.adapters.json_schema.worker")
        self._worker = worker
        try:
            async with asyncio.timeout(seconds):
                await _read(worker)
        except TimeoutError:
            await self._stop()
            raise TimedOut(f"the worker did not start within {seconds:g} s") from None
        except BaseException:
            await self._stop()
            raise
        return worker

    async def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker:
            await stop_worker(worker)

    def _refuse_paused(self, digest: str) -> None:
        if self._paused_until.get(digest, 0.0) > time.monotonic():
            raise TimedOut("its schema took too long to check a moment ago")

    def _pause(self, digest: str) -> None:
        now = time.monotonic()
        self._paused_until = {d: until for d, until in self._paused_until.items() if until > now}
        self._paused_until[digest] = now + PAUSE_SECONDS


async def _exchange(worker: Process, request: str) -> dict[str, Any]:
    assert worker.stdin  # noqa: S101
    worker.stdin.write(request.encode() + b"\n")
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
