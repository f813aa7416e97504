"""Knowledge as JSON lines: what there is, to be carried elsewhere, and what was made elsewhere, to be taken in.

A line is `{"source": …}`, `{"chunk": …}` or `{"extraction": …}`. A source with chunks takes the place of what was there
under its id, and comes whole or not at all: when a line of it is refused, or fewer lines are there than it says that it
has, what is there stays. Whatever comes without a source is added, line by line, to what is there.

Of the notes that an ingest leaves in a source's metadata, what it was made of (`digest`) is not believed, because
nobody has compared these lines with a file: the next ingest of the file cuts it anew, which takes seconds, and embeds
and has read only what differs. It is kept where what comes is what is there. The other notes (who has read what, what a
person has said) are taken as they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Chunk, Extraction, Source, SourceStatus
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.stores import KnowledgeReader, KnowledgeStore
from toolscript.services.knowledge.book_records import OF_NO_CHUNK
from toolscript.services.knowledge.ingest import DIGEST
from toolscript.services.knowledge.json_lines import (
    KINDS,
    Record,
    chunk_line,
    chunk_of,
    extraction_line,
    extraction_of,
    find_reference,
    source_line,
    source_of,
)
from toolscript.services.knowledge.source_writer import Progress, SourceWriter

MAX_REFERENCE_CHARACTERS = 200

Measure = Callable[[str], int]
T = TypeVar("T", Chunk, Extraction)


@dataclass(slots=True)
class Imported:
    """How many lines of each kind were taken in; how many of the sources were not there before, and how many were there
    and are something else now; how many texts had to be embedded; and which lines were not taken in: their numbers,
    from 1, and why."""

    sources: int = 0
    added: int = 0
    changed: int = 0
    chunks: int = 0
    extractions: int = 0
    embedded: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)

    @contextmanager
    def refusing(self, number: int) -> Iterator[None]:
        """Refuses the line of that number if something is wrong with it."""
        try:
            yield
        except Invalid as error:
            self.refused.append((number, error.message))


@dataclass(slots=True)
class _Parcel:
    """What lines say of one source: itself, if it is among them, and what it has, with the numbers of the lines."""

    source: Source | None = None
    number: int = 0
    find_reference: tuple[int | None, int | None] = (None, None)
    """How many chunks and extractions the source's own line says that it has."""
    chunks: list[tuple[int, Chunk]] = field(default_factory=list)
    extractions: list[tuple[int, Extraction]] = field(default_factory=list)
    refused: int = 0

    def add_source(self, number: int, source: Source, find_reference: tuple[int | None, int | None]) -> None:
        """Takes what a line says of the source itself. Raises Invalid when another says something else."""
        if self.source and (self.source, self.find_reference) != (source, find_reference):
            self.refused += 1
            raise Invalid(f"the source {source.id} is on another line already, with something else")
        self.source, self.number, self.find_reference = source, number, find_reference

    def add(self, number: int, kind: str, told: Record, source_id: str, measure: Measure) -> None:
        """Takes what a line says of what the source has. Raises Invalid."""
        try:
            if kind == "chunk":
                self.chunks.append((number, chunk_of(told, source_id, measure)))
            else:
                self.extractions.append((number, extraction_of(told, source_id)))
        except Invalid:
            self.refused += 1
            raise

    def problem(self, chunks: int, extractions: int) -> str | None:
        """Why the source cannot be taken when so much of it is usable."""
        if self.source is None:
            return None
        stays = f"nothing of the source {self.source.id} is taken, and what is there stays"
        if self.refused:
            return f"{stays}: {self.refused} of its lines cannot be used"
        counts = [*zip(("chunks", "extractions"), self.find_reference, (chunks, extractions), strict=True)]
        missing = [f"{found} of its {said} {kind}" for kind, said, found in counts if said not in (None, found)]
        return f"{stays}: the file has {' and '.join(missing)}; export it again" if missing else None


@dataclass(frozen=True, slots=True)
class _Shelved:
    """A source with all it has, extractions by id."""

    source: Source
    chunks: Sequence[Chunk]
    extractions: Sequence[Extraction]

    def added_to(self, held: _Shelved) -> list[Extraction] | None:
        """The extractions that this has more; None where something else differs."""
        before = {each.id for each in held.extractions}
        same = [each for each in self.extractions if each.id in before]
        if (self.source, self.chunks, same) != (held.source, held.chunks, held.extractions):
            return None
        return [each for each in self.extractions if each.id not in before]


