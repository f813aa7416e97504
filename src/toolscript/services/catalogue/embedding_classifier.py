"""Sorts items into skills without a language model, and names the skill that an item would need when none fits."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from toolscript.domain.catalog import Assignment, Classification, Item, Origin, Skill, Suggestion
from toolscript.domain.search import SimilarityRange, Vector
from toolscript.ports.models import Embedder
from toolscript.retrieval.sorting import SkillMatcher
from toolscript.retrieval.text.item_text import build_skill_text
from toolscript.retrieval.text.words import split_identifier

MIN_CONFIDENCE = 0.5
MAX_SKILLS = 3
# A second or third skill must leave hardly more doubt than the first.
AS_GOOD = 1.06

MAX_NAME_LENGTH = 80
MAX_DESCRIPTION_LENGTH = 500

_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")


def suggest_skill(item: Item) -> Suggestion:
    """A skill for the item alone, until a person gives it a better name: named after its server and itself, described
    by its first sentence."""
    words = split_identifier(f"{item.server} {item.name}"[: 8 * MAX_NAME_LENGTH]).split()
    named = [w[:1].upper() + w[1:] for i, w in enumerate(words) if i == 0 or w.lower() != words[i - 1].lower()]
    sentence = _END_OF_SENTENCE.split(item.description[: 8 * MAX_DESCRIPTION_LENGTH].strip(), maxsplit=1)[0]
    return Suggestion(
        one_line(" ".join(named), MAX_NAME_LENGTH) or "Unnamed",
        one_line(sentence, MAX_DESCRIPTION_LENGTH),
        source_item_id=item.id,
        examples=(item.name,),
    )


def one_line(text: str, most: int) -> str:
    """A stranger's text as one line of at most so many characters, without any that control or cannot be written."""
    seen = text[: 8 * most]
    plain = "".join(" " if c.isspace() else c for c in seen if c.isspace() or unicodedata.category(c)[0] != "C")
    line = " ".join(plain.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


class EmbeddingClassifier:
    """Sorts by how near an item is to a skill in meaning and in words. Nothing it says depends on the other items, so
    the same item among the same skills is always sorted the same way."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: tuple[tuple[Skill, ...], SkillMatcher] | None = None

    async def classify(
        self, items: Sequence[tuple[Item, Vector]], skills: Sequence[Skill]
    ) -> list[Classification | None]:
        if not items or not skills:
            return [Classification(missing=suggest_skill(item)) for item, _ in items]
        fit = await self._fit(tuple(skills))
        confidences = fit.confidences([item for item, _ in items], [vector for _, vector in items])
        return [_classified(item, row, skills) for (item, _), row in zip(items, confidences, strict=True)]

    async def _fit(self, skills: tuple[Skill, ...]) -> SkillMatcher:
        if self._known is None or self._known[0] != skills:
            vectors = await self._embedder.embed_documents([build_skill_text(skill) for skill in skills])
            self._known = skills, SkillMatcher(skills, vectors, self._embedder.similarity or SimilarityRange(0.0, 1.0))
        return self._known[1]


def _classified(item: Item, confidences: NDArray[np.float32], skills: Sequence[Skill]) -> Classification:
    ranked = sorted(zip((round(float(c), 4) for c in confidences), skills, strict=True), key=lambda r: (-r[0], r[1].id))
    best = ranked[0][0]
    kept = [(c, s) for c, s in ranked[:MAX_SKILLS] if c >= MIN_CONFIDENCE and 1 - c <= (1 - best) * AS_GOOD]
    if not kept:
        return Classification(missing=suggest_skill(item))
    return Classification(tuple(Assignment(s.id, c, n == 0, Origin.EMBEDDING) for n, (c, s) in enumerate(kept)))
