"""The write path of knowledge: read a book, cut it, embed what is new, store it, index it, and have a language model
read out of it what is worth knowing.

Whatever has an id of its own making keeps it: a chunk that says the same at the same place is the same chunk, with its
vector and its extractions. So a book that has changed costs what has changed, and one that was interrupted what is
left.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.knowledge import Block, Book, Chunk, Extraction, Position, Source, SourceStatus, own_id
from toolscript.ports import BookReader, Embedder, KnowledgeStore, VectorIndex
from toolscript.retrieval.book_chunks import RECIPE, cut
from toolscript.retrieval.words import sayable
from toolscript.services.extract import Extractor, is_worth_asking
from toolscript.services.knowledge_points import most_tokens
from toolscript.services.knowledge_shelving import Shelving
from toolscript.services.turns import Turns

# The most that prose repeats of the piece before it, as a part of a chunk. Whole sentences do so, which is less.
OVERLAP_SHARE = 5
# So many chunks are read by a language model before what it said is kept.
KEPT_TOGETHER = 64
LONGEST_TITLE = 500
MOST_AUTHORS = 50
MOST_NAMED = 20
# Our own notes in a source's metadata.
DIGEST, EXTRACTED_WITH, UNASKED = "digest", "extracted_with", "unasked"
# The chunk of an extraction that is about a source as a whole.
OF_NO_CHUNK = ""
ADDED, CHANGED, UNCHANGED = "added", "changed", "unchanged"

_NUMBERED = re.compile(r"(?:(?:Chapter|Appendix)\s+)?(\d+|[A-Z](?=[.:]))((?:\.\d+)*)[.:]?\s")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class About:
    """What a person says of a source: goes before what its file says. `extract`: whether a language model may read
    it."""

    title: str | None = None
    authors: tuple[str, ...] = ()
    type: str = "book"
    extract: bool = True


NOTHING_SAID = About()


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of a source: added, changed or unchanged; how much there is of it; how much had to be embedded."""

    source: Source
    outcome: str
    chunks: int
    embedded: int
    extractions: int
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Volume:
    """A source on its way in, with what is known of it from before."""

    source: Source
    chunks: list[Chunk]
    extractions: list[Extraction]
    asked: set[str]
    warnings: list[str]
    embedded: int = 0

    @property
    def unasked(self) -> list[Chunk]:
        """The chunks that a language model has yet to read."""
        return [chunk for chunk in self.chunks if chunk.id not in self.asked and is_worth_asking(chunk)]

    def note(self, extractor: Extractor | None) -> None:
        """Writes into the source's metadata which model reads it, and what it has not read yet."""
        notes = dict(self.source.metadata)
        if extractor:
            notes[EXTRACTED_WITH] = extractor.model
        if notes.get(EXTRACTED_WITH):
            notes[UNASKED] = [chunk.id for chunk in self.unasked]
        self.source = replace(self.source, metadata=notes)

    def ingested(self, outcome: str) -> Ingested:
        """What became of it."""
        source = self.source.with_status(SourceStatus.READY)
        return Ingested(source, outcome, len(self.chunks), self.embedded, len(self.extractions), tuple(self.warnings))


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
        self._shelving = Shelving(store, index, embedder)
        self._reader = reader
        self._extractor = extractor
        self._turns = Turns()

    async def ingest(self, path: Path, about: About = NOTHING_SAID, progress: Progress | None = None) -> Ingested:
        """Makes a source of a file, in the place of what was made of it before. `progress` is told how much is done, of
        how much.

        Raises Invalid, in one line without the path, for a file that cannot be read; Unavailable when the model or a
        store fails: doing it again completes it.
        """
        await self._shelving.open()
        where = await asyncio.to_thread(_absolute, path)
        book = await self._reader.read(where)
        return await self._take(where, book, about, [], progress)

    async def ingest_together(
        self,
        folder: Path,
        files: Sequence[Path],
        about: About = NOTHING_SAID,
        progress: Progress | None = None,
    ) -> Ingested:
        """Makes one source of the files of a folder, in the order given: a book of many pages. `progress` is told of
        the pages that are read, then of the chunks. A page that cannot be read is a warning. Raises as `ingest` does,
        Invalid when none can be read."""
        await self._shelving.open()
        where = await asyncio.to_thread(_absolute, folder)
        pages: list[tuple[str, Book]] = []
        problems = []
        for number, file in enumerate(files, start=1):
            try:
                pages.append((file.stem, await self._reader.read(file)))
            except Invalid as error:
                problems.append(f"{file.name}: {error.message}")
            if progress:
                progress(number, len(files))
        if not pages:
            raise Invalid(f"none of its {len(files)} files can be read: {'; '.join(problems[:MOST_NAMED])}")
        return await self._take(where, _bound(where.name, pages), about, problems, progress)

    async def remove(self, source_id: str) -> bool:
        """Removes a source with all that was made of it; whether it was there."""
        async with self._turns.of([source_id]):
            return await self._shelving.drop(source_id)

    async def find(self, reference: str) -> Source:
        """The source of that id, path or title, or whose title alone begins so. Raises NotFound."""
        return find_source(await self._store.sources(), reference)

    async def index_all(self, progress: Progress | None = None) -> int:
        """Makes the index hold exactly what is stored; returns how many points were not as they should be."""
        return await self._shelving.index_all(progress)

    async def _take(
        self, path: Path, book: Book, about: About, warnings: list[str], progress: Progress | None
    ) -> Ingested:
        source_id = own_id("source", path)
        async with self._turns.of([source_id]):
            before = (await self._store.shelf([source_id], [], [])).sources.get(source_id)
            source = await asyncio.to_thread(_source, source_id, path, book, about, before, self._shelving.embedder)
            chunks, extractions = await self._store.contents(source_id)
            extractor = self._extractor if about.extract else None
            volume = _Volume(source, chunks, extractions, _asked(before, chunks), warnings)
            is_kept = _is_same(before, source) and await self._shelving.holds(source_id)
            if before is not None and is_kept:
                volume.source = before
            else:
                await self._cut(volume, book)
                volume.note(extractor)
                volume.embedded = await self._shelving.keep(volume.source, volume.chunks, volume.extractions, progress)
            read = await self._extract(volume, extractor, progress) if extractor else 0
            return volume.ingested(ADDED if before is None else UNCHANGED if is_kept and not read else CHANGED)

    async def _cut(self, volume: _Volume, book: Book) -> None:
        """Makes chunks of a book; what was read out of those that are still there stays. Raises Invalid for one without
        text."""
        volume.chunks = await asyncio.to_thread(_chunks, volume.source, book.blocks, self._shelving.embedder)
        if not volume.chunks:
            raise Invalid("holds no text", details={"path": volume.source.path})
        kept = {chunk.id for chunk in volume.chunks} | {OF_NO_CHUNK}
        volume.extractions = [extraction for extraction in volume.extractions if extraction.chunk_id in kept]

    async def _extract(self, volume: _Volume, extractor: Extractor, progress: Progress | None) -> int:
        """Has the chunks read that were not read yet, and keeps what comes of it time and again: reading takes long,
        and costs. Returns how many were read."""
        waiting = volume.unasked
        for start in range(0, len(waiting), KEPT_TOGETHER):
            some = waiting[start : start + KEPT_TOGETHER]

            def tell(done: int, _: int, start: int = start) -> None:
                if progress:
                    progress(start + done, len(waiting))

            made = await extractor.extract(volume.source.title, some, tell)
            volume.warnings += made.warnings
            volume.asked |= {chunk.id for chunk in some} - set(made.unasked)
            fresh = {extraction.id: extraction for extraction in made.extractions}
            volume.extractions = [*(e for e in volume.extractions if e.id not in fresh), *fresh.values()]
            volume.note(extractor)
            volume.embedded += await self._shelving.keep(volume.source, volume.chunks, volume.extractions)
            if made.unasked:
                break
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
                details={"reference": reference, "ids": [source.id for source in found[:MOST_NAMED]]},
            )
    there = (
        f"those that there are: {_named(known)}"
        if known
        else "there are none yet: `toolscript knowledge ingest` adds some"
    )
    raise NotFound(f"there is no source {reference!r}; {there}", details={"reference": reference})


