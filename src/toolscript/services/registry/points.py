"""The points of the servers of registries: a collection of their own, so that no search for tools finds them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolscript.domain.registry.entry import RegistryEntry
from toolscript.domain.search import Collection, Point, Vector
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.reconcile import Payload
from toolscript.retrieval.text.item_text import build_registry_text, registry_frequencies

REGISTRY = "registry_servers"
AVERAGE_LENGTH = 15.0


def registry_collection(model: str, dimensions: int) -> Collection:
    return Collection(REGISTRY, model, dimensions)


@dataclass(frozen=True, slots=True)
class EntryDraft:
    """The point of an entry."""

    entry: RegistryEntry

    @property
    def key(self) -> str:
        return self.entry.id

    @property
    def digest(self) -> str:
        return hashlib.sha256(build_registry_text(self.entry).encode("utf-8", "replace")).hexdigest()

    @property
    def texts(self) -> Mapping[str, str]:
        return {self.digest: build_registry_text(self.entry)}

    def is_current(self, existing: Mapping[str, Payload]) -> bool:
        return existing.get(self.key, {}).get("digest") == self.digest

    def build_points(self, vectors: Mapping[str, Vector]) -> Sequence[Point]:
        terms = document_terms(registry_frequencies(self.entry), AVERAGE_LENGTH)
        return [Point(self.key, vectors.get(self.digest), terms, {"digest": self.digest})]
