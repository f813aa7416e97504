"""The surroundings of passages: duplicates in other sources fold into one hit, and passages grow to their section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from toolscript.domain.knowledge import Chunk, Position
from toolscript.retrieval.text.words import words
from toolscript.services.knowledge.points import CHUNK

MAX_SECTION_CHARACTERS = 6_000
# Two texts are nearly the same if they share this many of their runs of SHINGLE words, as a share of all.
MIN_SHARED_RUNS = 0.9
SHINGLE = 5
# Fewer characters that two chunks have in common at their border are a coincidence.
MIN_OVERLAP = 20


class PassageContext(StrEnum):
    """How much a hit shows: the passage, or its section as far as the limit goes."""

    PASSAGE = "passage"
    SECTION = "section"


@dataclass(frozen=True, slots=True)
class KnowledgeHit:
    """A chunk or an extraction that was found, with its citation. `relevance` is the estimated probability that it is
    relevant. `copies` have nearly the same text in other sources; `merged` are the ids of further hits with a text that
    is part of this hit's text."""

    id: str
    score: float
    type: str
    content: str
    source_id: str
    chunk_id: str | None
    title: str
    authors: tuple[str, ...]
    position: Position
    date: str | None = None
    relevance: float | None = None
    copies: tuple[KnowledgeHit, ...] = ()
    merged: tuple[str, ...] = ()


def fold_copies(hits: Sequence[KnowledgeHit]) -> list[KnowledgeHit]:
    """The hits without chunks that nearly repeat a better chunk of another source. The better hit lists them as
    copies."""
    kept: list[KnowledgeHit] = []
    runs: list[frozenset[tuple[str, ...]]] = []
    for hit in hits:
        own = _cut_runs(hit.content) if hit.type == CHUNK else frozenset()
        original = next(
            (n for n, each in enumerate(kept) if own and each.source_id != hit.source_id and _is_copy(own, runs[n])),
            None,
        )
        if original is None:
            kept.append(hit)
            runs.append(own)
        else:
            kept[original] = replace(kept[original], copies=(*kept[original].copies, hit))
    return kept


def widen_hits(hits: Sequence[KnowledgeHit], chunks: Mapping[str, Sequence[Chunk]], limit: int) -> list[KnowledgeHit]:
    """At most `limit` hits with the text around each passage: its section, or the nearest part of it that is short
    enough. Where the texts of hits would touch, the best hit remains, with the text of all. `chunks` are the chunks of
    each source, in order."""
    places = {chunk.id: (source_id, n) for source_id, own in chunks.items() for n, chunk in enumerate(own)}
    spans: list[_Span] = []
    for hit in hits:
        span = _Span(hit, "", 0, -1)
        source_id, number = places.get(hit.id, ("", -1))
        if hit.type == CHUNK and number >= 0:
            span = _Span(hit, source_id, *_find_section(chunks[source_id], number))
        touched = next((each for each in spans if each.touches(span, chunks)), None)
        if touched:
            touched.merge(span)
        elif len(spans) < limit:
            spans.append(span)
        else:  # later hits would only lengthen better ones
            break
    return [span.build_hit(chunks) for span in spans]


@dataclass(slots=True)
class _Span:
    """A hit, and the numbers of the first and last chunk of its text; none for an extraction."""

    hit: KnowledgeHit
    source_id: str
    first: int
    last: int

    def touches(self, other: _Span, chunks: Mapping[str, Sequence[Chunk]]) -> bool:
        is_near = self.source_id == other.source_id and other.first <= self.last + 1 and self.first <= other.last + 1
        if not is_near or self.last < 0 or other.last < 0:
            return False
        own = chunks[self.source_id]
        return _heading(own[self.first]) == _heading(own[other.first])

    def merge(self, other: _Span) -> None:
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.hit = replace(self.hit, merged=(*self.hit.merged, other.hit.id))

    def build_hit(self, chunks: Mapping[str, Sequence[Chunk]]) -> KnowledgeHit:
        own = chunks.get(self.source_id, ())[self.first : self.last + 1]
        if not own:
            return self.hit
        content = own[0].content
        for chunk in own[1:]:
            # Neighbouring chunks overlap: the beginning may repeat the end of the text.
            sizes = range(min(len(content), len(chunk.content)), MIN_OVERLAP, -1)
            repeated = next((size for size in sizes if content.endswith(chunk.content[:size])), 0)
            content = content + chunk.content[repeated:] if repeated else f"{content}\n\n{chunk.content}"
        return replace(self.hit, content=content, position=own[0].position)


def _heading(chunk: Chunk) -> tuple[str, str]:
    return chunk.position.chapter, chunk.position.section


def _find_section(chunks: Sequence[Chunk], number: int) -> tuple[int, int]:
    """The first and last chunk around one that have its heading, nearest first, until the limit is reached."""
    first = last = number
    size = len(chunks[number].content)
    is_open = {-1: True, 1: True}
    while any(is_open.values()):
        for step, edge in ((-1, first - 1), (1, last + 1)):
            if not is_open[step]:
                continue
            fits = 0 <= edge < len(chunks) and _heading(chunks[edge]) == _heading(chunks[number])
            if not fits or size + len(chunks[edge].content) > MAX_SECTION_CHARACTERS:
                is_open[step] = False
                continue
            size += len(chunks[edge].content)
            first, last = min(first, edge), max(last, edge)
    return first, last


def _cut_runs(text: str) -> frozenset[tuple[str, ...]]:
    """The runs of SHINGLE words of a text; all of its words if it is shorter."""
    found = words(text)
    return frozenset(tuple(found[n : n + SHINGLE]) for n in range(max(1, len(found) - SHINGLE + 1)) if found)


def _is_copy(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> bool:
    smaller, larger = sorted((len(one), len(other)))
    return smaller >= MIN_SHARED_RUNS * larger and len(one & other) >= MIN_SHARED_RUNS * len(one | other)