async def export_lines(reader: KnowledgeReader, sources: Sequence[Source]) -> AsyncIterator[dict[str, Any]]:
    """Each source with its chunks, in reading order, and its extractions; one whose chunk is gone is of none."""
    for source in sources:
        chunks, extractions = await reader.get_contents(source.id)
        yield source_line(source, len(chunks), len(extractions))
        for chunk in chunks:
            yield chunk_line(chunk)
        there = {chunk.id for chunk in chunks}
        for extraction in extractions:
            yield extraction_line(
                extraction if extraction.chunk_id in there else replace(extraction, chunk_id=OF_NO_CHUNK)
            )


class ImportKnowledge:
    """Takes in lines. What is there already, and the same, is left alone."""

    def __init__(self, store: KnowledgeStore, index: VectorIndex, embedder: Embedder | None) -> None:
        self._store = store
        self._writer = SourceWriter(store, index, embedder)

    async def take(self, lines: Iterable[Mapping[str, Any]], progress: Progress | None = None) -> Imported:
        """Takes in what it can, source by source. A line that cannot be used is refused, and the others go on.
        `progress` is told how much of a source is done, of how much. Raises Unavailable when the model or a store
        fails: doing it again completes it."""
        await self._writer.open()
        taken = Imported()
        for source_id, parcel in self._sorted(lines, await self._store.list_sources(), taken).items():
            await self._take(source_id, parcel, taken, progress)
        taken.refused.sort()
        return taken

    def _sorted(self, lines: Iterable[Record], known: Sequence[Source], taken: Imported) -> dict[str, _Parcel]:
        """The lines by the source that they are about, which may stand anywhere."""
        parcels: dict[str, _Parcel] = {}
        others: list[tuple[int, str, Record]] = []
        spoilt: set[str] = set()
        for number, line in enumerate(lines, start=1):
            with taken.refusing(number):
                kind, told = _record(line)
                if kind == "source":
                    _add_source(parcels, number, told, spoilt)
                else:
                    others.append((number, kind, told))
        for source_id in spoilt & parcels.keys():
            parcels[source_id].refused += 1
        given = [parcel.source for parcel in parcels.values() if parcel.source]
        find = _Finder([*known, *given], spoilt - parcels.keys())
        for number, kind, told in others:
            with taken.refusing(number):
                source_id = find(told)
                parcel = parcels.setdefault(source_id, _Parcel())
                parcel.add(number, kind, told, source_id, self._writer.embedder.count_tokens)
        return parcels

    async def _take(self, source_id: str, parcel: _Parcel, taken: Imported, progress: Progress | None) -> None:
        before = (await self._store.get_records([source_id], [], [])).sources.get(source_id)
        held_chunks, held_extractions = await self._store.get_contents(source_id)
        source = parcel.source or before
        if source is None or source.status == SourceStatus.INDEXING:
            told = f"the source {source_id} is not complete: ingest it again, then this line can be taken"
            taken.refused += [(number, told) for number, _ in (*parcel.chunks, *parcel.extractions)]
            return
        wrong = await self._strangers(source_id, parcel)
        chunks = _usable(parcel.chunks, lambda chunk: wrong.get(chunk.id), parcel, taken)
        is_whole = parcel.source is not None and bool(chunks)
        all_chunks = chunks if is_whole else _joined(held_chunks, chunks)
        there = {chunk.id for chunk in all_chunks} | {OF_NO_CHUNK}

        def problem(extraction: Extraction) -> str | None:
            missing = (
                None if extraction.chunk_id in there else f"there is no chunk {extraction.chunk_id!r} in its source"
            )
            return wrong.get(extraction.id) or missing

        extractions = _dated(_usable(parcel.extractions, problem, parcel, taken), held_extractions)
        why = parcel.problem(len(chunks), len(extractions))
        if why:
            taken.refused.append((parcel.number, why))
        if why or not (parcel.source or chunks or extractions):
            return
        taken.chunks += len(chunks)
        taken.extractions += len(extractions)
        all_extractions = _joined([] if is_whole else held_extractions, extractions)
        if parcel.source:
            source = _noted(source, before, is_same=all_chunks == held_chunks)
        now = _Shelved(source, all_chunks, sorted(all_extractions, key=lambda each: each.id))
        held = _Shelved(before, held_chunks, held_extractions) if before else None
        if parcel.source:
            taken.sources += 1
            taken.added += held is None
            taken.changed += held is not None and now != held
        taken.embedded += await self._keep(now, held, progress)

    async def _keep(self, now: _Shelved, held: _Shelved | None, progress: Progress | None) -> int:
        """Makes a source be as it should be, for what that takes; returns how much had to be embedded."""
        fresh = now.added_to(held) if held else None
        if held is None or fresh is None or not await self._is_indexed(held):
            return await self._writer.save(now.source, now.chunks, now.extractions, progress)
        return await self._writer.add_extractions(now.source, fresh, now.chunks, now.extractions) if fresh else 0

    async def _is_indexed(self, held: _Shelved) -> bool:
        return await self._writer.is_indexed(held.source.id, len(held.chunks), len(held.extractions))

    async def _strangers(self, source_id: str, parcel: _Parcel) -> dict[str, str]:
        """What has the id of something that another source has, and what to say of it."""
        shelf = await self._store.get_records(
            [], [c.id for _, c in parcel.chunks], [e.id for _, e in parcel.extractions]
        )
        owners = {c.id: c.source_id for c in shelf.chunks.values()}
        owners |= {e.id: e.source_id for e in shelf.extractions.values()}
        return {
            i: f"the id {i} is taken: the source {owner} has it" for i, owner in owners.items() if owner != source_id
        }


