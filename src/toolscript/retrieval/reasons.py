"""Why a result is where it is, in words. A reason names only what really moved the score."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the parts of a score contributed, after their weights."""

    semantic: float = 0.0
    keyword: float = 0.0
    fuzzy: float = 0.0
    exact: bool = False
    shared_words: tuple[str, ...] = ()


# A part that brings less than this share of the score is not worth naming.
TELLING_SHARE = 0.25


def reason(evidence: Evidence) -> str:
    """A readable sentence part, the strongest cause first."""
    if evidence.exact:
        return "Exact name"
    parts = [
        (evidence.semantic, "Semantic similarity"),
        (evidence.keyword, _keywords(evidence.shared_words)),
        (evidence.fuzzy, "Fuzzy name match"),
    ]
    total = sum(score for score, _ in parts)
    told = sorted((p for p in parts if p[0] > 0 and p[0] >= TELLING_SHARE * total), key=lambda p: -p[0])
    return " + ".join(text for _, text in told) or "Weak match"


def _keywords(shared: tuple[str, ...]) -> str:
    return f"Keyword match ({', '.join(shared)})" if shared else "Keyword match"
