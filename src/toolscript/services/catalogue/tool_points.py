"""The points of items in the index.

Every point has a fingerprint of everything that it was built from, and the digest of what its vector was made of: stale
points are recognised, and no vector is computed twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolscript.domain.catalog import Assignment, StoredItem
from toolscript.domain.search import Collection, FieldType, Point, Vector
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.reconcile import Payload
from toolscript.retrieval.text.item_text import ITEM_AVERAGE_LENGTH, build_item_text, item_frequencies

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


def tools_collection(model: str, dimensions: int) -> Collection:
    return Collection(TOOLS, model, dimensions, TOOL_FIELDS)


@dataclass(frozen=True, slots=True)
class ToolDraft:
    """The one point of an item."""

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
    def texts(self) -> Mapping[str, str]:
        return {self.source: build_item_text(self.stored.item)}

    def is_current(self, existing: Mapping[str, Payload]) -> bool:  # noqa: ARG002
        """Never: a sync compares fingerprints before it reads an item, and reads the items that it will write."""
        return False

    def build_points(self, vectors: Mapping[str, Vector]) -> Sequence[Point]:
        """The point, with the payload that searches return."""
        item, assignments = self.stored.item, self.stored.assignments
        payload = {
            "type": item.type.value,
            "server": item.server,
            "name": item.name,
            "description": item.description,
            "db_id": self.stored.number,
            "skill_ids": [a.skill_id for a in assignments],
            "skill_confidence": {a.skill_id: round(a.confidence, CONFIDENCE_DIGITS) for a in assignments},
            "primary_skill_id": next((a.skill_id for a in assignments if a.is_primary), None),
            "is_active": self.stored.is_active,
            "fingerprint": compute_fingerprint(self.model, self.stored.number, item.digest, assignments),
            "vector_of": self.source,
            **({"quarantine": item.quarantine} if item.quarantine else {}),
        }
        terms = document_terms(item_frequencies(item), ITEM_AVERAGE_LENGTH)
        return [Point(item.id, vectors.get(self.source), terms, payload)]


def compute_fingerprint(model: str, number: int, digest: str, assignments: Sequence[Assignment]) -> str:
    """The fingerprint of everything that an item's point is built from."""
    skills = [[a.skill_id, a.is_primary, round(a.confidence, CONFIDENCE_DIGITS)] for a in assignments]
    made_of = [RECIPE, model, digest, number, skills]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]


def describe_vector(model: str, digest: str) -> str:
    """What a vector is made of: the model, and the text of an item with that digest."""
    return f"{model}-{describe_text(digest)}"


def describe_text(digest: str) -> str:
    """What a cached vector is made of, beside the model."""
    return f"{TEXT_RECIPE}-{digest}"
