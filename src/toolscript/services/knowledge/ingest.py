"""The write path of knowledge: read a book, cut it, embed what is new, store it, index it, and have a language model
read out of it what is worth knowing.

Whatever has an id of its own making keeps it: a chunk that says the same in the same section is the same chunk, with
its vector and its extractions. So a book that has changed costs what has changed, and one that was interrupted what is
left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.knowledge import Book, Chunk, Extraction, Source, SourceStatus, derive_id
from toolscript.ports.files import BookReader
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.stores import KnowledgeStore
from toolscript.retrieval.text.words import replace_unencodable
from toolscript.services.knowledge.book_records import (
    bind_pages,
    carry_over_extractions,
    clean_line,
    cut_chunks,
    digest,
)
from toolscript.services.knowledge.extraction import Extracted, Extractor, is_read, is_worth_asking
from toolscript.services.knowledge.source_writer import SourceWriter
from toolscript.services.support.concurrency import KeyedLocks, iterate_async, run_concurrently

# So many chunks are read by a language model before what it said is kept.
SAVE_BATCH = 64
# So many pages of a folder are read at the same time.
MAX_CONCURRENT_READS = 4
MAX_TITLE_CHARACTERS = 500
MAX_NAME_CHARACTERS = 200
MAX_TYPE_CHARACTERS = 100
MAX_AUTHORS = 50
MAX_LISTED = 20
USUAL_TYPE = "book"
# Our own notes in a source's metadata: of what it was made, what a person has said of it, which model reads it, and
# which of its chunks that one has not read yet.
DIGEST, SAID, EXTRACTED_WITH, UNASKED = "digest", "said", "extracted_with", "unasked"
ADDED, CHANGED, UNCHANGED = "added", "changed", "unchanged"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SourceDetails:
    """What a person says of a source: goes before what its file says, now and whenever it is ingested again, until they
    say something else, or say it empty. `extract`: whether a language model may read it this time."""

    title: str | None = None
    authors: tuple[str, ...] = ()
    type: str | None = None
    extract: bool = True


NO_DETAILS = SourceDetails()


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What became of a source: added, changed or unchanged; how much there is of it; how much had to be embedded."""

    source: Source
    outcome: str
    chunks: int
    embedded: int
    extractions: int
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Volume:
    """A source on its way in, with what is known of it from before. `unasked` are the chunks that a language model has
    yet to read."""

    source: Source
    chunks: list[Chunk]
    extractions: list[Extraction]
    asked: set[str]
    warnings: list[str]
    unasked: list[Chunk] = field(default_factory=list)
    embedded: int = 0

    def look(self) -> None:
        """Finds what a language model has yet to read."""
        self.unasked = [chunk for chunk in self.chunks if chunk.id not in self.asked and is_worth_asking(chunk)]

    def worth_asking(self) -> int:
        """How many of all chunks a language model reads, sooner or later."""
        return sum(map(is_worth_asking, self.chunks))

    def take(self, made: Extracted, of: Sequence[Chunk]) -> None:
        """Takes what a language model has made of some chunks."""
        self.extractions += made.extractions
        read = {chunk.id for chunk in of} - made.unclear.keys() - made.unasked.keys()
        self.unasked = [chunk for chunk in self.unasked if chunk.id not in read]

    def note(self, extractor: Extractor | None) -> None:
        """Writes into the source's metadata which model reads it, and what it has not read yet."""
        notes = dict(self.source.metadata)
        if extractor:
            notes[EXTRACTED_WITH] = extractor.model
        if notes.get(EXTRACTED_WITH):
            notes[UNASKED] = [chunk.id for chunk in self.unasked]
        self.source = replace(self.source, metadata=notes)

    def is_as(self, before: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> bool:
        """Whether whoever searches and cites finds what was there before."""
        told = [(each.title, each.authors, each.type, each.status) for each in (self.source, before)]
        return told[0] == told[1] and (self.chunks, self.extractions) == (chunks, extractions)

    def ingested(self, outcome: str) -> IngestResult:
        """What became of it."""
        counts = len(self.chunks), self.embedded, len(self.extractions)
        return IngestResult(self.source, outcome, *counts, tuple(self.warnings))


class IngestKnowledge:
    """Brings sources in and out, one at a time each."""

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
        self._locks = KeyedLocks()

    async def ingest(
        self, path: Path, about: SourceDetails = NO_DETAILS, progress: Progress | None = None
    ) -> IngestResult:
        """Makes a source of a file, in the place of what was made of it before. `progress` is told how much is done, of
        how much.

        Raises Invalid, in one line without the path, for a file that cannot be read; Unavailable when the model or a
        store fails: doing it again completes it.
        """
        await self._writer.open()
        where = await asyncio.to_thread(_absolute, path)
        book = await self._reader.read(await asyncio.to_thread(path.expanduser))  # a link by its own ending
        return await self._take(where, book, about, [], progress)

    async def ingest_together(
        self,
        folder: Path,
        files: Sequence[Path],
        about: SourceDetails = NO_DETAILS,
        progress: Progress | None = None,
    ) -> IngestResult:
        """Makes one source of the files of a folder, in the order given: a book of many pages. `progress` is told of
        the pages that are read, then of the chunks. A page that cannot be read is a warning. Raises as `ingest` does,
        Invalid when none can be read."""
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
        pages = [(file.stem, each) for file, each in found if isinstance(each, Book)]
        if not pages:
            raise Invalid(f"none of its {len(files)} files can be read: {'; '.join(problems[:MAX_LISTED])}")
        return await self._take(where, bind_pages(where.name, pages), about, problems, progress)

    async def remove(self, source_id: str) -> bool:
        """Removes a source with all that was made of it; whether it was there."""
        async with self._locks.lock([source_id]):
            return await self._writer.delete(source_id)

    async def find(self, reference: str) -> Source:
        """The source of that id, path or title, or whose title alone begins so. Raises NotFound."""
        return find_source(await self._store.list_sources(), reference)

    async def index_all(self, progress: Progress | None = None) -> int:
        """Makes the index hold exactly what is stored; returns how many points were not as they should be."""
        return await self._writer.index_all(progress)

    async def _take(
        self, path: Path, book: Book, about: SourceDetails, warnings: list[str], progress: Progress | None
    ) -> IngestResult:
        source_id = derive_id("source", path)
        async with self._locks.lock([source_id]):
            before = (await self._store.get_records([source_id], [], [])).sources.get(source_id)
            source = await asyncio.to_thread(_source, source_id, path, book, about, before, self._writer.embedder)
            chunks, extractions = await self._store.get_contents(source_id)
            extractor = self._extractor if about.extract else None
            volume = _Volume(source, chunks, [*extractions], _asked(before, chunks, extractions), warnings)
            held = (len(chunks), len(extractions))
            is_kept = _is_same(before, source) and await self._writer.is_indexed(source_id, *held)
            if before is not None and is_kept:
                volume.source = before
            else:
                await self._cut(volume, book, extractor)
                volume.embedded = await self._writer.save(volume.source, volume.chunks, volume.extractions, progress)
                is_kept = before is not None and not volume.embedded and volume.is_as(before, chunks, extractions)
            read = await self._extract(volume, extractor, progress) if extractor else 0
            return volume.ingested(ADDED if before is None else UNCHANGED if is_kept and not read else CHANGED)

    async def _cut(self, volume: _Volume, book: Book, extractor: Extractor | None) -> None:
        """Makes chunks of a book, and brings what was read out of it to its place among them. Raises Invalid for one
        without text."""
        before = volume.chunks
        volume.chunks = await asyncio.to_thread(cut_chunks, volume.source.id, book.blocks, self._writer.embedder)
        if not volume.chunks:
            raise Invalid("holds no text", details={"path": volume.source.path})
        volume.extractions, lost = carry_over_extractions(volume.extractions, before, volume.chunks, volume.asked)
        if lost:
            volume.warnings.append(
                f"imported extractions whose text is no longer there, kept for the source as a whole: {lost}"
            )
        await asyncio.to_thread(volume.look)
        volume.note(extractor)

    async def _extract(self, volume: _Volume, extractor: Extractor, progress: Progress | None) -> int:
        """Has the chunks read that were not read yet, and keeps what comes of it time and again: reading takes long,
        and costs. Returns how many were read."""
        await asyncio.to_thread(volume.look)
        waiting = volume.unasked
        left = Extracted()
        for start in range(0, len(waiting), SAVE_BATCH):
            some = waiting[start : start + SAVE_BATCH]

            def tell(done: int, _: int, start: int = start) -> None:
                if progress:
                    progress(start + done, len(waiting))

            made = await extractor.extract(volume.source.title, some, tell)
            volume.take(made, some)
            volume.note(extractor)
            volume.embedded += await self._writer.add_extractions(
                volume.source, made.extractions, volume.chunks, volume.extractions, notes=volume.source.metadata
            )
            left.unclear |= made.unclear
            if made.unasked:
                reason = next(iter(made.unasked.values()))
                left.unasked = {c.id: reason for c in volume.unasked if c.id not in left.unclear}
                break
        if volume.unasked:
            volume.warnings += left.warnings(of=await asyncio.to_thread(volume.worth_asking))
        return len(waiting) - len(volume.unasked)


def find_source(sources: Iterable[Source], reference: str) -> Source:
    """The one of that id, path or title, or whose title alone begins so, in whatever case. Raises NotFound."""
    known = list(sources)
    wanted = reference.strip().casefold()
    try:
        path = str(_absolute(Path(reference)))
    except (OSError, RuntimeError, ValueError):  # no path: a title may hold anything
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
                f"{reference!r} may be any of {len(found)} sources: {_named(found)}. Give the id of one",
                details={"reference": reference, "ids": [source.id for source in found[:MAX_LISTED]]},
            )
    there = (
        f"those that there are: {_named(known)}"
        if known
        else "there are none yet: `toolscript knowledge ingest` adds some"
    )
    raise NotFound(f"there is no source {reference!r}; {there}", details={"reference": reference})


