"""Models: embedders, rerankers, classifiers and language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from toolscript.domain.catalog import Classification, Item, Skill
from toolscript.domain.prompts import Prompt
from toolscript.domain.search import SimilarityRange, Vector


class Embedder(Protocol):
    """Turns texts into unit vectors. Queries and documents may be embedded differently (prefix, pooling).

    >>> import asyncio
    >>> from toolscript.adapters.memory import HashedEmbedder
    >>> embedder = HashedEmbedder(dimensions=64)
    >>> query = asyncio.run(embedder.embed_query("read a file"))
    >>> near, far = asyncio.run(embedder.embed_documents(["read a text file", "send mail"]))
    >>> bool(query @ near > query @ far)
    True
    """

    @property
    def model(self) -> str:
        """The canonical name of the model; collections store it."""

    @property
    def dimensions(self) -> int: ...

    @property
    def similarity(self) -> SimilarityRange | None:
        """The range of the model's cosines; None for a model that has not been measured."""

    @property
    def window(self) -> int:
        """Maximum number of tokens of a text that the model reads; it ignores the rest."""

    @property
    def batch_size(self) -> int:
        """The number of texts in a call of `embed_documents` beyond which a larger call gains nothing."""

    def count_tokens(self, text: str) -> int:
        """The number of tokens of a text; a high estimate for models without a local tokenizer."""

    async def embed_query(self, text: str) -> Vector:
        """The vector of a query. Raises Unavailable when the model cannot answer."""

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, in order, each independent of the other texts in the call."""

    async def close(self) -> None: ...


class Reranker(Protocol):
    """Scores query and passage together: slower and more accurate than comparing vectors.

    >>> import asyncio
    >>> class SharedWords:
    ...     model = "shared-words"
    ...     async def scores(self, query, passages):
    ...         words = set(query.split())
    ...         return [len(words & set(passage.split())) / len(words) for passage in passages]
    >>> asyncio.run(SharedWords().scores("read a file", ["read a book", "send mail"]))
    [0.6666666666666666, 0.0]
    """

    @property
    def model(self) -> str: ...

    async def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """One score per passage, in order; higher is better. Raises Unavailable or UpstreamFailed."""

    async def close(self) -> None: ...


class Classifier(Protocol):
    """Assigns items to skills.

    >>> import asyncio
    >>> class Undecided:
    ...     async def classify(self, items, skills):
    ...         return [None for _ in items]
    >>> asyncio.run(Undecided().classify([], []))
    []
    """

    async def classify(
        self, items: Sequence[tuple[Item, Vector]], skills: Sequence[Skill]
    ) -> list[Classification | None]:
        """One classification per item (given with its vector), in order: up to three of these skills, each with a
        confidence of 0.5 or more. An unusable answer gives a classification that is not clear; a temporary error
        gives None."""


class LanguageModel(Protocol):
    """A model that answers prompts with JSON objects.

    >>> import asyncio
    >>> from toolscript.domain.prompts import Prompt
    >>> class AlwaysBlue:
    ...     model = "always-blue"
    ...     async def answer(self, prompt):
    ...         return {"colour": "blue"}
    >>> asyncio.run(AlwaysBlue().answer(Prompt("Name a colour.", "What colour is the sky?", {"type": "object"})))
    {'colour': 'blue'}
    """

    @property
    def model(self) -> str: ...

    async def answer(self, prompt: Prompt) -> dict[str, Any]:
        """An object that matches the prompt's schema. Raises Unavailable when the model does not answer, after
        retries, and UpstreamFailed for an unusable answer."""

    async def close(self) -> None: ...
