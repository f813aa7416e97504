"""Models: embedders, rerankers, classifiers and language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from toolscript.domain.catalog import Classification, Item, Skill
from toolscript.domain.prompts import Prompt
from toolscript.domain.search import SimilarityRange, Vector


class Embedder(Protocol):
    """Turns texts into unit vectors. The query side and the document side may differ (prefix, pooling)."""

    @property
    def model(self) -> str:
        """The canonical name of the model; collections carry it."""

    @property
    def dimensions(self) -> int: ...

    @property
    def similarity(self) -> SimilarityRange | None:
        """What the model's cosines mean; None where nobody has measured it."""

    @property
    def window(self) -> int:
        """How many tokens of a text the model reads; what comes after them it does not see."""

    def count_tokens(self, text: str) -> int:
        """How many tokens of its window a text takes; an estimate, rather high, where the tokenizer is elsewhere."""

    async def embed_query(self, text: str) -> Vector:
        """The vector of a query. Raises Unavailable when the model cannot answer."""

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, in order, each independent of the other texts in the call."""

    async def close(self) -> None: ...


class Reranker(Protocol):
    """Reads query and passage together, which is slower and sees more than comparing vectors."""

    @property
    def model(self) -> str: ...

    async def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """How well each passage answers the query, in order; more is better. Raises Unavailable or UpstreamFailed."""

    async def close(self) -> None: ...


class Classifier(Protocol):
    """Sorts items into skills."""

    async def classify(
        self, items: Sequence[tuple[Item, Vector]], skills: Sequence[Skill]
    ) -> list[Classification | None]:
        """One classification per item (given with its vector), in order: only ids of these skills, only confidences
        of 0.5 and more, three at most. Where it was asked and said nothing usable, one that is not clear; None where
        it could not be asked, which may pass."""


class LanguageModel(Protocol):
    """A model that answers prompts with JSON objects."""

    @property
    def model(self) -> str: ...

    async def answer(self, prompt: Prompt) -> dict[str, Any]:
        """An object that fits the prompt's schema. Raises Unavailable when the model cannot be had (after retries),
        UpstreamFailed when what it says cannot be used."""

    async def close(self) -> None: ...