def _named(sources: Sequence[Source]) -> str:
    told = ", ".join(f"{source.title!r} ({source.id})" for source in sources[:MAX_LISTED])
    return told if len(sources) <= MAX_LISTED else f"{told}, and {len(sources) - MAX_LISTED} more"


def _absolute(path: Path) -> Path:
    return path.expanduser().resolve()


def _source(
    source_id: str, path: Path, book: Book, about: SourceDetails, before: Source | None, embedder: Embedder
) -> Source:
    notes: Mapping[str, Any] = before.metadata if before else {}
    said = _said(notes.get(SAID), about)
    source = Source(
        source_id,
        said.get("type", USUAL_TYPE),
        said.get("title")
        or clean_line(book.title, MAX_TITLE_CHARACTERS)
        or clean_line(path.stem, MAX_TITLE_CHARACTERS)
        or replace_unencodable(path.name),
        tuple(said.get("authors") or _names(book.authors)),
        replace_unencodable(str(path)),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )
    own = {DIGEST: digest(source, said, book.blocks, embedder)} | ({SAID: said} if said else {})
    return replace(source, metadata={name: each for name, each in notes.items() if name != SAID} | own)


def _said(before: Any, about: SourceDetails) -> dict[str, Any]:
    """What a person has said of a source: now, else before. Notes may come from strangers: what is no text is
    nothing."""
    known = before if isinstance(before, Mapping) else {}
    said = {
        "title": clean_line(known.get("title") if about.title is None else about.title, MAX_TITLE_CHARACTERS),
        "authors": _names(about.authors or known.get("authors")),
        "type": clean_line(known.get("type") if about.type is None else about.type, MAX_TYPE_CHARACTERS),
    }
    return {name: each for name, each in said.items() if each}


def _names(said: object) -> list[str]:
    several = said if isinstance(said, list | tuple) else ()
    return [name for each in several if (name := clean_line(each, MAX_NAME_CHARACTERS))][:MAX_AUTHORS]


def _is_same(before: Source | None, source: Source) -> bool:
    """Whether a source is there already, all of it."""
    return (
        before is not None
        and before.status != SourceStatus.INDEXING
        and before.metadata.get(DIGEST) == source.metadata[DIGEST]
    )


def _asked(before: Source | None, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> set[str]:
    """The chunks that a language model has read already. Notes may come from strangers: what is no text is no id."""
    if before is None or not before.metadata.get(EXTRACTED_WITH):
        return {each.chunk_id for each in extractions if is_read(each)}
    left = before.metadata.get(UNASKED)
    unasked = {each for each in left if isinstance(each, str)} if isinstance(left, list) else set()
    return {chunk.id for chunk in chunks} - unasked
