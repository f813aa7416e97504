"""What every store of ingest jobs promises: each file has one worker at a time, and nothing is lost when one stops."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.jobs import SqlJobs
from toolscript.domain.errors import Conflict, NotFound
from toolscript.domain.files.jobs import FileOutcome, FileStamp, FileState, Job, JobFile, JobState, JobTarget
from toolscript.ports.jobs import JobStore

pytestmark = pytest.mark.req("F-01", "X-02")

JOB = Job("documents-1", JobTarget.DOCUMENTS, "Ümlaut & Co", {"metadata": {"team": "a"}}, 100.5, skipped={"hidden": 2})


@pytest.fixture
def store(database: Database) -> JobStore:
    return SqlJobs(database)


def make_files(job: Job, count: int) -> list[JobFile]:
    return [JobFile(job.id, n, f"f{n}.md", f"/notes/f{n}.md", size=10) for n in range(count)]


async def start(store: JobStore, count: int = 3, job: Job = JOB) -> list[JobFile]:
    files = make_files(job, count)
    await store.create(job)
    await store.add_files(job.id, files)
    return files


async def claim(
    store: JobStore, worker: str = "w", *, limit: int = 9, now: float = 0.0, place: str = ""
) -> list[JobFile]:
    return [file for _, file in await store.claim(worker, place, limit=limit, now=now, until=now + 30)]


async def test_a_job_comes_back_with_its_files_and_counts(store: JobStore) -> None:
    files = await start(store)
    book = replace(files[0], number=3, name="book", path="/book", pages=("/book/a.html", "/book/b.html"))
    await store.add_files(JOB.id, [book])
    found = await store.get_job(JOB.id)
    assert replace(found, counts=JOB.counts) == JOB
    assert (found.counts.files, found.counts.bytes, found.state) == ({FileState.WAITING: 4}, 40, JobState.RUNNING)
    assert await store.list_files(JOB.id, limit=10) == [*files, book]
    assert await store.list_files(JOB.id, after=1, limit=1) == [files[2]]
    assert await store.list_files(JOB.id, limit=10, states=[FileState.DONE]) == []
    assert await store.list_jobs(JOB.target, JOB.owner, limit=5) == [found]
    assert await store.list_jobs(JobTarget.KNOWLEDGE, "", limit=5) == []
    with pytest.raises(NotFound, match="no such job"):
        await store.get_job("documents-2")


async def test_a_file_is_leased_to_one_worker_and_again_when_the_lease_has_ended(store: JobStore) -> None:
    await start(store)
    first = await claim(store, "a", limit=2)
    assert [(file.name, file.state, file.attempts) for file in first] == [
        ("f0.md", FileState.RUNNING, 1),
        ("f1.md", FileState.RUNNING, 1),
    ]
    assert [file.name for file in await claim(store, "b")] == ["f2.md"]
    assert await claim(store, "b", now=29.0) == []
    late = await claim(store, "b", now=31.0)
    assert [(file.name, file.attempts) for file in late] == [("f0.md", 2), ("f1.md", 2), ("f2.md", 2)]


async def test_workers_that_claim_at_the_same_time_get_different_files(store: JobStore) -> None:
    await start(store, 40)
    claimed = await asyncio.gather(*(claim(store, f"w{n}", limit=5) for n in range(12)))
    numbers = [file.number for some in claimed for file in some]
    assert len(numbers) == len(set(numbers))
    numbers += [file.number for file in await claim(store, "last", limit=40)]
    assert sorted(numbers) == list(range(40))


async def test_files_that_a_worker_leaves_out_are_left_to_others(store: JobStore) -> None:
    await start(store)
    await start(store, 1, replace(JOB, id="documents-2"))
    one, two = (JOB.id, 0), (JOB.id, 2)
    claimed = await store.claim("a", "", limit=9, now=0, until=30, without=[one, two])
    assert sorted((file.job_id, file.number) for _, file in claimed) == [(JOB.id, 1), ("documents-2", 0)]
    claimed = await store.claim("a", "", limit=9, now=0, until=30, job_id=JOB.id, without=[one])
    assert [(file.job_id, file.number) for _, file in claimed] == [two]
    assert [file.number for file in await claim(store, "b")] == [0]


async def test_jobs_take_turns(store: JobStore) -> None:
    other = replace(JOB, id="documents-2", owner="other")
    await start(store, 10)
    await start(store, 2, other)
    assert {file.job_id for file in await claim(store, limit=4)} == {JOB.id, other.id}


async def test_paths_of_one_machine_are_left_to_its_workers(store: JobStore) -> None:
    await start(store, 1, replace(JOB, place="laptop"))
    assert await claim(store, place="server") == []
    assert len(await store.claim("w", "server", limit=1, now=0, until=1, job_id=JOB.id)) == 1
    await store.release(place="laptop")
    assert len(await claim(store, place="laptop")) == 1


async def test_only_the_worker_that_has_a_file_can_renew_and_finish_it(store: JobStore) -> None:
    await start(store, 2)
    one, two = await claim(store, "a")
    keys = [(file.job_id, file.number) for file in (one, two)]
    assert await store.renew("a", dict.fromkeys(keys, (3, 7)), until=50.0) == set(keys)
    assert await store.renew("b", {keys[0]: (0, 0)}, until=90.0) == set()
    assert await claim(store, "b", now=49.0) == []
    stored = (await store.list_files(JOB.id, limit=1))[0]
    assert (stored.steps_done, stored.steps) == (3, 7)
    outcome = FileOutcome(added=2, changed=1, passages=9, title="T", warnings=("line 3: no", "line 4: no"))
    assert not await store.finish("b", replace(one, state=FileState.DONE, outcome=outcome))
    assert await store.finish("a", replace(one, state=FileState.DONE, outcome=outcome))
    assert await store.finish("a", replace(two, state=FileState.FAILED, outcome=FileOutcome(problem="damaged")))
    done, failed = await store.list_files(JOB.id, limit=10)
    assert (done.outcome, failed.outcome.problem) == (outcome, "damaged")
    counts = (await store.get_job(JOB.id)).counts
    assert counts.files == {FileState.DONE: 1, FileState.FAILED: 1}
    assert (counts.total, counts.bytes_done) == (FileOutcome(added=2, changed=1, passages=9), 20)
    assert (await store.get_job(JOB.id)).state is JobState.DONE


async def test_what_a_stopped_worker_had_waits_again_and_only_a_killed_one_has_made_an_attempt(store: JobStore) -> None:
    await start(store, 2)
    await claim(store, "a", limit=1)
    await claim(store, "killed")
    await store.release(worker="a")
    await store.release(place="")
    assert [(file.name, file.attempts) for file in await claim(store, "b")] == [("f0.md", 1), ("f1.md", 2)]


async def test_a_postponed_file_is_tried_again_later(store: JobStore) -> None:
    await start(store, 1)
    (file,) = await claim(store, "a")
    await store.postpone("a", replace(file, outcome=FileOutcome(problem="no store")), until=60.0)
    assert await claim(store, "b", now=59.0) == []
    (again,) = await claim(store, "b", now=60.0)
    assert (again.attempts, again.outcome.problem) == (2, "no store")


async def test_a_cancelled_job_can_be_resumed(store: JobStore) -> None:
    await start(store)
    (done, _) = await claim(store, "a", limit=2)
    await store.finish("a", replace(done, state=FileState.DONE))
    assert await store.cancel(JOB.id) == 2
    assert (await store.get_job(JOB.id)).state is JobState.CANCELLED
    assert await claim(store, "b", now=99.0) == []
    assert await store.renew("a", {(JOB.id, 1): (1, 2)}, until=200.0) == set()
    with pytest.raises(Conflict, match="cancelled"):
        await store.add_files(JOB.id, make_files(JOB, 1))
    assert await store.resume(JOB.id) == 2
    assert [(file.number, file.attempts) for file in await claim(store, "b")] == [(1, 1), (2, 1)]


async def test_the_content_of_an_upload_is_kept_until_it_is_done(store: JobStore) -> None:
    await store.create(JOB)
    content = bytes(range(256)) * 5
    await store.add_files(JOB.id, [JobFile(JOB.id, 0, "a.pdf", size=len(content))], {0: content})
    assert await store.read_content(JOB.id, 0) == content
    (file,) = await claim(store, "a")
    await store.finish("a", replace(file, state=FileState.DONE))
    with pytest.raises(NotFound):
        await store.read_content(JOB.id, 0)


async def test_old_jobs_are_removed_when_nothing_of_them_is_left_to_do(store: JobStore) -> None:
    await start(store, 1)
    assert await store.remove_old(before=200.0) == 0
    await store.cancel(JOB.id)
    assert await store.remove_old(before=100.0) == 0
    assert await store.remove_old(before=200.0) == 1
    assert await store.list_files(JOB.id, limit=9) == []


async def test_how_a_file_was_is_kept_by_owner_and_path_until_it_is_replaced_or_old(store: JobStore) -> None:
    outcome = FileOutcome(passages=3, title="Of Bées", warnings=("page 2: no text",))
    stamp = FileStamp(JobTarget.DOCUMENTS, "acme", "/notes/ä.md", "s1", {"ä.md": "d1"}, outcome, 100.5)
    other = replace(stamp, owner="other", made={})
    for each in (stamp, other, replace(stamp, target=JobTarget.KNOWLEDGE, owner="")):
        await store.save_stamp(each)
    paths = ["/notes/ä.md", "/notes/none.md"]
    assert await store.get_stamps(JobTarget.DOCUMENTS, "acme", paths) == {stamp.path: stamp}
    assert await store.get_stamps(JobTarget.DOCUMENTS, "acme", []) == {}
    newer = replace(stamp, state="s2", read_at=200.0)
    await store.save_stamp(newer)
    assert await store.get_stamps(JobTarget.DOCUMENTS, "acme", paths) == {stamp.path: newer}
    await store.remove_stamps(before=150.0)
    assert await store.get_stamps(JobTarget.DOCUMENTS, "acme", paths) == {stamp.path: newer}
    assert await store.get_stamps(JobTarget.DOCUMENTS, "other", paths) == {}
