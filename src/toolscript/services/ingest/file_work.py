"""Makes documents or a source of one file of a job."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Protocol

from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.domain.files.jobs import FileOutcome, Job, JobFile, JobTarget
from toolscript.domain.files.kinds import find_ending
from toolscript.domain.knowledge import DIGEST
from toolscript.ports.files import BookReader
from toolscript.ports.jobs import JobStore
from toolscript.services.documents.ingest import IngestDocuments, PutReport
from toolscript.services.ingest.document_files import MAX_BATCH_CHARACTERS, MAX_BATCH_DOCUMENTS, DocumentFileReader
from toolscript.services.ingest.unchanged import UnchangedFiles
from toolscript.services.knowledge.ingest import ADDED, CHANGED, UNCHANGED, IngestKnowledge, parse_details
from toolscript.services.support.concurrency import Progress

MAX_WARNINGS = 20
# Four bytes each at most: file systems take 255 bytes.
MAX_NAME_CHARACTERS = 50

Made = tuple[FileOutcome, Mapping[str, str]]
"""What became of a file, and the digests of what was made of it, by id."""


class FileWork(Protocol):
    """What a runner does with each file."""

    async def do(self, job: Job, file: JobFile, progress: Progress) -> FileOutcome:
        """Does the work; doing it again changes nothing. Raises Invalid for an unusable file, Unavailable when a model,
        a store or an index fails."""


class IngestFile:
    """Reads a file, embeds its texts and makes them searchable."""

    def __init__(
        self,
        store: JobStore,
        documents: IngestDocuments,
        knowledge: IngestKnowledge,
        reader: BookReader,
        unchanged: UnchangedFiles,
    ) -> None:
        self._store = store
        self._documents = documents
        self._knowledge = knowledge
        self._reader = reader
        self._unchanged = unchanged

    async def do(self, job: Job, file: JobFile, progress: Progress) -> FileOutcome:
        look = (await self._unchanged.look(job, [file]))[0] if file.path else None  # before it is read: it may change
        async with self._open(job, file) as path:
            make = self._put_documents if job.target is JobTarget.DOCUMENTS else self._make_source
            outcome, made = await make(job, file, path, progress)
        if look:
            await self._unchanged.remember(job, file, look, made, outcome)
        return outcome

    @asynccontextmanager
    async def _open(self, job: Job, file: JobFile) -> AsyncIterator[Path]:
        """The path to read: the path of the file, or of a copy of its uploaded content with the same name: the name may
        become its title."""
        if file.path:
            await asyncio.to_thread(_require_unchanged, job, file)
            yield Path(file.path)
            return
        content = await self._store.read_content(file.job_id, file.number)
        with tempfile.TemporaryDirectory(prefix="toolscript-") as folder:
            name = PurePosixPath(file.name)
            ending = find_ending(name) or name.suffix
            copy = Path(folder, name.name.removesuffix(ending).replace("\0", "")[:MAX_NAME_CHARACTERS] + ending)
            await asyncio.to_thread(copy.write_bytes, content)
            yield copy

    async def _put_documents(self, job: Job, file: JobFile, path: Path, progress: Progress) -> Made:
        reader = DocumentFileReader(self._reader, job.details.get("metadata") or {})
        total, origin, made = PutReport(), file.path or file.name, dict[str, str]()
        async for batch in _split_batches(reader.read(path, file.name, origin)):
            report = await self._documents.put(job.owner, batch, progress)
            total = PutReport(
                total.added + report.added, total.changed + report.changed, total.unchanged + report.unchanged
            )
            made |= {document.id: document.digest for document in batch}
        removed = 0 if reader.problems else await self._documents.delete_others(job.owner, origin, made.keys())
        unsaid = reader.problem_count - len(reader.problems)
        warnings = _shorten([*reader.warnings, *reader.problems], unsaid)
        return FileOutcome(total.added, total.changed, total.unchanged, removed, warnings=warnings), made

    async def _make_source(self, job: Job, file: JobFile, path: Path, progress: Progress) -> Made:
        details = parse_details(job.details)
        if file.pages:
            result = await self._knowledge.ingest_together(path, [Path(page) for page in file.pages], details, progress)
        else:
            origin = None if file.path else Path(file.name)
            result = await self._knowledge.ingest(path, details, progress, origin=origin)
        outcome = FileOutcome(
            added=int(result.outcome == ADDED),
            changed=int(result.outcome == CHANGED),
            unchanged=int(result.outcome == UNCHANGED),
            passages=result.chunks,
            title=result.source.title,
            warnings=_shorten(result.warnings),
        )
        return outcome, {result.source.id: str(result.source.metadata[DIGEST])}


def _require_unchanged(job: Job, file: JobFile) -> None:
    """Raises Invalid for a path that leads elsewhere than when the job was started: callers who may have only some
    folders read could replace a file by a link."""
    for path in file.pages or (file.path,):
        if not job.place and os.path.realpath(path) != path:
            raise Invalid("the path leads through a link: name the file that it leads to")


async def _split_batches(documents: AsyncIterator[Document]) -> AsyncIterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    async for document in documents:
        if batch and (len(batch) == MAX_BATCH_DOCUMENTS or size + len(document.text) > MAX_BATCH_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += len(document.text)
    if batch:
        yield batch


def _shorten(problems: Sequence[str], unsaid: int = 0) -> tuple[str, ...]:
    """The first problems, and the number of further problems, including unlisted problems."""
    more = max(len(problems) - MAX_WARNINGS, 0) + unsaid
    return (*problems[:MAX_WARNINGS], *([f"and {more} more"] if more > 0 else []))
