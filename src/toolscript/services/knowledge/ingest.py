"""The write path of knowledge: read a book, cut it, embed what is new, store it, index it, and extract knowledge with a
language model.

Ids are derived from content: a chunk with the same text in the same section keeps its vector and its extractions. So
ingesting a changed book costs only what changed, and repeating an interrupted ingest only what is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.knowledge import (
    DATE,
    DETAILS,
    DIGEST,
    EXTRACTED_WITH,
    UNASKED,
    Book,
    Chunk,
    Extraction,
    Source,
    SourceStatus,
    derive_id,
)
from toolscript.ports.files import BookReader
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.stores import KnowledgeStore
from toolscript.retrieval.text.book_chunks import RECIPE
from toolscript.retrieval.text.words import replace_unencodable
from toolscript.services.knowledge.book_records import (
    bind_pages,
    carry_over_extractions,
    clean_line,
    clean_names,
    cut_chunks,
    digest,
)
from toolscript.services.knowledge.extraction import ExtractionResult, Extractor, is_read, is_worth_asking
from toolscript.services.knowledge.source_writer import SourceWriter
from toolscript.services.support.concurrency import KeyedLocks, Progress, iterate_async, run_concurrently

# Number of chunks that a language model reads before its extractions are saved.
SAVE_BATCH = 64
# Number of pages of a folder that are read at the same time.
MAX_CONCURRENT_READS = 4
MAX_TITLE_CHARACTERS = 500
MAX_TYPE_CHARACTERS = 100
MAX_LISTED = 20
DEFAULT_TYPE = "book"
ADDED, CHANGED, UNCHANGED = "added", "changed", "unchanged"


@dataclass(frozen=True, slots=True)
class SourceDetails:
    """Details that a person gives of a source. They override the details in the file, also in later ingests, until
    other or empty details are given. `extract`: whether a language model may read the source this time."""

    title: str | None = None
    authors: tuple[str, ...] = ()
    type: str | None = None
    extract: bool = True


NO_DETAILS = SourceDetails()


def parse_details(details: Mapping[str, Any]) -> SourceDetails:
    """The details as a job has them."""
    return SourceDetails(**{**details, "authors": tuple(details.get("authors") or ())})


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The outcome of an ingest: added, changed or unchanged; the counts of chunks, extractions and embedded texts."""

    source: Source
    outcome: str
    chunks: int
    embedded: int
    extractions: int
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _SourceUpdate:
    """A source that is being ingested. `unasked` are the chunks that a language model has not read yet."""

    source: Source
    chunks: list[Chunk]
    extractions: list[Extraction]
    read_chunks: set[str]
    warnings: list[str]
    unasked: list[Chunk] = field(default_factory=list)
    embedded: int = 0

    def find_unread(self) -> None:
        self.unasked = [chunk for chunk in self.chunks if chunk.id not in self.read_chunks and is_worth_asking(chunk)]

    def take(self, made: ExtractionResult, of: Sequence[Chunk]) -> None:
        """Adds what a language model extracted from some chunks."""
        self.extractions += made.extractions
        read = {chunk.id for chunk in of} - made.unclear.keys() - made.unasked.keys()
        self.unasked = [chunk for chunk in self.unasked if chunk.id not in read]

    def note(self, extractor: Extractor | None) -> None:
        """Writes the extracting model, and the chunks it has not read yet, into the source's metadata."""
        notes = dict(self.source.metadata)
        if extractor:
            notes[EXTRACTED_WITH] = extractor.model
        if notes.get(EXTRACTED_WITH):
            notes[UNASKED] = [chunk.id for chunk in self.unasked]
        self.source = replace(self.source, metadata=notes)

    def is_same_as(self, before: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> bool:
        """Whether searches and citations give the same as before."""
        fields = [(each.title, each.authors, each.date, each.type, each.status) for each in (self.source, before)]
        return fields[0] == fields[1] and (self.chunks, self.extractions) == (chunks, extractions)


class IngestKnowledge:
    """Adds, updates and removes sources. Work on the same source happens one at a time."""

    def __init__(
        self,
        store: KnowledgeStore,
        index: VectorIndex,
        embedder: Embedder | None,
        reader: BookReader,
        extractor: Extractor | None = None,
    ) -> None:
        self._store = store
        self._writer = SourceWriter(store, index, embedder)
        self._reader = reader
        self._extractor = extractor
        self.locks = KeyedLocks()
        """Of the sources that are being written, by id."""

    async def ingest(
        self,
        path: Path,
        about: SourceDetails = NO_DETAILS,
        progress: Progress | None = None,
        *,
        origin: Path | None = None,
    ) -> IngestResult:
        """Makes a source of a file, replacing the previous version of it. `progress` gets the done and total counts.
        The `origin` of an uploaded file is its path where it comes from. The path identifies the source.

        Raises Invalid, in one line without the path, for a file that cannot be read; Unavailable when the model or a
        store fails: repeating the call completes it.
        """
        await self._writer.open()
        where = await asyncio.to_thread(_absolute, path) if origin is None else origin
        book = await self._reader.read(await asyncio.to_thread(path.expanduser))  # a link by its own ending
        return await self._save(where, book, about, [*book.warnings], progress)

    async def ingest_together(
        self,
        folder: Path,
        files: Sequence[Path],
        about: SourceDetails = NO_DETAILS,
        progress: Progress | None = None,
    ) -> IngestResult:
        """Makes one source of the files of a folder, in the order given: a book of many pages. `progress` counts pages,
        then chunks. A page that cannot be read gives a warning. Raises what `ingest` raises, and Invalid when no page
        can be read."""
        await self._writer.open()
        where = await asyncio.to_thread(_absolute, folder)
        read: dict[Path, Book | str] = {}

        async def read_one(file: Path) -> None:
            try:
                read[file] = await self._reader.read(file)
            except Invalid as error:
                read[file] = f"{file.name}: {error.message}"
            if progress:
                progress(len(read), len(files))

        await run_concurrently(iterate_async(files), read_one, max_concurrent=MAX_CONCURRENT_READS)
        found = [(file, read[file]) for file in files]
        problems = [each for _, each in found if isinstance(each, str)]
        warnings = [f"{file.name}: {text}" for file, each in found if isinstance(each, Book) for text in each.warnings]
        pages = [(file.stem, each) for file, each in found if isinstance(each, Book)]
        if not pages:
            raise Invalid(f"none of its {len(files)} files can be read: {'; '.join(problems[:MAX_LISTED])}")
        return await self._save(where, bind_pages(where.name, pages), about, [*problems, *warnings], progress)

    @property
    def recipe(self) -> str:
        """What decides how a book is cut and embedded; empty without a model."""
        model = self._writer.model
        return f"{RECIPE} {model}" if model else ""

    async def find_complete(self, digests: Mapping[str, str], about: SourceDetails = NO_DETAILS) -> set[str]:
        """The ids of the sources that are stored with these digests and details, searchable, and as far as wanted read
        by the language model; none while the index has more or fewer points than the store has records."""
        if not await self._writer.is_complete():
            return set()
        stored = (await self._store.get_records([*digests], [], [])).sources
        asks = self._extractor is not None and about.extract
        return {
            source.id
            for source in stored.values()
            if source.status == SourceStatus.READY
            and source.metadata.get(DIGEST) == digests[source.id]
            and _merge_details(source.metadata.get(DETAILS), about) == (source.metadata.get(DETAILS) or {})
            and not (asks and (not source.metadata.get(EXTRACTED_WITH) or source.metadata.get(UNASKED)))
        }

    async def remove(self, source_id: str) -> bool:
        """Removes a source with its chunks and extractions; returns whether it existed."""
        async with self.locks.lock([source_id]):
            return await self._writer.delete(source_id)

    async def find(self, reference: str) -> Source:
        """The source of that id, path or title, or the only source with a title that starts so. Raises NotFound."""
        return find_source(await self._store.list_sources(), reference)

    async def index_all(self, progress: Progress | None = None) -> int:
        """Makes the index hold exactly what is stored; returns how many points had to change."""
        return await self._writer.index_all(progress)

    async def repair(self, *, completing: bool = False) -> int:
        """Reads the terms of sources again that an earlier version has read, or that were stored before words were
        compared; returns how many there were. With `completing`, for an index that nobody else writes, sources that
        lack points are indexed again: the index was damaged, and replaced. Source by source: searches find the sources
        before and after, and what is done stays done. Rests as long as it works, for searches."""
        contents = await self._store.count_contents()
        if not await self._writer.open_existing(creating=completing and bool(contents)):
            return 0
        repaired = 0
        for source_id, counts in contents.items():
            started = time.monotonic()
            async with self.locks.lock([source_id]):
                repaired += await self._writer.repair(source_id, *counts, completing=completing)
            await asyncio.sleep(time.monotonic() - started)
        return repaired

    async def _save(
        self, path: Path, book: Book, about: SourceDetails, warnings: list[str], progress: Progress | None
    ) -> IngestResult:
        source_id = derive_id("source", path)
        async with self.locks.lock([source_id]):
            before = (await self._store.get_records([source_id], [], [])).sources.get(source_id)
            source = await asyncio.to_thread(_build_source, source_id, path, book, about, before, self._writer.embedder)
            chunks, extractions = await self._store.get_contents(source_id)
            extractor = self._extractor if about.extract else None
            update = _SourceUpdate(
                source, chunks, [*extractions], _find_read_chunks(before, chunks, extractions), warnings
            )
            existing = (len(chunks), len(extractions))
            is_kept = (
                before is not None
                and before.status != SourceStatus.INDEXING
                and before.metadata.get(DIGEST) == source.metadata[DIGEST]
            ) and await self._writer.is_indexed(source_id, *existing)
            if before is not None and is_kept:
                update.source = before
            else:
                await self._cut_book(update, book, extractor)
                update.embedded = await self._writer.save(update.source, update.chunks, update.extractions, progress)
                is_kept = before is not None and not update.embedded and update.is_same_as(before, chunks, extractions)
            read = await self._extract(update, extractor, progress) if extractor else 0
            outcome = ADDED if before is None else UNCHANGED if is_kept and not read else CHANGED
            counts = len(update.chunks), update.embedded, len(update.extractions)
            return IngestResult(update.source, outcome, *counts, tuple(update.warnings))

    async def _cut_book(self, update: _SourceUpdate, book: Book, extractor: Extractor | None) -> None:
        """Cuts a book into chunks, and assigns its extractions to them. Raises Invalid for a book without text."""
        before = update.chunks
        update.chunks = await asyncio.to_thread(cut_chunks, update.source.id, book.blocks, self._writer.embedder)
        if not update.chunks:
            raise Invalid("holds no text", details={"path": update.source.path})
        update.extractions, lost = carry_over_extractions(update.extractions, before, update.chunks, update.read_chunks)
        if lost:
            update.warnings.append(
                f"imported extractions whose text is no longer there, kept for the source as a whole: {lost}"
            )
        if extractor or update.source.metadata.get(EXTRACTED_WITH):
            await asyncio.to_thread(update.find_unread)
        update.note(extractor)

    async def _extract(self, update: _SourceUpdate, extractor: Extractor, progress: Progress | None) -> int:
        """Extracts from the chunks that were not read yet; returns how many were read. Saves every few chunks: language
        models are slow and cost money."""
        await asyncio.to_thread(update.find_unread)
        waiting = update.unasked
        left = ExtractionResult()
        for start in range(0, len(waiting), SAVE_BATCH):
            some = waiting[start : start + SAVE_BATCH]

            def report(done: int, _: int, start: int = start) -> None:
                if progress:
                    progress(start + done, len(waiting))

            made = await extractor.extract(update.source.title, some, report)
            update.take(made, some)
            update.note(extractor)
            update.embedded += await self._writer.add_extractions(
                update.source, made.extractions, update.chunks, update.extractions, notes=update.source.metadata
            )
            left.unclear |= made.unclear
            if made.unasked:
                reason = next(iter(made.unasked.values()))
                left.unasked = {c.id: reason for c in update.unasked if c.id not in left.unclear}
                break
        if update.unasked:
            worth_it = await asyncio.to_thread(lambda: sum(map(is_worth_asking, update.chunks)))
            update.warnings += left.warnings(of=worth_it)
        return len(waiting) - len(update.unasked)


def find_source(sources: Iterable[Source], reference: str) -> Source:
    """The source of that id, path or title, or the only source with a title that starts so, ignoring case. Raises
    NotFound."""
    known = list(sources)
    wanted = reference.strip().casefold()
    try:
        path = str(_absolute(Path(reference)))
    except (OSError, RuntimeError, ValueError):  # not a path: a title may contain anything
        path = ""
    tests: list[Callable[[Source], bool]] = [
        lambda source: source.id == wanted,
        lambda source: source.path in (reference, path or reference),
        lambda source: source.title.casefold() == wanted,
        lambda source: bool(wanted) and source.title.casefold().startswith(wanted),
    ]
    for test in tests:
        found = [source for source in known if test(source)]
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFound(
                f"{reference!r} matches {len(found)} sources: {_list_sources(found)}. Give the id of one",
                details={"reference": reference, "ids": [source.id for source in found[:MAX_LISTED]]},
            )
    hint = f"known: {_list_sources(known)}" if known else "there are none yet: `toolscript knowledge ingest` adds some"
    raise NotFound(f"no such source: {reference!r}; {hint}", details={"reference": reference})


def _list_sources(sources: Sequence[Source]) -> str:
    listed = ", ".join(f"{source.title!r} ({source.id})" for source in sources[:MAX_LISTED])
    return listed if len(sources) <= MAX_LISTED else f"{listed}, and {len(sources) - MAX_LISTED} more"


def _absolute(path: Path) -> Path:
    return path.expanduser().resolve()


def _build_source(
    source_id: str, path: Path, book: Book, about: SourceDetails, before: Source | None, embedder: Embedder
) -> Source:
    notes: Mapping[str, Any] = before.metadata if before else {}
    details = _merge_details(notes.get(DETAILS), about)
    source = Source(
        source_id,
        details.get("type", DEFAULT_TYPE),
        details.get("title")
        or clean_line(book.title, MAX_TITLE_CHARACTERS)
        or clean_line(path.stem, MAX_TITLE_CHARACTERS)
        or replace_unencodable(path.name),
        tuple(details.get("authors") or clean_names(book.authors)),
        replace_unencodable(str(path)),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )
    date = {DATE: book.date} if book.date else {}
    own: dict[str, Any] = {DIGEST: digest(source, {**details, **date}, book.blocks, embedder), **date}
    own |= {DETAILS: details} if details else {}
    kept = {name: each for name, each in notes.items() if name not in {DETAILS, DATE}}
    return replace(source, metadata=kept | own)


def _merge_details(before: Any, about: SourceDetails) -> dict[str, Any]:
    """The details given now, else the details given before. Invalid values are ignored: they may be imported."""
    known = before if isinstance(before, Mapping) else {}
    details = {
        "title": clean_line(known.get("title") if about.title is None else about.title, MAX_TITLE_CHARACTERS),
        "authors": clean_names(about.authors or known.get("authors")),
        "type": clean_line(known.get("type") if about.type is None else about.type, MAX_TYPE_CHARACTERS),
    }
    return {name: each for name, each in details.items() if each}


def _find_read_chunks(before: Source | None, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> set[str]:
    """The ids of chunks that a language model has read. Invalid metadata is ignored: it may be imported."""
    if before is None or not before.metadata.get(EXTRACTED_WITH):
        return {each.chunk_id for each in extractions if is_read(each)}
    left = before.metadata.get(UNASKED)
    unasked = {each for each in left if isinstance(each, str)} if isinstance(left, list) else set()
    return {chunk.id for chunk in chunks} - unasked
