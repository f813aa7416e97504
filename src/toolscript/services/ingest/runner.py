"""Works on the files of ingest jobs: a few at a time, leased from the store.

Every gateway runs one. What a crashed process leaves is taken over when its leases end; doing a file twice changes
nothing, because what is stored already is neither embedded nor written again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from toolscript.domain.errors import ToolscriptError, Unavailable
from toolscript.domain.files.jobs import FileOutcome, FileState, Job, JobFile
from toolscript.domain.limits import current_limits
from toolscript.ports.jobs import FileKey, JobStore
from toolscript.services.ingest.file_work import FileWork

FILES_AT_ONCE = 3
# A file that stopped so many processes, or found no store or model so often, is not tried again by itself.
MAX_ATTEMPTS = 5
MAX_RETRY_SECONDS = 60.0

log = logging.getLogger(__name__)


class JobRunner:
    """Leases files and works on them."""

    def __init__(self, store: JobStore, work: FileWork, *, place: str, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._work = work
        self._place = place
        self._clock = clock
        self._worker = f"{place}/{os.getpid()}/{secrets.token_hex(4)}"
        self._running: dict[FileKey, asyncio.Task[None]] = {}
        self._steps: dict[FileKey, tuple[int, int]] = {}
        self._changed = asyncio.Event()
        self._claiming: asyncio.Future[list[tuple[Job, JobFile]]] | None = None
        self._loops: list[asyncio.Task[None]] = []

    async def start(self, *, alone: bool) -> None:
        """Starts to work in the background. `alone`: no other process can be at work on this place's files, so that
        leases of one that was killed can be taken over at once."""
        if alone:
            with suppress(Unavailable):
                await self._store.release(place=self._place)
        self._loops = [asyncio.create_task(self._run_forever(), name="ingest jobs"), self._start_renewing()]

    async def run_job(self, job_id: str) -> None:
        """Works on one job until nothing of it is left to do. Raises Unavailable when the store fails."""
        renewing = self._start_renewing()
        try:
            while await self._start_some(job_id) or self._running or (await self._store.get_job(job_id)).counts.is_open:
                await self._wait(current_limits().job_renewal)
        finally:
            renewing.cancel()
            await self.close()

    def wake(self) -> None:
        """Looks for work now."""
        self._changed.set()

    def stop_job(self, job_id: str) -> None:
        """Stops the work on a job that was cancelled. What is done stays."""
        for key, task in self._running.items():
            if key[0] == job_id:
                task.cancel()

    def find_steps(self, file: JobFile) -> tuple[int, int]:
        """How far a file is, as of now if this process works on it."""
        return self._steps.get((file.job_id, file.number), (file.steps_done, file.steps))

    async def close(self) -> None:
        """Stops, and gives back what is not done."""
        tasks = [*self._loops, *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._claiming:  # a store that has begun goes on: what it leases has to be released, too
            await asyncio.gather(self._claiming, return_exceptions=True)
        if tasks or self._claiming:
            with suppress(Unavailable):
                await self._store.release(worker=self._worker)
        self._loops = []

    def _start_renewing(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._renew_forever(), name="leases of ingest jobs")

    async def _run_forever(self) -> None:
        while True:
            try:
                await self._start_some()
            except ToolscriptError as error:
                log.warning("jobs_not_read", extra={"reason": error.message})
            except Exception:
                log.exception("jobs_not_read")
            await self._wait(current_limits().job_poll)

    async def _start_some(self, job_id: str | None = None) -> int:
        """Starts to work on files that wait; returns how many."""
        free = FILES_AT_ONCE - len(self._running)
        if not free:
            return 0
        now = self._clock()
        # A file of its own can be free while the task that gives it back ends, or after this process slept for longer
        # than its lease.
        self._claiming = asyncio.ensure_future(
            self._store.claim(
                self._worker,
                self._place,
                limit=free,
                now=now,
                until=now + current_limits().job_lease,
                job_id=job_id,
                without=list(self._running),
            )
        )
        claimed = await asyncio.shield(self._claiming)
        for job, file in claimed:
            key = (file.job_id, file.number)
            self._steps[key] = (0, 0)
            self._running[key] = asyncio.create_task(self._work_on(job, file), name=f"ingest {file.name}")
            self._running[key].add_done_callback(partial(self._forget, key))
        return len(claimed)

    def _forget(self, key: FileKey, task: asyncio.Task[None]) -> None:
        del self._running[key], self._steps[key]
        self._changed.set()
        if not task.cancelled() and (error := task.exception()):
            log.warning("file_not_recorded", extra={"job": key[0], "file": key[1], "reason": str(error)})

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def _work_on(self, job: Job, file: JobFile) -> None:
        def note(done: int, total: int) -> None:
            self._steps[file.job_id, file.number] = (done, total)

        try:
            if file.attempts > MAX_ATTEMPTS:
                problem = file.outcome.problem or f"{MAX_ATTEMPTS} attempts ended without a result: the process stopped"
                await self._fail(file, problem)
                return
            outcome = await self._work.do(job, file, note)
        except Unavailable as error:
            await self._try_later(file, error)
        except ToolscriptError as error:
            await self._fail(file, error.message)
        except Exception as error:
            log.exception("file_not_ingested", extra={"job": job.id, "file": file.name})
            await self._fail(file, f"{type(error).__name__}: {error}")
        else:
            await self._store.finish(self._worker, replace(file, state=FileState.DONE, outcome=outcome))

    async def _try_later(self, file: JobFile, error: Unavailable) -> None:
        if file.attempts >= MAX_ATTEMPTS:
            await self._fail(file, error.message)
            return
        log.warning("file_postponed", extra={"file": file.name, "reason": error.message})
        delay = min(2.0 ** (file.attempts - 1), MAX_RETRY_SECONDS)
        noted = replace(file, outcome=FileOutcome(problem=error.message))
        await self._store.postpone(self._worker, noted, until=self._clock() + delay)

    async def _fail(self, file: JobFile, problem: str) -> None:
        await self._store.finish(
            self._worker, replace(file, state=FileState.FAILED, outcome=FileOutcome(problem=problem))
        )

    async def _renew_forever(self) -> None:
        """Renews leases, and stops the work on files that were cancelled through another gateway."""
        while True:
            await asyncio.sleep(current_limits().job_renewal)
            renewed = dict(self._running)
            if not renewed:
                continue
            try:
                until = self._clock() + current_limits().job_lease
                kept = await self._store.renew(self._worker, dict(self._steps), until=until)
            except ToolscriptError as error:
                log.warning("leases_not_renewed", extra={"reason": error.message})
                continue
            except Exception:
                log.exception("leases_not_renewed")
                continue
            for key in renewed.keys() - kept:
                renewed[key].cancel()  # not a newer attempt at the same file