def _named(sources: Sequence[Source]) -> str:
    told = ", ".join(f"{source.title!r} ({source.id})" for source in sources[:MOST_NAMED])
    return told if len(sources) <= MOST_NAMED else f"{told}, and {len(sources) - MOST_NAMED} more"


def _absolute(path: Path) -> Path:
    return path.expanduser().resolve()


def _bound(name: str, pages: Sequence[tuple[str, Book]]) -> Book:
    """The pages of a folder as one book. What has no chapter on a page is in a chapter of the page's own title. A
    chapter that is numbered as a section of the one before it (6.2 after 6) is that section."""
    blocks = []
    chapter = ""
    for stem, page in pages:
        for block in page.blocks:
            own, section = block.position.chapter or page.title or stem, block.position.section
            if _is_section_of(chapter, own):
                own, section = chapter, section or own
            else:
                chapter = own
            blocks.append(replace(block, position=replace(block.position, chapter=own, section=section)))
    title = next((page.title for stem, page in pages if stem.casefold() == "index" and page.title), name)
    authors = dict.fromkeys(author for _, page in pages for author in page.authors)
    return Book(title, tuple(authors), tuple(blocks))


def _is_section_of(chapter: str, heading: str) -> bool:
    above, below = _NUMBERED.match(chapter), _NUMBERED.match(heading)
    return bool(above and below and not above[2] and below[2] and above[1] == below[1])


