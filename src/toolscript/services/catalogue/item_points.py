"""The points of items in the index.

Every point has a fingerprint of everything that it was built from, and the digest of what its vector was made of: stale
points are recognised, and no vector is computed twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolscript.domain.agent_skills import name_passage
from toolscript.domain.catalog import Assignment, StoredItem
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import Collection, FieldType, Point, Vector
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.reconcile import Payload
from toolscript.retrieval.text.item_text import (
    DOCUMENT_AVERAGE_LENGTH,
    ITEM_AVERAGE_LENGTH,
    build_item_text,
    build_passage_texts,
    item_frequencies,
)
from toolscript.retrieval.text.words import term_frequencies

TOOLS = "mcp_unified_search"
TOOL_FIELDS = {
    "type": FieldType.KEYWORD,
    "server": FieldType.KEYWORD,
    "skill_ids": FieldType.KEYWORD,
    "is_active": FieldType.BOOL,
}
# Increased when points are built differently, so that the next sync builds them again.
RECIPE = 4
TEXT_RECIPE = 2
CONFIDENCE_DIGITS = 4
# The field of the points of passages: the id of the agent skill whose text they are from.
PASSAGE_OF = "passage_of"
IS_PASSAGE = Condition(PASSAGE_OF, Op.EXISTS, value=True)
WITHOUT_PASSAGES = Filter(must_not=(IS_PASSAGE,))


def tools_collection(model: str, dimensions: int) -> Collection:
    return Collection(TOOLS, model, dimensions, TOOL_FIELDS)


@dataclass(frozen=True, slots=True)
class ToolDraft:
    """The point of an item; an agent skill has others for the passages of its text."""

    stored: StoredItem
    model: str

    @property
    def key(self) -> str:
        return self.stored.item.id

    @property
    def source(self) -> str:
        """What the vector of the text is made of."""
        return describe_vector(self.model, self.stored.item.digest)

    @property
    def sources(self) -> Mapping[str, str]:
        """What the vector of each point is made of, by the id of the point."""
        passages = {i: describe_passage(self.model, text) for i, text in self._passages.items()}
        return {self.key: self.source, **passages}

    @property
    def texts(self) -> Mapping[str, str]:
        passages = {describe_passage(self.model, text): text for text in self._passages.values()}
        return {self.source: build_item_text(self.stored.item), **passages}

    @property
    def _passages(self) -> Mapping[str, str]:
        item = self.stored.item
        texts = [] if item.quarantine else build_passage_texts(item)
        return {name_passage(item.id, number): text for number, text in enumerate(texts)}

    def is_current(self, existing: Mapping[str, Payload]) -> bool:  # noqa: ARG002
        """Never: a sync compares fingerprints before it reads an item, and reads the items that it will write."""
        return False

    def build_points(self, vectors: Mapping[str, Vector]) -> Sequence[Point]:
        """The point with the payload that searches return, behind those of passages: where it is, they are."""
        item, assignments = self.stored.item, self.stored.assignments
        shared = {
            "type": item.type.value,
            "server": item.server,
            "skill_ids": [a.skill_id for a in assignments],
            "is_active": self.stored.is_active,
        }
        payload = {
            **shared,
            "name": item.name,
            "description": item.description,
            "db_id": self.stored.number,
            "skill_confidence": {a.skill_id: round(a.confidence, CONFIDENCE_DIGITS) for a in assignments},
            "primary_skill_id": next((a.skill_id for a in assignments if a.is_primary), None),
            "fingerprint": compute_fingerprint(self.model, self.stored.number, item.digest, assignments),
            "vector_of": self.source,
            **({"quarantine": item.quarantine} if item.quarantine else {}),
        }
        terms = document_terms(item_frequencies(item), ITEM_AVERAGE_LENGTH)
        return [*self._build_passages(shared, vectors), Point(item.id, vectors.get(self.source), terms, payload)]

    def _build_passages(self, shared: Payload, vectors: Mapping[str, Vector]) -> Iterator[Point]:
        for point_id, text in self._passages.items():
            source = describe_passage(self.model, text)
            terms = document_terms(term_frequencies(text), DOCUMENT_AVERAGE_LENGTH)
            payload = {**shared, PASSAGE_OF: self.key, "vector_of": source}
            yield Point(point_id, vectors.get(source), terms, payload)


def compute_fingerprint(model: str, number: int, digest: str, assignments: Sequence[Assignment]) -> str:
    """The fingerprint of everything that an item's point is built from."""
    skills = [[a.skill_id, a.is_primary, round(a.confidence, CONFIDENCE_DIGITS)] for a in assignments]
    made_of = [RECIPE, model, digest, number, skills]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]


def describe_vector(model: str, digest: str) -> str:
    """What a vector is made of: the model, and the text of an item with that digest."""
    return f"{model}-{describe_text(digest)}"


def describe_passage(model: str, text: str) -> str:
    """What the vector of a passage is made of."""
    return f"{model}-passage-{hashlib.sha256(text.encode()).hexdigest()}"


def describe_text(digest: str) -> str:
    """What a cached vector is made of, beside the model."""
    return f"{TEXT_RECIPE}-{digest}"
