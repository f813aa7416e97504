"""Explains the confidence of a result in words. A reason names only what changed the score."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """The contributions of the parts of a score, after their weights; the shared domain and the capability
    ("shell → git") that raised it."""

    semantic: float = 0.0
    keyword: float = 0.0
    fuzzy: float = 0.0
    inferred: float = 0.0
    exact: bool = False
    domain: str = ""
    capability: str = ""
    shared_words: tuple[str, ...] = ()


# Parts that contribute less than this share of the score are not named, except capabilities, which are not obvious.
MIN_SHARE = 0.25


def explain(evidence: Evidence) -> str:
    """The reason, with the strongest cause first: "Semantic similarity (git) + Keyword match (commit)"."""
    if evidence.exact:
        return "Exact name"
    parts = [
        (evidence.semantic, f"Semantic similarity{_add_brackets(evidence.domain)}"),
        (evidence.keyword, f"Keyword match{_add_brackets(', '.join(evidence.shared_words))}"),
        (evidence.fuzzy, "Fuzzy match"),
    ]
    inferred = (evidence.inferred, f"Capability inference{_add_brackets(evidence.capability)}")
    threshold = MIN_SHARE * (sum(score for score, _ in parts) + evidence.inferred)
    causes_found = [p for p in parts if p[0] > 0 and p[0] >= threshold] + [inferred] * (evidence.inferred > 0)
    causes_found.sort(key=lambda part: -part[0])
    causes = [text for _, text in causes_found] or ["Weak match"]
    if evidence.domain and parts[0] not in causes_found:
        causes.append("domain boost")
    return " + ".join(causes)


def _add_brackets(causes_found: str) -> str:
    return f" ({causes_found})" if causes_found else ""
