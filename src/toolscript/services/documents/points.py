"""Documents in the index: one point per passage.

Every point has a vector. The first point of a document also has the terms of the whole text, so that a search by word
ranks documents. See docs/decisions/0013.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolscript.domain.documents import TERMS_VERSION, Document, Passage
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import Collection, FieldType, Point, Terms, Vector
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.text.chunking import passages
from toolscript.retrieval.text.item_text import DOCUMENT_AVERAGE_LENGTH, build_passage_text

DOCUMENTS = "documents"
DOCUMENT_FIELDS = {"tenant": FieldType.TENANT, "doc_id": FieldType.KEYWORD, "part": FieldType.INTEGER}
# Sorts before every character of an id, and no id contains it.
SEPARATOR = "\x1f"


def documents_collection(model: str, dimensions: int) -> Collection:
    return Collection(DOCUMENTS, model, dimensions, DOCUMENT_FIELDS, exact=True)


def of_tenant(tenant: str) -> Condition:
    """Restricts a search to one tenant."""
    return Condition("tenant", Op.EQ, tenant)


def first_parts() -> Condition:
    """Restricts a search to one point of each document."""
    return Condition("part", Op.EQ, 0)


def of_documents(tenant: str, ids: list[str]) -> Filter:
    """Every point of some documents of a tenant."""
    return Filter(must=(of_tenant(tenant), Condition("doc_id", Op.IN, ids)))


def metadata_field(name: str) -> str:
    """The payload field of a metadata field. The prefix keeps it from colliding with our own fields."""
    return f"meta.{name}"


def point_id(tenant: str, doc_id: str, part: int) -> str:
    """The id of a passage's point. The ids of a tenant sort by document, then by part."""
    return f"{json.dumps(tenant, ensure_ascii=False)}{SEPARATOR}{doc_id}{SEPARATOR}{part:06x}"


def doc_of(point_id: str) -> tuple[str, int]:
    """The document's id and the number of the passage in a point's id."""
    _, doc_id, part = point_id.rsplit(SEPARATOR, 2)
    return doc_id, int(part, 16)


@dataclass(slots=True)
class DocumentDraft:
    """The points of a document, for `retrieval/reconcile.py`. Building them needs the `frequencies` of its terms."""

    tenant: str
    document: Document
    has_model: bool
    frequencies: Mapping[int, float] | None = None
    digest: str = field(init=False)
    texts: dict[str, str] = field(init=False, default_factory=dict)
    """The texts of the passages by digest."""
    _parts: dict[str, tuple[Passage, str]] = field(init=False, default_factory=dict)
    """The passages, each with the digest of its text, by the id of its point."""

    def __post_init__(self) -> None:
        self.digest = self.document.digest
        for passage in passages(self.document.text):
            text = build_passage_text(self.document, passage)
            digest = hashlib.sha256(text.encode()).hexdigest()[:32]
            self.texts[digest] = text
            self._parts[point_id(self.tenant, self.document.id, passage.part)] = passage, digest

    @property
    def key(self) -> str:
        return self.document.id

    def is_current(self, existing: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether these are the document's points. Without a model, points may lack their vectors."""
        if existing.keys() != self._parts.keys():
            return False
        if any(payload.get("digest") != self.digest for payload in existing.values()):
            return False
        if existing[next(iter(self._parts))].get("terms_version") != TERMS_VERSION:
            return False
        return not self.has_model or all(existing[i].get("text_digest") == d for i, (_, d) in self._parts.items())

    def build_points(self, vectors: Mapping[str, Vector]) -> list[Point]:
        """The points. Without a vector the `text_digest` is empty, so that the point is built again with a model."""
        metadata = {"title": self.document.title} if self.document.title else {}
        shared = {metadata_field(name): value for name, value in {**metadata, **self.document.metadata}.items()}
        shared |= {"tenant": self.tenant, "doc_id": self.document.id, "digest": self.digest}
        terms = document_terms(self.frequencies or {}, DOCUMENT_AVERAGE_LENGTH)
        points = []
        for own_id, (passage, digest) in self._parts.items():
            passage_payload = {"part": passage.part, "start": passage.start, "end": passage.end}
            if not passage.part:
                passage_payload["terms_version"] = TERMS_VERSION
            vector = vectors.get(digest)
            payload = {**shared, **passage_payload, "text_digest": "" if vector is None else digest}
            points.append(Point(own_id, vector, Terms() if passage.part else terms, payload))
        return points
