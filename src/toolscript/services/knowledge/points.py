"""Knowledge in the index: one point for each chunk and each extraction.

A point has the digest of the text that its vector was made of, so that no text is embedded twice. The text is embedded
with its heading, because a paragraph seldom repeats what its chapter is about. Alternatives: docs/decisions/0015. The
same text gives the point its terms, for search by words (docs/decisions/0026).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolscript.domain.documents import TERMS_VERSION
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.knowledge import Chunk, Extraction, Position, Source, format_content
from toolscript.domain.search import Collection, FieldType, Point, TermCounts, Terms, Vector
from toolscript.ports.models import Embedder
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.text.forms import count_document_forms

CHUNKS = "chunks"
EXTRACTIONS = "extractions"
FIELDS = {"source_id": FieldType.KEYWORD, "type": FieldType.KEYWORD, "topics": FieldType.KEYWORD}
CHUNK = "chunk"
# Of a model's window: tokens reserved for the model's own prefix, and the heading's share (an eighth). A chunk has at
# most MAX_TOKENS even if the model could read more: longer passages cover several subjects.
SPARE_TOKENS = 8
HEADING_SHARE = 8
MAX_TOKENS = 400
MIN_TOKENS = 16
MAX_HEADING_CHARACTERS = 400
MAX_EXTRACTION_CHARACTERS = 4_000
# Of chunks with their headings, in four manuals.
AVERAGE_LENGTH = 80.0

Measure = Callable[[str], int]


def knowledge_collection(name: str, model: str, dimensions: int) -> Collection:
    """The collection of all CHUNKS or of all EXTRACTIONS."""
    return Collection(name, model, dimensions, FIELDS)


def of_source(source_id: str) -> Filter:
    return Filter(must=(Condition("source_id", Op.EQ, source_id),))


def max_chunk_tokens(embedder: Embedder) -> int:
    """How many tokens a chunk may have so that the model reads all of it, with its heading."""
    heading = embedder.window // HEADING_SHARE
    return max(min(embedder.window - heading - SPARE_TOKENS, MAX_TOKENS), MIN_TOKENS)


@dataclass(frozen=True, slots=True)
class KnowledgeDraft:
    """The point of a chunk or an extraction, for `retrieval/reconcile.py`. `digest` is the digest of the text."""

    key: str
    text: str
    digest: str
    payload: Mapping[str, Any]
    terms: Terms
    counted: frozenset[int]
    """The terms that it counts towards: its own, and the mark of its language."""

    @property
    def texts(self) -> dict[str, str]:
        return {self.digest: self.text}

    def is_current(self, existing: Mapping[str, Mapping[str, Any]]) -> bool:
        payload = existing.get(self.key, {})
        return all(payload.get(name) == value for name, value in self.payload.items())

    def build_points(self, vectors: Mapping[str, Vector]) -> list[Point]:
        return [Point(self.key, vectors[self.digest], self.terms, self.payload)]


def count_terms(drafts: Sequence[KnowledgeDraft]) -> TermCounts:
    """In how many of these texts each term occurs."""
    return TermCounts(len(drafts), Counter(term for draft in drafts for term in draft.counted))


def _lower(topics: Iterable[str]) -> set[str]:
    return {topic.lower() for topic in topics}


class SourceDrafter:
    """Drafts the points of a source, with headings shortened to fit one model's window."""

    def __init__(self, source: Source, embedder: Embedder) -> None:
        self._source = source
        self._measure = embedder.count_tokens
        self._max_heading_tokens = embedder.window // HEADING_SHARE
        self._headings: dict[tuple[str, str], str] = {}

    def draft_chunks(self, chunks: Sequence[Chunk], extractions: Iterable[Extraction]) -> list[KnowledgeDraft]:
        """Drafts of chunks, each with the topics of its extractions."""
        topics: dict[str, set[str]] = {}
        for extraction in extractions:
            topics.setdefault(extraction.chunk_id, set()).update(_lower(extraction.topics))
        return [self._draft(c.id, c.id, CHUNK, sorted(topics.get(c.id, ())), c.position, c.content) for c in chunks]

    def draft_extractions(self, extractions: Sequence[Extraction], chunks: Sequence[Chunk]) -> list[KnowledgeDraft]:
        """Drafts of extractions, each with the heading of its chunk."""
        positions = {c.id: c.position for c in chunks}
        return [
            self._draft(
                e.id,
                e.chunk_id,
                e.type,
                sorted(_lower(e.topics)),
                positions.get(e.chunk_id, Position()),
                format_content(e.content)[:MAX_EXTRACTION_CHARACTERS],
            )
            for e in extractions
        ]

    def _draft(
        self, own_id: str, chunk_id: str, kind: str, topics: list[str], position: Position, content: str
    ) -> KnowledgeDraft:
        text = f"{self._heading(position)}\n{content}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        payload = {
            "source_id": self._source.id,
            "chunk_id": chunk_id,
            "type": kind.lower(),
            "topics": topics,
            "digest": digest,
            "terms": TERMS_VERSION,
        }
        forms = count_document_forms(text)
        return KnowledgeDraft(own_id, text, digest, payload, document_terms(forms, AVERAGE_LENGTH), frozenset(forms))

    def _heading(self, position: Position) -> str:
        key = (position.chapter, position.section)
        if key not in self._headings:
            names = dict.fromkeys(filter(None, (self._source.title, *key)))
            max_tokens = self._max_heading_tokens // max(len(names), 1)
            self._headings[key] = " — ".join(self._shorten(name, max_tokens) for name in names)
        return self._headings[key]

    def _shorten(self, text: str, max_tokens: int) -> str:
        """The first words of a heading, as many as fit."""
        words = text[:MAX_HEADING_CHARACTERS].split()
        while len(words) > 1 and self._measure(" ".join(words)) > max_tokens:
            words.pop()
        return " ".join(words)
