"""Knowledge as JSON lines: what there is, to be carried elsewhere, and what was made elsewhere, to be taken in.

A line is `{"source": …}`, `{"chunk": …}` or `{"extraction": …}`. A source with chunks takes the place of what was there
under its id; whatever comes without them is added to what is there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.knowledge import Chunk, Extraction, Source, SourceStatus
from toolscript.ports import Embedder, KnowledgeReader, KnowledgeStore, VectorIndex
from toolscript.services.ingest_knowledge import OF_NO_CHUNK, find_source
from toolscript.services.knowledge_lines import (
    KINDS,
    Record,
    chunk_line,
    chunk_of,
    extraction_line,
    extraction_of,
    source_line,
    source_of,
)
from toolscript.services.knowledge_shelving import Progress, Shelving

LONGEST_REFERENCE = 200

T = TypeVar("T", Chunk, Extraction)


@dataclass(slots=True)
class Imported:
    """How many lines of each kind were taken in, how many texts had to be embedded, and which lines were not taken in:
    their numbers, from 1, and why."""

    sources: int = 0
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
    chunks: list[tuple[int, Chunk]] = field(default_factory=list)
    extractions: list[tuple[int, Extraction]] = field(default_factory=list)


async def export_lines(reader: KnowledgeReader, sources: Sequence[Source]) -> AsyncIterator[dict[str, Any]]:
    """Each source with its chunks, in reading order, and its extractions."""
    for source in sources:
        chunks, extractions = await reader.contents(source.id)
        yield source_line(source)
        for chunk in chunks:
            yield chunk_line(chunk)
        for extraction in extractions:
            yield extraction_line(extraction)


class ImportKnowledge:
    """Takes in lines. What is there already, and the same, is left alone."""

    def __init__(self, store: KnowledgeStore, index: VectorIndex, embedder: Embedder | None) -> None:
        self._store = store
        self._shelving = Shelving(store, index, embedder)

    async def take(self, lines: Iterable[Mapping[str, Any]], progress: Progress | None = None) -> Imported:
        """Takes in what it can, source by source. A line that cannot be used is refused, and the others go on.
        `progress` is told how much of a source is done, of how much. Raises Unavailable when the model or a store
        fails: doing it again completes it."""
        await self._shelving.open()
        taken = Imported()
        for source_id, parcel in self._sorted(lines, await self._store.sources(), taken).items():
            await self._take(source_id, parcel, taken, progress)
        taken.refused.sort()
        return taken

    def _sorted(self, lines: Iterable[Record], known: Sequence[Source], taken: Imported) -> dict[str, _Parcel]:
        """The lines by the source that they are about, which may stand anywhere."""
        parcels: dict[str, _Parcel] = {}
        others: list[tuple[int, str, Record]] = []
        for number, line in enumerate(lines, start=1):
            with taken.refusing(number):
                kind, told = _record(line)
                if kind == "source":
                    _add_source(parcels, source_of(told))
                else:
                    others.append((number, kind, told))
        sources = {source.id: source for source in known} | {i: p.source for i, p in parcels.items() if p.source}
        find = _Finder(sources)
        for number, kind, told in others:
            with taken.refusing(number):
                source_id = find(told)
                parcel = parcels.setdefault(source_id, _Parcel())
                if kind == "chunk":
                    chunk = chunk_of(told, source_id, self._shelving.embedder.count_tokens)
                    parcel.chunks.append((number, chunk))
                else:
                    parcel.extractions.append((number, extraction_of(told, source_id)))
        return parcels

    async def _take(self, source_id: str, parcel: _Parcel, taken: Imported, progress: Progress | None) -> None:
        held = (await self._store.shelf([source_id], [], [])).sources.get(source_id)
        held_chunks, held_extractions = await self._store.contents(source_id)
        source = _dated_source(parcel.source, held) if parcel.source else held
        wrong = await self._strangers(source_id, parcel)
        if source is None or (parcel.source is None and source.status != SourceStatus.READY):
            wrong = dict.fromkeys(
                [*(chunk.id for _, chunk in parcel.chunks), *(extraction.id for _, extraction in parcel.extractions)],
                f"the source {source_id} is not complete: ingest it again, then this line can be taken",
            )
        chunks = _usable(parcel.chunks, lambda chunk: wrong.get(chunk.id), taken)
        is_whole = parcel.source is not None and bool(chunks)
        all_chunks = chunks if is_whole else _joined(held_chunks, chunks)
        there = {chunk.id for chunk in all_chunks} | {OF_NO_CHUNK}

        def problem(extraction: Extraction) -> str | None:
            missing = (
                None if extraction.chunk_id in there else f"there is no chunk {extraction.chunk_id!r} in its source"
            )
            return wrong.get(extraction.id) or missing

        extractions = _dated(_usable(parcel.extractions, problem, taken), held_extractions)
        all_extractions = _joined([] if is_whole else held_extractions, extractions)
        taken.sources += parcel.source is not None
        taken.chunks += len(chunks)
        taken.extractions += len(extractions)
        now = (source, all_chunks, sorted(all_extractions, key=lambda each: each.id))
        if source and not (now == (held, held_chunks, held_extractions) and await self._shelving.holds(source_id)):
            taken.embedded += await self._shelving.keep(source, all_chunks, all_extractions, progress)

    async def _strangers(self, source_id: str, parcel: _Parcel) -> dict[str, str]:
        """What has the id of something that another source has, and what to say of it."""
        shelf = await self._store.shelf([], [c.id for _, c in parcel.chunks], [e.id for _, e in parcel.extractions])
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


def _add_source(parcels: dict[str, _Parcel], source: Source) -> None:
    parcel = parcels.setdefault(source.id, _Parcel())
    if parcel.source not in (None, source):
        raise Invalid(f"the source {source.id} is on another line already, with something else")
    parcel.source = source


class _Finder:
    """Finds the source that a line says it is of, by id or by title, and looks for each but once."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._found: dict[str, str | None] = {source_id: source_id for source_id in sources}

    def __call__(self, told: Record) -> str:
        reference = told.get("source_id") or told.get("source")
        if not isinstance(reference, str) or not reference.strip():
            raise Invalid("says no source: give source_id, the id or the title of a source")
        if reference not in self._found:
            try:
                self._found[reference] = find_source(self._sources.values(), reference).id
            except NotFound:
                self._found[reference] = None
        found = self._found[reference]
        if found is None:
            raise Invalid(f"there is no source {reference[:LONGEST_REFERENCE]!r}, or more than one of that title")
        return found


def _usable(numbered: Sequence[tuple[int, T]], problem_of: Callable[[T], str | None], taken: Imported) -> list[T]:
    """Those that nothing is wrong with, each once."""
    found: dict[str, T] = {}
    for number, each in numbered:
        problem = problem_of(each)
        if problem is None and found.setdefault(each.id, each) != each:
            problem = f"the id {each.id} is on another line already, with something else"
        if problem:
            taken.refused.append((number, problem))
    return list(found.values())


def _joined(held: Sequence[T], given: Sequence[T]) -> list[T]:
    """What is there, in its order, and what is given, in its place or behind it."""
    return list(({each.id: each for each in held} | {each.id: each for each in given}).values())


def _dated_source(source: Source, held: Source | None) -> Source:
    """A source that does not say when it came in: when it came in first."""
    return replace(source, ingested_at=source.ingested_at or (held.ingested_at if held else _now()))


def _dated(given: Sequence[Extraction], held: Sequence[Extraction]) -> list[Extraction]:
    """Extractions; those that do not say when they were made: when they came in first."""
    known = {each.id: each.extracted_at for each in held}
    return [replace(each, extracted_at=each.extracted_at or known.get(each.id) or _now()) for each in given]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
