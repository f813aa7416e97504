"""The runner of ingest jobs: retries, crashes, cancelling, and work on one job alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from tests.fixtures.databases import open_memory_database
from tests.fixtures.limits import set_limits
from toolscript.adapters.sql.jobs import SqlJobs
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.files.jobs import FileOutcome, FileState, Job, JobFile, JobState, JobTarget
from toolscript.ports.jobs import FileKey
from toolscript.services.ingest import runner as module
from toolscript.services.ingest.runner import JobRunner
from toolscript.services.support.concurrency import Progress

pytestmark = pytest.mark.req("F-01")

JOB = Job("documents-1", JobTarget.DOCUMENTS, "acme", {}, 0.0)


class Work:
    """Does what a test wants with each file, by its name."""

    def __init__(self, **behaviour: Callable[[JobFile], None]) -> None:
        self.behaviour = behaviour
        self.done: list[str] = []
        self.started = asyncio.Event()
        self.has_done_two = asyncio.Event()

    async def do(self, job: Job, file: JobFile, progress: Progress) -> FileOutcome:
        assert job.id == file.job_id
        progress(1, 2)
        self.started.set()
        if file.name == "endless":
            await asyncio.Event().wait()
        if behave := self.behaviour.get(file.name):
            behave(file)
        self.done.append(file.name)
        if len(self.done) == 2:
            self.has_done_two.set()
        return FileOutcome(added=1)


@pytest.fixture
async def store() -> AsyncIterator[SqlJobs]:
    database = open_memory_database()
    yield SqlJobs(database)
    await database.close()


async def start(store: SqlJobs, *names: str) -> None:
    await store.create(JOB)
    await store.add_files(JOB.id, [JobFile(JOB.id, n, name, f"/{name}") for n, name in enumerate(names)])


async def test_each_file_is_worked_on_and_a_bad_one_does_not_stop_the_others(store: SqlJobs) -> None:
    def refuse(_: JobFile) -> None:
        raise Invalid("damaged")

    def crash(_: JobFile) -> None:
        raise ZeroDivisionError("a bug")

    await start(store, "a", "bad", "b", "bug", "c")
    work = Work(bad=refuse, bug=crash)
    await JobRunner(store, work, place="here").run_job(JOB.id)
    assert sorted(work.done) == ["a", "b", "c"]
    job = await store.get_job(JOB.id)
    assert (job.state, job.counts.files) == (JobState.DONE, {FileState.DONE: 3, FileState.FAILED: 2})
    failed = await store.list_files(JOB.id, limit=9, states=[FileState.FAILED])
    assert [file.outcome.problem for file in failed] == ["damaged", "ZeroDivisionError: a bug"]


async def test_a_file_waits_while_something_is_unavailable_and_fails_after_some_attempts(
    store: SqlJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, job_lease=2.0**40)
    attempts: list[int] = []

    def fail_twice(file: JobFile) -> None:
        attempts.append(file.attempts)
        if file.attempts < 3:
            raise Unavailable("the index does not answer")

    def always_fail(file: JobFile) -> None:
        raise Unavailable("the model is gone")

    await start(store, "flaky", "never")
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 20.0  # instead of waiting
        return now

    async with asyncio.timeout(60):
        await JobRunner(store, Work(flaky=fail_twice, never=always_fail), place="here", clock=tick).run_job(JOB.id)
    flaky, never = await store.list_files(JOB.id, limit=9)
    assert (flaky.state, attempts) == (FileState.DONE, [1, 2, 3])
    assert (never.state, never.outcome.problem) == (FileState.FAILED, "the model is gone")


async def test_a_file_that_another_attempt_still_lets_go_of_is_not_claimed_and_forgotten(
    store: SqlJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, job_lease=2.0**40)

    class SlowToAnswer(SqlJobs):
        has_claimed = asyncio.Event()

        async def claim(self, *args: Any, **named: Any) -> list[tuple[Job, JobFile]]:
            claimed = await store.claim(*args, **named)
            self.has_claimed.set()
            return claimed

        async def postpone(self, worker: str, file: JobFile, *, until: float) -> None:
            await store.postpone(worker, file, until=0.0)
            self.has_claimed.clear()
            runner.wake()
            await self.has_claimed.wait()

    def fail_once(file: JobFile) -> None:
        if file.attempts == 1:
            raise Unavailable("the index does not answer")

    await start(store, "flaky")
    runner = JobRunner(SlowToAnswer(store._database), Work(flaky=fail_once), place="here")
    async with asyncio.timeout(60):
        await runner.run_job(JOB.id)
    (file,) = await store.list_files(JOB.id, limit=1)
    assert (file.state, file.attempts) == (FileState.DONE, 2)


async def test_a_late_answer_about_the_leases_stops_no_newer_attempt(
    store: SqlJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, job_lease=2.0**40)
    set_limits(monkeypatch, job_renewal=0.001)
    is_renewing, is_postponed, is_second, may_end = (asyncio.Event() for _ in range(4))

    class SlowToAnswer(SqlJobs):
        async def renew(self, worker: str, steps: Mapping[FileKey, tuple[int, int]], *, until: float) -> set[FileKey]:
            if is_postponed.is_set():
                return await store.renew(worker, steps, until=until)
            is_renewing.set()
            await is_postponed.wait()
            own = await store.renew(worker, steps, until=until)
            await is_second.wait()
            asyncio.get_running_loop().call_later(0.01, may_end.set)
            return own

        async def postpone(self, worker: str, file: JobFile, *, until: float) -> None:
            await store.postpone(worker, file, until=0.0)
            is_postponed.set()

    class TwoAttempts:
        async def do(self, job: Job, file: JobFile, progress: Progress) -> FileOutcome:
            if file.attempts == 1:
                await is_renewing.wait()
                raise Unavailable("the index does not answer")
            is_second.set()
            await may_end.wait()
            return FileOutcome(added=1)

    await start(store, "flaky")
    async with asyncio.timeout(60):
        await JobRunner(SlowToAnswer(store._database), TwoAttempts(), place="here").run_job(JOB.id)
    (file,) = await store.list_files(JOB.id, limit=1)
    assert (file.state, file.attempts) == (FileState.DONE, 2)


async def test_a_file_that_stops_every_process_is_given_up(store: SqlJobs) -> None:
    await start(store, "bomb")
    for _ in range(module.MAX_ATTEMPTS):
        await store.claim("killed", "here", limit=1, now=0.0, until=0.0)
    work = Work()
    await JobRunner(store, work, place="here").run_job(JOB.id)
    (file,) = await store.list_files(JOB.id, limit=1)
    assert (file.state, work.done) == (FileState.FAILED, [])
    assert "attempts ended without a result" in file.outcome.problem


async def test_what_a_killed_process_left_is_continued_at_once_by_one_that_is_alone(store: SqlJobs) -> None:
    await start(store, "a", "b")
    await store.claim("killed", "here", limit=2, now=0.0, until=2**40)
    work = Work()
    runner = JobRunner(store, work, place="here")
    await runner.start(alone=True)
    async with asyncio.timeout(30):
        await work.has_done_two.wait()
    await runner.close()


async def test_a_cancelled_job_stops_here_and_in_other_processes(
    store: SqlJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, job_renewal=0.01)
    for stops_itself in (True, False):
        await start(store, "endless")
        work = Work()
        runner = JobRunner(store, work, place="here")
        running = asyncio.create_task(runner.run_job(JOB.id))
        async with asyncio.timeout(60):
            await work.started.wait()
        await store.cancel(JOB.id)
        if stops_itself:
            runner.stop_job(JOB.id)
        async with asyncio.timeout(30):
            await running
        assert (await store.get_job(JOB.id)).counts.files == {FileState.CANCELLED: 1}
        await store.remove_old(before=1.0)


async def test_a_runner_that_stops_gives_its_files_back_and_has_made_no_attempt(store: SqlJobs) -> None:
    await start(store, "endless")
    for _ in range(module.MAX_ATTEMPTS + 1):
        work = Work()
        runner = JobRunner(store, work, place="here")
        await runner.start(alone=False)
        async with asyncio.timeout(60):
            await work.started.wait()
        (file,) = await store.list_files(JOB.id, limit=1)
        assert (file.attempts, runner.find_steps(file)) == (1, (1, 2))
        await runner.close()
        (file,) = await store.list_files(JOB.id, limit=1)
        assert (file.state, file.attempts) == (FileState.WAITING, 0)


@pytest.mark.parametrize("is_of_one_job", [False, True])
async def test_a_runner_that_stops_gives_back_what_the_store_is_about_to_lease_to_it(
    store: SqlJobs, is_of_one_job: bool
) -> None:
    has_begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def claim(*args: Any, **named: Any) -> list[tuple[Job, JobFile]]:
        has_begun.set()
        await may_go_on.wait()
        return await store.claim(*args, **named)

    class GoesOn(SqlJobs):
        """Does, as a thread would, what nobody waits for any more."""

        claiming: asyncio.Task[list[tuple[Job, JobFile]]]

        async def claim(self, *args: Any, **named: Any) -> list[tuple[Job, JobFile]]:
            self.claiming = asyncio.create_task(claim(*args, **named))
            return await asyncio.shield(self.claiming)

    await start(store, "endless")
    slow = GoesOn(store._database)
    runner = JobRunner(slow, Work(), place="here")
    async with asyncio.timeout(60):
        if is_of_one_job:
            stopping = asyncio.create_task(runner.run_job(JOB.id))
            await has_begun.wait()
            stopping.cancel()
        else:
            await runner.start(alone=False)
            await has_begun.wait()
            stopping = asyncio.create_task(runner.close())
        await asyncio.wait([stopping], timeout=0.1)
        may_go_on.set()
        await asyncio.wait([stopping, slow.claiming])
    (file,) = await store.list_files(JOB.id, limit=1)
    assert (file.state, file.attempts) == (FileState.WAITING, 0)


async def test_a_fault_of_the_store_that_nobody_expected_does_not_end_the_work(
    store: SqlJobs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_limits(monkeypatch, job_poll=0.001)
    set_limits(monkeypatch, job_renewal=0.001)
    faults = {"claim": ValueError("a row of a newer version"), "renew": KeyError("steps")}

    class FaultyOnce(SqlJobs):
        async def claim(self, *args: Any, **named: Any) -> list[tuple[Job, JobFile]]:
            if error := faults.pop("claim", None):
                raise error
            return await store.claim(*args, **named)

        async def renew(self, *args: Any, **named: Any) -> set[FileKey]:
            if error := faults.pop("renew", None):
                raise error
            return await store.renew(*args, **named)

    await start(store, "endless")
    work = Work()
    runner = JobRunner(FaultyOnce(store._database), work, place="here")
    await runner.start(alone=False)
    async with asyncio.timeout(60):
        await work.started.wait()
        await store.cancel(JOB.id)
        while runner._running:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await runner.close()
    assert {record.message for record in caplog.records if record.exc_info} == {"jobs_not_read", "leases_not_renewed"}
