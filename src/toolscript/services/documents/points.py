"""Documents in the index: a point for each passage of a text, what it is made of, and what its id says.

The first point of a document carries the words of the whole text, so that searching by word is a search among
documents; every point carries a vector. See docs/decisions/0013.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolscript.domain.documents import Document, Passage
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import Collection, FieldType, Point, Terms, Vector
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.text.chunking import passages
from toolscript.retrieval.text.item_text import DOCUMENT_AVERAGE_LENGTH, build_passage_text

DOCUMENTS = "documents"
DOCUMENT_FIELDS = {"tenant": FieldType.TENANT, "doc_id": FieldType.KEYWORD, "part": FieldType.INTEGER}
# Sorts before whatever an id may hold, and no id holds it.
SEPARATOR = "\x1f"


def documents_collection(model: str, dimensions: int) -> Collection:
    """The collection of every tenant's documents."""
    return Collection(DOCUMENTS, model, dimensions, DOCUMENT_FIELDS, exact=True)


def of_tenant(tenant: str) -> Condition:
    """What keeps a search inside one tenant."""
    return Condition("tenant", Op.EQ, tenant)


def in_tenant(tenant: str) -> tuple[Condition, ...]:
    """What keeps a search to a tenant's passages: points of an earlier version, which were whole documents and have
    ids of another kind, are left out until a repair replaces them."""
    return of_tenant(tenant), Condition("part", Op.GTE, 0)


def first_parts() -> Condition:
    """What keeps a search to one point of each document."""
    return Condition("part", Op.EQ, 0)


def of_documents(tenant: str, ids: list[str]) -> Filter:
    """Every point of some documents of a tenant."""
    return Filter(must=(of_tenant(tenant), Condition("doc_id", Op.IN, ids)))


def metadata_field(name: str) -> str:
    """The payload field of a document's metadata field: apart from our own fields, whatever it is called."""
    return f"meta.{name}"


def point_id(tenant: str, doc_id: str, part: int) -> str:
    """The id of a passage's point. Those of a tenant sort by the document's id, then by part."""
    return f"{json.dumps(tenant, ensure_ascii=False)}{SEPARATOR}{doc_id}{SEPARATOR}{part:06x}"


def doc_of(point_id: str) -> tuple[str, int]:
    """The document's id and the part that a point's id names."""
    _, doc_id, part = point_id.rsplit(SEPARATOR, 2)
    return doc_id, int(part, 16)


@dataclass(frozen=True, slots=True)
class PassageDraft:
    """The point of a passage, except for its vector, its terms and the document's payload."""

    id: str
    text: str
    text_digest: str
    passage: Passage

    def build_point(self, payload: Mapping[str, Any], vector: Vector | None, terms: Terms) -> Point:
        """The point. Without a vector its `text_digest` is empty, so that it is built again once there is a model."""
        own = {
            "part": self.passage.part,
            "start": self.passage.start,
            "end": self.passage.end,
            "text_digest": self.text_digest if vector is not None else "",
        }
        return Point(self.id, vector, terms, {**payload, **own})


@dataclass(slots=True)
class DocumentDraft:
    """The points of a document, as `retrieval/reconcile.py` wants them. `frequencies` are needed to build them."""

    tenant: str
    document: Document
    digest: str
    passages: list[PassageDraft]
    has_model: bool
    frequencies: Mapping[int, float] | None = None

    @property
    def key(self) -> str:
        """The document's id."""
        return self.document.id

    @property
    def texts(self) -> dict[str, str]:
        """The passages' texts by digest."""
        return {each.text_digest: each.text for each in self.passages}

    def is_current(self, existing: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether these are the document's points. Points that were built without a model are, while there is none."""
        if existing.keys() != {each.id for each in self.passages}:
            return False
        if any(payload.get("digest") != self.digest for payload in existing.values()):
            return False
        return not self.has_model or all(existing[p.id].get("text_digest") == p.text_digest for p in self.passages)

    def build_points(self, vectors: Mapping[str, Vector]) -> list[Point]:
        """The points, with the vectors that are known by the digests of their texts."""
        payload = _payload(self.tenant, self.document, self.digest)
        terms = document_terms(self.frequencies or {}, DOCUMENT_AVERAGE_LENGTH)
        return [
            each.build_point(payload, vectors.get(each.text_digest), Terms() if each.passage.part else terms)
            for each in self.passages
        ]


def draft_document(tenant: str, document: Document, *, has_model: bool) -> DocumentDraft:
    """Cuts a document into passages."""
    drafts = []
    for passage in passages(document.text):
        text = build_passage_text(document, passage)
        drafts.append(PassageDraft(point_id(tenant, document.id, passage.part), text, _digest(text), passage))
    return DocumentDraft(tenant, document, document.digest, drafts, has_model)


def _payload(tenant: str, document: Document, digest: str) -> dict[str, Any]:
    metadata = {metadata_field(name): value for name, value in document.metadata.items()}
    titled = {metadata_field("title"): document.title} if document.title else {}
    return {**titled, **metadata, "tenant": tenant, "doc_id": document.id, "digest": digest}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
