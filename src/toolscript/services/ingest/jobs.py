"""Starts, shows and cancels ingest jobs."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolscript.domain.documents import SOURCE_FIELD
from toolscript.domain.errors import Forbidden, Invalid, InvalidArguments, NotFound
from toolscript.domain.files.jobs import FileOutcome, FileState, Job, JobFile, JobTarget
from toolscript.domain.files.kinds import FILE_ENDINGS, FileKind
from toolscript.domain.knowledge import BOOK_ENDINGS
from toolscript.ports.jobs import JobStore
from toolscript.services.ingest.finder import EMPTY_NAME, FileFinder, normalize, replace_bytes
from toolscript.services.ingest.reading_order import order_pages
from toolscript.services.ingest.runner import JobRunner
from toolscript.services.ingest.unchanged import UnchangedFiles

KEPT_SECONDS = 7 * 86400.0
# Of a path in an error.
MAX_SHOWN = 80


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """What is to be ingested, and as what."""

    target: JobTarget
    tenant: str = ""
    """Whose documents the files become; empty for knowledge."""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    as_one: bool = False
    """Whether the files of a folder become one source."""
    obeys_ignore_files: bool = True
    max_bytes: int | None = None
    """Larger files of folders are left out."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files of a job, before it starts, and what was left out."""

    files: tuple[JobFile, ...]
    skipped: Mapping[str, int]