def _record(line: Record) -> tuple[str, Record]:
    match [*line.items()]:
        case [(str(kind), dict() as told)] if kind in KINDS:
            return kind, told
        case _:
            raise Invalid('is no record: give {"source": {…}}, {"chunk": {…}} or {"extraction": {…}}')


def _add_source(parcels: dict[str, _Parcel], number: int, told: Record, spoilt: set[str]) -> None:
    """Takes a source's own line. Of one that cannot be used the names are noted: its other lines are not to be taken
    for additions to what is there."""
    try:
        source, counts = source_of(told), find_reference(told)
    except Invalid:
        spoilt.update(name for name in (told.get("id"), told.get("_id"), told.get("title")) if isinstance(name, str))
        raise
    parcels.setdefault(source.id, _Parcel()).add_source(number, source, counts)


class _Finder:
    """Finds the source that a line says it is of, by its id or by its title, either to the letter. One that is given
    another title goes by both."""

    def __init__(self, sources: Iterable[Source], spoilt: Collection[str]) -> None:
        self._spoilt = spoilt
        self._found: dict[str, set[str]] = {}
        for source in sources:
            for name in (source.id, source.title):
                self._found.setdefault(name, set()).add(source.id)

    def __call__(self, told: Record) -> str:
        reference = told.get("source_id") or told.get("source")
        if not isinstance(reference, str) or not reference.strip():
            raise Invalid("says no source: give source_id, the id or the title of a source")
        if reference in self._spoilt:
            raise Invalid("the line of its source cannot be used")
        found = self._found.get(reference, set())
        if len(found) != 1:
            raise Invalid(
                f"there is no source {reference[:MAX_REFERENCE_CHARACTERS]!r}, or more than one of that title"
            )
        return next(iter(found))


def _usable(
    numbered: Sequence[tuple[int, T]], problem_of: Callable[[T], str | None], parcel: _Parcel, taken: Imported
) -> list[T]:
    """Those that nothing is wrong with, each once."""
    found: dict[str, T] = {}
    for number, each in numbered:
        problem = problem_of(each)
        if problem is None and found.setdefault(each.id, each) != each:
            problem = f"the id {each.id} is on another line already, with something else"
        if problem:
            parcel.refused += 1
            taken.refused.append((number, problem))
    return list(found.values())


def _joined(held: Sequence[T], given: Sequence[T]) -> list[T]:
    """What is there, in its order, and what is given, in its place or behind it."""
    return list(({each.id: each for each in held} | {each.id: each for each in given}).values())


def _noted(source: Source, held: Source | None, *, is_same: bool) -> Source:
    """A source as it comes in: when it came in first, where it does not say so; and made of what it is known to be made
    of, which is so only where it has the chunks that are there."""
    notes = {name: each for name, each in source.metadata.items() if name != DIGEST}
    if held is None:
        return replace(source, ingested_at=source.ingested_at or _now(), metadata=notes)
    told = [(each.type, each.title, each.authors, each.path) for each in (source, held)]
    if is_same and told[0] == told[1] and DIGEST in held.metadata:
        notes[DIGEST] = held.metadata[DIGEST]
    return replace(source, ingested_at=source.ingested_at or held.ingested_at, metadata=notes)


def _dated(given: Sequence[Extraction], held: Sequence[Extraction]) -> list[Extraction]:
    """Extractions; those that do not say when they were made: when they came in first."""
    known = {each.id: each.extracted_at for each in held}
    return [replace(each, extracted_at=each.extracted_at or known.get(each.id) or _now()) for each in given]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
