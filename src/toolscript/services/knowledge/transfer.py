"""Exports and imports knowledge as JSON lines.

A line is `{"source": …}`, `{"chunk": …}` or `{"extraction": …}`. A source with chunks replaces the existing source of
the same id, completely or not at all: when one of its lines is refused, or lines are missing, the existing one stays.
Chunks and extractions without a line for their source are added to the existing source.

The `digest` in an imported source's metadata is dropped unless the source is unchanged, because the lines were never
compared with a file: the next ingest of the file cuts it again, and embeds and extracts only what differs. Other
metadata is imported unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import IO, Any, TypeVar

from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import DIGEST, Chunk, Extraction, Source, SourceStatus
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.stores import KnowledgeReader, KnowledgeStore
from toolscript.services.knowledge.book_records import OF_NO_CHUNK
from toolscript.services.knowledge.json_lines import (
    KINDS,
    Counts,
    Record,
    format_chunk,
    format_extraction,
    format_source,
    parse_chunk,
    parse_extraction,
    parse_object,
    parse_source,
)
from toolscript.services.knowledge.source_writer import SourceWriter
from toolscript.services.support.concurrency import KeyedLocks, Progress

MAX_REFERENCE_CHARACTERS = 200
# A line is a source, a chunk or an extraction; chunks have a few kilobytes.
MAX_LINE_BYTES = 16 * 2**20

Measure = Callable[[str], int]
T = TypeVar("T", Chunk, Extraction)


@dataclass(slots=True)
class ImportReport:
    """How many lines of each kind were imported; how many sources are new, and how many changed; how many texts were
    embedded; and the refused lines: their numbers, from 1, and why."""

    sources: int = 0
    added: int = 0
    changed: int = 0
    chunks: int = 0
    extractions: int = 0
    embedded: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)

    @contextmanager
    def refusing(self, number: int) -> Iterator[None]:
        """Refuses the line of that number when the block raises Invalid."""
        try:
            yield
        except Invalid as error:
            self.refused.append((number, error.message))


@dataclass(slots=True)
class _SourceLines:
    """The lines of one source: its own, if there is one, its chunks and extractions, with their line numbers."""

    source: Source | None = None
    number: int = 0
    declared_counts: Counts = (None, None)
    """The numbers of chunks and extractions in the source's own line."""
    chunks: list[tuple[int, Chunk]] = field(default_factory=list)
    extractions: list[tuple[int, Extraction]] = field(default_factory=list)
    refused: int = 0

    def add(self, number: int, kind: str, record: Record, source_id: str, measure: Measure) -> None:
        """Adds the line of a chunk or an extraction. Raises Invalid."""
        try:
            if kind == "chunk":
                self.chunks.append((number, parse_chunk(record, source_id, measure)))
            else:
                self.extractions.append((number, parse_extraction(record, source_id)))
        except Invalid:
            self.refused += 1
            raise

    def problem(self, chunks: int, extractions: int) -> str | None:
        """Why the source cannot be imported, given its numbers of valid chunks and extractions; None if it can."""
        if self.source is None:
            return None
        stays = f"the source {self.source.id} is not imported, and the existing one stays"
        if self.refused:
            return f"{stays}: {self.refused} of its lines cannot be used"
        counts = [*zip(("chunks", "extractions"), self.declared_counts, (chunks, extractions), strict=True)]
        missing = [
            f"{count} of its {declared} {kind}" for kind, declared, count in counts if declared not in (None, count)
        ]
        return f"{stays}: the file has {' and '.join(missing)}; export it again" if missing else None


@dataclass(frozen=True, slots=True)
class _SourceState:
    """A source with all its chunks, and its extractions sorted by id."""

    source: Source
    chunks: Sequence[Chunk]
    extractions: Sequence[Extraction]

    def find_additions(self, existing: _SourceState) -> list[Extraction] | None:
        """The extractions that the existing state lacks; None when anything else differs."""
        before = {extraction.id for extraction in existing.extractions}
        same = [extraction for extraction in self.extractions if extraction.id in before]
        if (self.source, self.chunks, same) != (existing.source, existing.chunks, existing.extractions):
            return None
        return [extraction for extraction in self.extractions if extraction.id not in before]


async def export_lines(reader: KnowledgeReader, sources: Sequence[Source]) -> AsyncIterator[dict[str, Any]]:
    """Each source with its chunks, in reading order, and its extractions. An extraction without its chunk has no chunk
    id."""
    for source in sources:
        chunks, extractions = await reader.get_contents(source.id)
        yield format_source(source, len(chunks), len(extractions))
        for chunk in chunks:
            yield format_chunk(chunk)
        there = {chunk.id for chunk in chunks}
        for extraction in extractions:
            yield format_extraction(
                extraction if extraction.chunk_id in there else replace(extraction, chunk_id=OF_NO_CHUNK)
            )