def _source(source_id: str, path: Path, book: Book, about: About, before: Source | None, embedder: Embedder) -> Source:
    title = " ".join(_clean(about.title or book.title or path.stem).split())[:LONGEST_TITLE] or path.name
    authors = tuple(filter(None, (" ".join(_clean(author).split()) for author in about.authors or book.authors)))
    source = Source(
        source_id,
        about.type,
        title,
        authors[:MOST_AUTHORS],
        sayable(str(path)),
        datetime.now(UTC).isoformat(timespec="seconds"),
        SourceStatus.INDEXING,
    )
    notes: Mapping[str, Any] = before.metadata if before else {}
    return replace(source, metadata={**notes, DIGEST: _digest(source, book.blocks, embedder)})


def _digest(source: Source, blocks: Sequence[Block], embedder: Embedder) -> str:
    """Of all that chunks and their vectors are made of."""
    made_of = hashlib.sha256()
    recipe = [RECIPE, most_tokens(embedder), embedder.model, source.title, source.authors, source.type, source.path]
    for part in (recipe, *((b.kind, b.position.chapter, b.position.section, b.position.page, b.text) for b in blocks)):
        made_of.update(json.dumps(part).encode() + b"\n")
    return made_of.hexdigest()[:32]


def _is_same(before: Source | None, source: Source) -> bool:
    """Whether a source is there already, all of it."""
    return (
        before is not None
        and before.status == SourceStatus.READY
        and before.metadata.get(DIGEST) == source.metadata[DIGEST]
    )


def _chunks(source: Source, blocks: Sequence[Block], embedder: Embedder) -> list[Chunk]:
    size = most_tokens(embedder)
    measure = embedder.count_tokens
    chunks = []
    seen: Counter[tuple[str, Position]] = Counter()
    for piece in cut([_cleaned(block) for block in blocks], size=size, overlap=size // OVERLAP_SHARE, measure=measure):
        place = piece.position
        twins = seen[piece.text, place]
        seen[piece.text, place] += 1
        chunk_id = own_id(source.id, piece.text, place.chapter, place.section, place.page, twins)
        chunks.append(Chunk(chunk_id, source.id, piece.text, place, measure(piece.text)))
    return chunks


def _asked(before: Source | None, chunks: Sequence[Chunk]) -> set[str]:
    """The chunks that a language model has read already."""
    if before is None or not before.metadata.get(EXTRACTED_WITH):
        return set()
    left = before.metadata.get(UNASKED)
    return {chunk.id for chunk in chunks} - set(left if isinstance(left, list) else ())


def _clean(text: str) -> str:
    """A text that every store can hold."""
    return sayable(text).replace("\0", "")


def _cleaned(block: Block) -> Block:
    place = block.position
    position = replace(place, chapter=_clean(place.chapter), section=_clean(place.section))
    return replace(block, text=_clean(block.text), position=position)
