"""What a gateway learns from: requests that tools served or were wrong for, and the steps of their vectors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from toolscript.domain.search import Vector

# Longer requests describe whole tasks, whose vectors say little about any one tool.
MAX_REQUEST_CHARACTERS = 1000


def normalize_request(text: str) -> str:
    """The request as it is stored: in one line, without characters that cannot be printed or encoded."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


@dataclass(frozen=True, slots=True)
class Verdict:
    """A request that a tool served, or that it is wrong for."""

    item_id: str
    request: str
    caller: str = ""
    """The name of the key; empty for callers without one."""
    recorded_at: float = 0.0
    """In seconds since 1970."""
    vector: Vector | None = field(default=None, compare=False)
    """The vector of the request, once the model has embedded it."""
    model: str = field(default="", compare=False)
    is_right: bool = True
    """False: somebody marked the tool as wrong for the request."""

    @property
    def digest(self) -> str:
        """The same for requests that differ only in case and spaces."""
        return hashlib.sha256(normalize_request(self.request).casefold().encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Step:
    """How far the vector of an item has moved, toward the requests that it served and away from requests that it is
    wrong for, or why it has not moved."""

    item_id: str
    model: str
    item_digest: str
    """The digest of the item whose vector was moved: after a change of its text the step no longer counts."""
    stamp: str
    """A digest of what the moved vector was computed from."""
    successes: int
    cosine: float = 1.0
    """Between the vector of the item's text and the moved one."""
    refusal: str = ""
    vector: Vector | None = field(default=None, compare=False)
    """The moved vector; None if the step was refused."""
