"""Classifies items into skills by embeddings, and suggests a new skill for an item that fits none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from toolscript.domain.catalog import MAX_SKILLS, Assignment, Classification, Item, Origin, Skill, Suggestion
from toolscript.domain.search import SimilarityRange, Vector
from toolscript.ports.models import Embedder
from toolscript.retrieval.skill_matcher import Matrix, SkillMatcher
from toolscript.retrieval.text.item_text import build_item_text, build_skill_text
from toolscript.retrieval.text.words import split_identifier
from toolscript.services.support.model_batches import one_line

MIN_CONFIDENCE = 0.5
# A second or third skill counts if its distance to certainty is at most this much larger than the first one's.
MAX_DOUBT_RATIO = 1.06

MAX_NAME_LENGTH = 80
MAX_DESCRIPTION_LENGTH = 500

_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")


def suggest_skill(item: Item) -> Suggestion:
    """Suggests a skill for this item alone: named after its server and itself, described by its first sentence."""
    words = split_identifier(f"{item.server} {item.name}"[: 8 * MAX_NAME_LENGTH]).split()
    named = [w[:1].upper() + w[1:] for i, w in enumerate(words) if i == 0 or w.lower() != words[i - 1].lower()]
    sentence = _END_OF_SENTENCE.split(item.description[: 8 * MAX_DESCRIPTION_LENGTH].strip(), maxsplit=1)[0]
    return Suggestion(
        one_line(" ".join(named), MAX_NAME_LENGTH) or "Unnamed",
        one_line(sentence, MAX_DESCRIPTION_LENGTH),
        source_item_id=item.id,
        examples=(item.name,),
    )


class EmbeddingClassifier:
    """Classifies by how near an item is to a skill in meaning and in words. The other items have no influence: the same
    item with the same skills always gets the same classification."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._fitted: tuple[tuple[Skill, ...], SkillMatcher] | None = None

    async def classify(
        self, items: Sequence[tuple[Item, Vector]], skills: Sequence[Skill]
    ) -> list[Classification | None]:
        if not items or not skills:
            return [Classification(missing=suggest_skill(item)) for item, _ in items]
        fit = await self._fit(tuple(skills))
        confidences = await self._match(fit, [item for item, _ in items], [vector for _, vector in items])
        return [_classify(item, row, skills) for (item, _), row in zip(items, confidences, strict=True)]

    async def _match(self, fit: SkillMatcher, items: Sequence[Item], vectors: Sequence[Vector]) -> Matrix:
        """The confidences of each item. Where its words say nothing its vector decides, and has to be the vector of the
        item alone: with the server's name in it, every tool of a server called `kubernetes` would be a tool for
        containers."""
        confidences = fit.confidences(items, vectors)
        texts = {n: build_item_text(replace(items[n], server="")) for n in fit.find_wordless(items, confidences)}
        texts = {n: text for n, text in texts.items() if text != build_item_text(items[n])}
        if texts:
            text_vectors = await self._embedder.embed_documents(list(texts.values()))
            confidences[list(texts)] = fit.confidences([items[n] for n in texts], text_vectors)
        return confidences

    async def _fit(self, skills: tuple[Skill, ...]) -> SkillMatcher:
        if self._fitted is None or self._fitted[0] != skills:
            vectors = await self._embedder.embed_documents([build_skill_text(skill) for skill in skills])
            similarity = self._embedder.similarity or SimilarityRange(0.0, 1.0)
            self._fitted = skills, SkillMatcher(skills, vectors, similarity.narrow_to_skills())
        return self._fitted[1]


def _classify(item: Item, confidences: NDArray[np.float32], skills: Sequence[Skill]) -> Classification:
    ranked = sorted(zip((round(float(c), 4) for c in confidences), skills, strict=True), key=lambda r: (-r[0], r[1].id))
    best = ranked[0][0]
    kept = [(c, s) for c, s in ranked[:MAX_SKILLS] if c >= MIN_CONFIDENCE and 1 - c <= (1 - best) * MAX_DOUBT_RATIO]
    if not kept:
        return Classification(missing=suggest_skill(item))
    return Classification(tuple(Assignment(s.id, c, n == 0, Origin.EMBEDDING) for n, (c, s) in enumerate(kept)))
