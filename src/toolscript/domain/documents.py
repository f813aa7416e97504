"""A tenant's documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Document:
    """A text with a title and typed metadata (strings, numbers, booleans, ISO dates, and lists of these)."""

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Changes exactly when the document does."""
        said = [self.title, self.text, self.metadata]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as the store keeps it, with the terms that count towards its tenant's statistics."""

    document: Document
    terms: frozenset[int]