class IngestJobs:
    """The jobs of one store."""

    def __init__(
        self,
        store: JobStore,
        runner: JobRunner,
        unchanged: UnchangedFiles,
        *,
        place: str,
        folders: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Every caller may have files of `folders` ingested, on all gateways of the store."""
        self._store = store
        self._runner = runner
        self._unchanged = unchanged
        self._place = place
        self._folders = [Path(os.path.realpath(Path(folder).expanduser())) for folder in folders]
        self._clock = clock

    async def find(self, request: IngestRequest, paths: Sequence[str], *, is_owner: bool) -> FoundFiles:
        """The files below these paths. Raises Forbidden for a path that this caller may not have read: only the owner
        of the data folder may name any path. Raises InvalidArguments for a path that no file can have."""
        for path in paths:
            if "\0" in path:
                raise InvalidArguments(
                    f"invalid path {path[:MAX_SHOWN]!r}: a path has no NUL character", details={"field": "paths"}
                )
        if not is_owner:
            for path in paths:
                self._require_allowed(path)
        return await asyncio.to_thread(find_files, request, paths)

    async def start(self, request: IngestRequest, finds: FoundFiles, *, is_owner: bool) -> Job:
        """Starts a job with these files. Raises Invalid for details that do not fit."""
        check_request(request, finds)
        await self._store.remove_old(self._clock() - KEPT_SECONDS)
        job = Job(
            f"{request.target}-{secrets.token_hex(12)}",
            request.target,
            request.tenant,
            request.details,
            self._clock(),
            place=self._place if is_owner else "",
            skipped=finds.skipped,
        )
        files = await self._unchanged.mark(job, [replace(file, job_id=job.id) for file in finds.files])
        await self._store.create(job)
        await self._store.add_files(job.id, files)
        self._runner.wake()
        return await self._store.get_job(job.id)

    async def upload(
        self, request: IngestRequest, files: Sequence[tuple[str, bytes]], job_id: str | None = None
    ) -> Job:
        """Starts a job with uploaded files, given by name and content, or adds them to one. Raises NotFound, and
        Conflict for a job that was cancelled."""
        if job_id is None:
            job = await self.start(request, FoundFiles((), {}), is_owner=False)
        else:
            job = await self.get(job_id, request.target, request.tenant)
        first = sum(job.counts.files.values())
        rows = [JobFile(job.id, first + n, name, size=len(content)) for n, (name, content) in enumerate(files)]
        contents = {row.number: content for row, (_, content) in zip(rows, files, strict=True)}
        await self._store.add_files(job.id, rows, contents)
        self._runner.wake()
        return await self._store.get_job(job.id)

    async def get(self, job_id: str, target: JobTarget, owner: str) -> Job:
        """A job of this owner. Raises NotFound."""
        job = await self._store.get_job(job_id)
        if (job.target, job.owner) != (target, owner):
            raise NotFound(f"no such job: {job_id!r}", details={"job": job_id})
        return job

    async def list_jobs(self, target: JobTarget, owner: str, *, limit: int) -> list[Job]:
        """The newest jobs of an owner."""
        return await self._store.list_jobs(target, owner, limit=limit)

    async def list_files(
        self, job: Job, *, after: int = -1, limit: int, states: Sequence[FileState] | None = None
    ) -> list[JobFile]:
        """Files of a job, ordered by number."""
        return await self._store.list_files(job.id, after=after, limit=limit, states=states)

    def find_steps(self, file: JobFile) -> tuple[int, int]:
        """How far a file is: done and all steps."""
        return self._runner.find_steps(file)

    async def cancel(self, job: Job) -> Job:
        """Cancels what is not done. What is done stays."""
        await self._store.cancel(job.id)
        self._runner.stop_job(job.id)
        return await self._store.get_job(job.id)

    async def resume(self, job: Job) -> Job:
        """Continues a cancelled job, and tries again what failed."""
        await self._store.resume(job.id)
        self._runner.wake()
        return await self._store.get_job(job.id)

    def _require_allowed(self, path: str) -> None:
        real = Path(os.path.realpath(path))
        if not Path(path).is_absolute() or not any(real.is_relative_to(folder) for folder in self._folders):
            allowed = ", ".join(map(str, self._folders)) or "none"
            raise Forbidden(
                f"the gateway may not read {path!r} for you: upload the file, or name an absolute path below a folder "
                f"of TOOLSCRIPT_INGEST_FOLDERS ({allowed})",
                details={"field": "paths", "allowed": [str(folder) for folder in self._folders]},
            )


def find_target(job_id: str) -> JobTarget:
    """What the files of a job become, if it exists: its id begins with that."""
    return JobTarget.KNOWLEDGE if job_id.startswith(f"{JobTarget.KNOWLEDGE}-") else JobTarget.DOCUMENTS


def find_files(request: IngestRequest, paths: Sequence[str]) -> FoundFiles:
    """The files below these paths, as files of a job that does not exist yet. Unreadable files have failed already."""
    finder = FileFinder(BOOK_ENDINGS if request.as_one else FILE_ENDINGS, request.include, request.exclude)
    finder.obeys_ignore_files, finder.max_bytes = request.obeys_ignore_files, request.max_bytes
    job_files: list[JobFile] = []
    names: dict[str, str] = {}
    for path in paths:
        files = finder.find_files([path])
        root = str(normalize(Path(path)))
        if request.as_one and files and Path(path).is_dir():
            pages = tuple(map(str, order_pages(list(files))))
            job_files.append(JobFile("", 0, root, root, pages, sum(map(_measure, pages))))
            continue
        if not files and (path or EMPTY_NAME) not in finder.unreadable:
            expected = " ".join(BOOK_ENDINGS) if request.as_one else ", ".join(FileKind)
            finder.unreadable[path] = f"no readable files; expected {expected}"
        for file, name in files.items():
            if str(file) in names.values():
                continue  # below two of the paths
            if other := names.get(name):
                problem = f"its id {name!r} is already used by {other}: give a folder above both"
                job_files.append(_build_failed(str(file), problem))
                continue
            names[name] = str(file)
            job_files.append(JobFile("", 0, name, str(file), size=_measure(str(file))))
    job_files += [_build_failed(name, problem) for name, problem in finder.unreadable.items()]
    numbered = (replace(file, number=number) for number, file in enumerate(job_files))
    return FoundFiles(tuple(numbered), dict(finder.skipped))


def check_request(request: IngestRequest, finds: FoundFiles) -> None:
    """Raises Invalid for details that do not fit the files."""
    if SOURCE_FIELD in (request.details.get("metadata") or {}):
        raise Invalid(
            f"invalid metadata {SOURCE_FIELD}: it is the file that a document was read from; use another name",
            details={"field": "metadata"},
        )
    readable = sum(file.state is FileState.WAITING for file in finds.files)
    if (request.details.get("title") or request.details.get("authors")) and readable > 1:
        raise Invalid(
            f"title and authors are for one source, not for {readable}: ingest one at a time, or make one source of a "
            "folder (--as-one)",
            details={"field": "title" if request.details.get("title") else "authors"},
        )


def _build_failed(path: str, problem: str) -> JobFile:
    name = replace_bytes(path)
    return JobFile("", 0, name, name, state=FileState.FAILED, outcome=FileOutcome(problem=problem))


def _measure(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
