"""The store of ingest jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from toolscript.domain.files.jobs import FileStamp, FileState, Job, JobFile, JobTarget

FileKey = tuple[str, int]
"""A file's job and number."""


class JobStore(Protocol):
    """Jobs, their files, and who works on them. A worker leases files for some seconds and renews the lease while it
    works, so that another one continues when it crashes. Times are in seconds since 1970.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.jobs import SqlJobs
    >>> async def claim():
    ...     database = Database("sqlite://")
    ...     store = SqlJobs(database)
    ...     await store.create(Job("j", JobTarget.DOCUMENTS, "acme", {}, created_at=0))
    ...     await store.add_files("j", [JobFile("j", 0, "a.md", path="/notes/a.md")])
    ...     claimed = [await store.claim("worker", "", limit=9, now=1, until=31) for _ in range(2)]
    ...     await database.close()
    ...     return [[file.name for _, file in some] for some in claimed]
    >>> asyncio.run(claim())
    [['a.md'], []]
    """

    async def create(self, job: Job) -> None:
        """Adds a job without files."""

    async def add_files(
        self, job_id: str, files: Sequence[JobFile], contents: Mapping[int, bytes] | None = None
    ) -> None:
        """Adds files to a job, with the contents of uploaded files by number. Raises NotFound for an unknown job, and
        Conflict for a cancelled one."""

    async def get_job(self, job_id: str) -> Job:
        """The job with its counts. Raises NotFound."""

    async def list_jobs(self, target: JobTarget, owner: str, *, limit: int) -> list[Job]:
        """The newest jobs of an owner, with their counts."""

    async def list_files(
        self, job_id: str, *, after: int = -1, limit: int, states: Sequence[FileState] | None = None
    ) -> list[JobFile]:
        """Files with greater numbers than `after`, ordered by number."""

    async def claim(
        self,
        worker: str,
        place: str,
        *,
        limit: int,
        now: float,
        until: float,
        job_id: str | None = None,
        without: Collection[FileKey] = (),
    ) -> list[tuple[Job, JobFile]]:
        """Leases files that wait, of jobs for any place or this one (or of one job), to this worker; none of `without`.
        Jobs take turns. The jobs have no counts."""

    async def renew(self, worker: str, steps: Mapping[FileKey, tuple[int, int]], *, until: float) -> set[FileKey]:
        """Renews the worker's leases and records how far the files are; returns the files that are still its own:
        others were cancelled, or another worker has them."""

    async def finish(self, worker: str, file: JobFile) -> bool:
        """Records state and outcome of a leased file, and deletes its content if it is done; returns whether the worker
        had it."""

    async def postpone(self, worker: str, file: JobFile, *, until: float) -> None:
        """Gives a file back that is to be tried again after this time."""

    async def release(self, *, worker: str | None = None, place: str | None = None) -> None:
        """Gives back the files of a worker that stops, without counting an attempt. Or the files of every worker in a
        place, killed perhaps by such a file: that counts as an attempt."""

    async def read_content(self, job_id: str, number: int) -> bytes:
        """The content of an uploaded file. Raises NotFound."""

    async def cancel(self, job_id: str) -> int:
        """Cancels the files that are not done; returns how many. Raises NotFound."""

    async def resume(self, job_id: str) -> int:
        """Lets cancelled and failed files wait again; returns how many. Raises NotFound."""

    async def remove_old(self, before: float) -> int:
        """Deletes jobs, created before this time, that have nothing left to do; returns how many."""

    async def save_stamp(self, stamp: FileStamp) -> None:
        """Keeps how a file was, in place of what was kept of that path."""

    async def get_stamps(self, target: JobTarget, owner: str, paths: Sequence[str]) -> dict[str, FileStamp]:
        """What is kept of these files, by path, where this owner has ingested them."""

    async def remove_stamps(self, before: float) -> None:
        """Forgets how files were that were read before this time."""