class ImportKnowledge:
    """Imports lines. Sources that did not change are left alone."""

    def __init__(
        self,
        store: KnowledgeStore,
        index: VectorIndex,
        embedder: Embedder | None,
        locks: KeyedLocks | None = None,
    ) -> None:
        """`locks` are the locks of sources that others write in this process, by id."""
        self._store = store
        self._writer = SourceWriter(store, index, embedder)
        self._locks = locks or KeyedLocks()

    async def take_stream(self, stream: IO[bytes], progress: Progress | None = None, size: int = 0) -> ImportReport:
        """Imports the lines of a stream of that many bytes, as `take` does; blank lines are ignored. `progress` first
        gets the bytes that were read."""
        numbers: list[int] = []
        invalid: list[tuple[int, str]] = []
        report = await self.take(_read_objects(stream, numbers, invalid, progress, size), progress)
        refused = [(numbers[number - 1], problem) for number, problem in report.refused]
        return replace(report, refused=sorted([*invalid, *refused]))

    async def take(self, lines: Iterable[Mapping[str, Any]], progress: Progress | None = None) -> ImportReport:
        """Imports the valid lines source by source; `progress` gets the counts of each source. Raises Unavailable when
        the model or a store fails: repeating the call completes the import."""
        await self._writer.open()
        report = ImportReport()
        by_source = await asyncio.to_thread(self._group, lines, await self._store.list_sources(), report)
        for source_id, source_lines in by_source.items():
            async with self._locks.lock([source_id]):
                await self._take(source_id, source_lines, report, progress)
        report.refused.sort()
        return report

    def _group(self, lines: Iterable[Record], known: Sequence[Source], report: ImportReport) -> dict[str, _SourceLines]:
        """The lines grouped by source; a source's own line may be anywhere."""
        by_source: dict[str, _SourceLines] = {}
        others: list[tuple[int, str, Record]] = []
        broken: set[str] = set()
        for number, line in enumerate(lines, start=1):
            with report.refusing(number):
                kind, record = _record(line)
                if kind == "source":
                    _add_source(by_source, number, record, broken)
                else:
                    others.append((number, kind, record))
        for source_id in broken & by_source.keys():
            by_source[source_id].refused += 1
        names: dict[str, set[str]] = {}  # a source whose title changes has both
        for source in (*known, *(lines.source for lines in by_source.values() if lines.source)):
            for name in (source.id, source.title):
                names.setdefault(name, set()).add(source.id)
        for number, kind, record in others:
            with report.refusing(number):
                source_id = _find_source(record, names, broken - by_source.keys())
                source_lines = by_source.setdefault(source_id, _SourceLines())
                source_lines.add(number, kind, record, source_id, self._writer.embedder.count_tokens)
        return by_source

    async def _take(
        self, source_id: str, source_lines: _SourceLines, report: ImportReport, progress: Progress | None
    ) -> None:
        before = (await self._store.get_records([source_id], [], [])).sources.get(source_id)
        existing_chunks, existing_extractions = await self._store.get_contents(source_id)
        source = source_lines.source or before
        if source is None or source.status == SourceStatus.INDEXING:
            record = f"the source {source_id} is not complete: ingest it again, then import this line"
            report.refused += [(number, record) for number, _ in (*source_lines.chunks, *source_lines.extractions)]
            return
        wrong = await self._find_foreign_ids(source_id, source_lines)
        chunks = _select_valid(source_lines.chunks, lambda chunk: wrong.get(chunk.id), source_lines, report)
        is_whole = source_lines.source is not None and bool(chunks)
        all_chunks = chunks if is_whole else _merge(existing_chunks, chunks)
        there = {chunk.id for chunk in all_chunks} | {OF_NO_CHUNK}

        def problem(extraction: Extraction) -> str | None:
            missing = None if extraction.chunk_id in there else f"its source has no chunk {extraction.chunk_id!r}"
            return wrong.get(extraction.id) or missing

        extractions = _complete_extractions(
            _select_valid(source_lines.extractions, problem, source_lines, report), existing_extractions
        )
        why = source_lines.problem(len(chunks), len(extractions))
        if why:
            report.refused.append((source_lines.number, why))
        if why or not (source_lines.source or chunks or extractions):
            return
        report.chunks += len(chunks)
        report.extractions += len(extractions)
        all_extractions = _merge([] if is_whole else existing_extractions, extractions)
        if source_lines.source:
            source = _complete_source(source, before, is_same=all_chunks == existing_chunks)
        now = _SourceState(source, all_chunks, sorted(all_extractions, key=lambda addition: addition.id))
        existing = _SourceState(before, existing_chunks, existing_extractions) if before else None
        if source_lines.source:
            report.sources += 1
            report.added += existing is None
            report.changed += existing is not None and now != existing
        report.embedded += await self._save(now, existing, progress)

    async def _save(self, now: _SourceState, existing: _SourceState | None, progress: Progress | None) -> int:
        """Saves a source at the least cost; returns how many texts had to be embedded."""
        fresh = now.find_additions(existing) if existing else None
        if existing is not None and fresh is not None:
            counts = len(existing.chunks), len(existing.extractions)
            if await self._writer.is_indexed(existing.source.id, *counts):
                if not fresh:
                    return 0
                return await self._writer.add_extractions(now.source, fresh, now.chunks, now.extractions)
        return await self._writer.save(now.source, now.chunks, now.extractions, progress)

    async def _find_foreign_ids(self, source_id: str, source_lines: _SourceLines) -> dict[str, str]:
        """The ids that belong to another source, each with its error message."""
        records = await self._store.get_records(
            [], [c.id for _, c in source_lines.chunks], [e.id for _, e in source_lines.extractions]
        )
        owners = {c.id: c.source_id for c in records.chunks.values()}
        owners |= {e.id: e.source_id for e in records.extractions.values()}
        return {
            i: f"the id {i} is taken: the source {owner} has it" for i, owner in owners.items() if owner != source_id
        }


