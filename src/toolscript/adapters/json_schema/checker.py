"""Checks arguments in a worker process that can be killed: a schema of two kilobytes can keep a validator busy for
ever, and nothing can interrupt it within a process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Mapping
from typing import Any

from toolscript.adapters.json_schema.plain_schemas import accept
from toolscript.adapters.workers.process import start_worker, stop_process
from toolscript.domain.catalog import Schema
from toolscript.domain.errors import TimedOut, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.ports.schemas import ArgumentProblem

# Processor time of the worker, so that a busy machine fails no check. A check takes a few milliseconds.
CHECK_SECONDS = 1.0
# Elapsed time, for a worker that hardly gets a processor; where nothing counts processor time, it is what counts.
MAX_CHECK_SECONDS = 20.0
# Other calls wait while a check uses up its time, so that schema is not checked again at once. With large arguments it
# may be their fault.
PAUSE_SECONDS = 60.0
MAX_SMALL_CHARACTERS = 16 * 2**10
COUNTS_PROCESSOR_TIME = hasattr(signal, "SIGPROF")  # not on Windows


class WorkerChecker:
    """Checks arguments in one worker, one check at a time. The worker starts with `prepare` or the first check, and at
    once again after it was killed."""

    def __init__(self, seconds: float = CHECK_SECONDS) -> None:
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._worker: asyncio.Task[Process] | None = None
        """Done when the worker is ready for checks."""
        self._paused_until: dict[str, float] = {}

    async def prepare(self) -> None:
        """Starts the worker. Raises Unavailable."""
        await self._get_worker()

    async def check(self, schema: Schema, arguments: Mapping[str, Any]) -> ArgumentProblem | None:
        """The worst problem; None for valid arguments, and for a schema that cannot be used. Raises TimedOut when
        that takes too long, and Unavailable when the worker cannot run."""
        if accept(schema, arguments):
            return None
        reply = await self._ask(schema, arguments)
        return ArgumentProblem(reply["field"], reply["message"]) if "message" in reply else None

    async def find_fault(self, schema: Schema) -> str:
        """Why a schema, or a reference within it, cannot be used; empty if all can. Raises as `check` does."""
        return str((await self._ask(schema, {}, references=True)).get("unusable", ""))

    async def _ask(self, schema: Schema, arguments: Mapping[str, Any], *, references: bool = False) -> dict[str, Any]:
        digest = hashlib.sha256(json.dumps(schema).encode()).hexdigest()
        self._refuse_paused(digest)
        try:
            async with asyncio.timeout(current_limits().argument_check_turn):
                await self._turn.acquire()
        except TimeoutError:
            raise TimedOut("other checks took too long") from None
        try:
            self._refuse_paused(digest)  # it may be one of those
            return await self._check(await self._get_worker(), digest, schema, arguments, references)
        except (OSError, ValueError) as error:
            raise Unavailable(f"arguments cannot be checked: {error}") from error
        finally:
            self._turn.release()

    async def close(self) -> None:
        """Ends the worker."""
        async with self._turn:
            worker, self._worker = self._worker, None
            if worker is None:
                return
            worker.cancel()
            await asyncio.wait([worker])
            if not worker.cancelled() and not worker.exception():
                await stop_process(worker.result())

    async def _check(
        self, worker: Process, digest: str, schema: Schema, arguments: Mapping[str, Any], references: bool
    ) -> dict[str, Any]:
        content, is_done = json.dumps(arguments), False
        request = (
            f'{{"digest": "{digest}", "references": {json.dumps(references)}, "seconds": {self._seconds}, '
            f'"arguments": {content}'
        )
        try:
            async with asyncio.timeout(MAX_CHECK_SECONDS if COUNTS_PROCESSOR_TIME else self._seconds):
                reply = await _exchange(worker, f"{request}}}")
                if "unknown" in reply:
                    reply = await _exchange(worker, f'{request}, "schema": {json.dumps(schema)}}}')
            is_done = True
        except TimeoutError:
            raise self._give_up(digest, content) from None
        except ValueError:
            await stop_process(worker)
            if COUNTS_PROCESSOR_TIME and worker.returncode == -signal.SIGPROF:
                raise self._give_up(digest, content) from None
            raise
        finally:
            if not is_done:  # the worker is busy, dead, or about to send a reply that nobody waits for
                self._start()
                await stop_process(worker)
        return reply

    def _give_up(self, digest: str, content: str) -> TimedOut:
        if len(content) <= MAX_SMALL_CHARACTERS:
            now = time.monotonic()
            self._paused_until = {d: until for d, until in self._paused_until.items() if until > now}
            self._paused_until[digest] = now + PAUSE_SECONDS
        return TimedOut(f"the check took longer than {self._seconds:g} s")

    async def _get_worker(self) -> Process:
        """The worker, ready for a check. Raises Unavailable."""
        worker = self._worker
        if worker is None or (worker.done() and (worker.exception() or worker.result().returncode is not None)):
            worker = self._start()
        try:
            return await asyncio.shield(worker)
        except TimeoutError:
            seconds = current_limits().argument_check_start
            raise Unavailable(f"the worker that checks arguments did not start within {seconds:g} s") from None
        except (OSError, ValueError) as error:
            raise Unavailable(f"arguments cannot be checked: {error}") from error

    def _start(self) -> asyncio.Task[Process]:
        self._worker = worker = asyncio.create_task(_start_ready())
        worker.add_done_callback(lambda done: done.cancelled() or done.exception())  # the next check starts it again
        return worker

    def _refuse_paused(self, digest: str) -> None:
        if self._paused_until.get(digest, 0.0) > time.monotonic():
            raise TimedOut("its schema took too long to check a moment ago")


async def _start_ready() -> Process:
    """Starts a worker, and waits until it can check."""
    worker = await start_worker("toolscript.adapters.json_schema.worker")
    try:
        async with asyncio.timeout(current_limits().argument_check_start):
            await _read(worker)
    except BaseException:
        await stop_process(worker)
        raise
    return worker


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
