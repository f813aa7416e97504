"""Finds the files of a job that are as they were when they were last ingested, by size and times, without reading them.

A file is read again unless its size, inode, time of modification and time of change are the same, it would be read the
same way, and everything that was made of it is still there. Nothing but the system's own clock can set the time of
change, so a program that keeps the time of modification hides nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolscript.domain.files.jobs import FileOutcome, FileStamp, FileState, Job, JobFile, JobTarget
from toolscript.ports.jobs import JobStore
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.knowledge.ingest import IngestKnowledge, parse_details

# File systems keep times in steps of up to two seconds (FAT): within one, a file can change twice and look the same.
SETTLE_SECONDS = 3.0
# A file of more documents than this is read each time: comparing them costs about as much.
MAX_DOCUMENTS = 1_000
KEPT_SECONDS = 90 * 86400.0


@dataclass(frozen=True, slots=True)
class FileLook:
    """How a file looks, before it is read."""

    state: str
    is_settled: bool
    """Whether every later change gives it another state."""
    seen_at: float


class UnchangedFiles:
    """Remembers how files looked, and finds files that look the same."""

    def __init__(
        self,
        store: JobStore,
        documents: IngestDocuments,
        knowledge: IngestKnowledge,
        describe_readers: Callable[[], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`describe_readers` names what decides how files are read: a newer version may read more of them."""
        self._store = store
        self._documents = documents
        self._knowledge = knowledge
        self._describe_readers = describe_readers
        self._clock = clock

    async def look(self, job: Job, files: Sequence[JobFile]) -> list[FileLook | None]:
        """How files look now; None for one that cannot be looked at."""
        recipe = [self._describe_readers(), self._knowledge.recipe if job.target is JobTarget.KNOWLEDGE else ""]
        now = self._clock()

        def look_at_all() -> list[FileLook | None]:
            return [_look_at(file, [*recipe, *_list_details(job, file)], now) for file in files]

        return await asyncio.to_thread(look_at_all)

    async def remember(
        self, job: Job, file: JobFile, look: FileLook, made: Mapping[str, str], outcome: FileOutcome
    ) -> None:
        """Remembers how a file looked before this was made of it."""
        if look.is_settled and 0 < len(made) <= MAX_DOCUMENTS:
            stamp = FileStamp(job.target, job.owner, file.path, look.state, made, outcome, look.seen_at)
            await self._store.save_stamp(stamp)

    async def mark(self, job: Job, files: Sequence[JobFile]) -> list[JobFile]:
        """The files; files that need not be read are done."""
        await self._store.remove_stamps(self._clock() - KEPT_SECONDS)
        stamps = await self._store.get_stamps(job.target, job.owner, [file.path for file in files if file.path])
        known = [file for file in files if file.state is FileState.WAITING and file.path in stamps]
        looks = await self.look(job, known) if known else []
        same = {
            file.number: stamps[file.path]
            for file, look in zip(known, looks, strict=True)
            if look and look.is_settled and look.state == stamps[file.path].state
        }
        made = {made_id: digest for stamp in same.values() for made_id, digest in stamp.made.items()}
        kept = await self._find_kept(job, made)
        done = {number: stamp for number, stamp in same.items() if stamp.made.keys() <= kept}
        return [_finish(file, done[file.number]) if file.number in done else file for file in files]

    async def _find_kept(self, job: Job, made: Mapping[str, str]) -> set[str]:
        if not made:
            return set()
        if job.target is JobTarget.DOCUMENTS:
            return await self._documents.find_complete(job.owner, made)
        return await self._knowledge.find_complete(made, parse_details(job.details))


def _finish(file: JobFile, stamp: FileStamp) -> JobFile:
    return replace(file, state=FileState.DONE, outcome=replace(stamp.outcome, unchanged=len(stamp.made)))


def _list_details(job: Job, file: JobFile) -> list[object]:
    """What else decides what is made of a file. Details of a source are compared with the stored details."""
    return [file.name, job.details.get("metadata")] if job.target is JobTarget.DOCUMENTS else []


def _look_at(file: JobFile, recipe: Sequence[object], now: float) -> FileLook | None:
    try:
        stats = [(path, Path(path).stat()) for path in file.pages or (file.path,)]
    except OSError:
        return None
    sizes = [(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino) for path, stat in stats]
    # A time of modification in the future was set by a program: the next change gives it another.
    newest = max(max(stat.st_ctime, stat.st_mtime if stat.st_mtime <= now else 0.0) for _, stat in stats)
    state = hashlib.sha256(json.dumps([recipe, sizes], sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
    return FileLook(state, newest + SETTLE_SECONDS <= now, now)