def _read_objects(
    stream: IO[bytes],
    numbers: list[int],
    refused: list[tuple[int, str]],
    progress: Progress | None,
    size: int,
) -> Iterator[Mapping[str, Any]]:
    """The objects in the lines of a stream. Collects the number of each object's line, and invalid lines."""
    number = read = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number, read = number + 1, read + len(line)
        if len(line) > MAX_LINE_BYTES:
            refused.append((number, f"longer than {MAX_LINE_BYTES // 2**20} MiB: reading stops here"))
            return
        if progress:
            progress(read, size)
        if line.strip():
            try:
                value = parse_object(line)
            except Invalid as error:
                refused.append((number, error.message))
            else:
                numbers.append(number)
                yield value


def _record(line: Record) -> tuple[str, Record]:
    match [*line.items()]:
        case [(str(kind), dict() as record)] if kind in KINDS:
            return kind, record
        case _:
            raise Invalid('is not a record: give {"source": {…}}, {"chunk": {…}} or {"extraction": {…}}')


def _add_source(by_source: dict[str, _SourceLines], number: int, record: Record, broken: set[str]) -> None:
    """Adds a source's own line. The names of an invalid one are added to `broken`, so that its other lines are not
    added to the existing source. Raises Invalid."""
    try:
        source, counts = parse_source(record)
    except Invalid:
        broken.update(name for name in map(record.get, ("id", "_id", "title")) if isinstance(name, str))
        raise
    lines = by_source.setdefault(source.id, _SourceLines())
    if lines.source and (lines.source, lines.declared_counts) != (source, counts):
        lines.refused += 1
        raise Invalid(f"the source {source.id} is on another line already, with different content")
    lines.source, lines.number, lines.declared_counts = source, number, counts


def _find_source(record: Record, names: Mapping[str, Collection[str]], broken: Collection[str]) -> str:
    """The id of the source that a line refers to, by exact id or exact title. Raises Invalid."""
    reference = record.get("source_id") or record.get("source")
    if not isinstance(reference, str) or not reference.strip():
        raise Invalid("has no source: give source_id, the id or the title of a source")
    if reference in broken:
        raise Invalid("the line of its source is invalid")
    source_ids = names.get(reference, ())
    if len(source_ids) != 1:
        raise Invalid(f"no such source, or several of that title: {reference[:MAX_REFERENCE_CHARACTERS]!r}")
    return next(iter(source_ids))


def _select_valid(
    numbered: Sequence[tuple[int, T]],
    problem_of: Callable[[T], str | None],
    source_lines: _SourceLines,
    report: ImportReport,
) -> list[T]:
    """The valid records, each once; the others are refused."""
    records: dict[str, T] = {}
    for number, record in numbered:
        problem = problem_of(record)
        if problem is None and records.setdefault(record.id, record) != record:
            problem = f"the id {record.id} is on another line already, with different content"
        if problem:
            source_lines.refused += 1
            report.refused.append((number, problem))
    return list(records.values())


def _merge(existing: Sequence[T], given: Sequence[T]) -> list[T]:
    """The existing records in their order, replaced by given records of the same id, then the other given records."""
    return list(({record.id: record for record in existing} | {record.id: record for record in given}).values())


def _complete_source(source: Source, existing: Source | None, *, is_same: bool) -> Source:
    """The source with its first import time if it has none, and with the existing digest if its chunks are the same."""
    notes = {name: note for name, note in source.metadata.items() if name != DIGEST}
    if existing is None:
        return replace(source, ingested_at=source.ingested_at or _now(), metadata=notes)
    record = [(entry.type, entry.title, entry.authors, entry.path) for entry in (source, existing)]
    if is_same and record[0] == record[1] and DIGEST in existing.metadata:
        notes[DIGEST] = existing.metadata[DIGEST]
    return replace(source, ingested_at=source.ingested_at or existing.ingested_at, metadata=notes)


def _complete_extractions(given: Sequence[Extraction], existing: Sequence[Extraction]) -> list[Extraction]:
    """The extractions, with the time of their first import where they have none."""
    known = {extraction.id: extraction.extracted_at for extraction in existing}
    return [replace(new, extracted_at=new.extracted_at or known.get(new.id) or _now()) for new in given]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
