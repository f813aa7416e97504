"""The values that all searches share: collections, points, candidates, rankings, reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from toolscript.domain.errors import Invalid

if TYPE_CHECKING:  # 70 ms, and a command beside a gateway has no vectors
    import numpy as np
    from numpy.typing import NDArray

Vector: TypeAlias = "NDArray[np.float32]"


class FieldType(StrEnum):
    """The type of a payload field that filters use, for the engine's index."""

    KEYWORD = "keyword"
    TENANT = "tenant"
    INTEGER = "integer"
    FLOAT = "float"
    BOOL = "bool"
    DATETIME = "datetime"


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of points with vectors of one embedding model."""

    name: str
    model: str
    dimensions: int
    fields: Mapping[str, FieldType] = field(default_factory=dict)
    exact: bool = False
    """Whether every point is compared, even if there are many: one tenant's results must not depend on another's."""


def require_same_model(existing: Collection, wanted: Collection) -> None:
    """Raises Invalid if a collection's vectors come from another model: vectors of two models cannot be compared."""
    if (existing.model, existing.dimensions) == (wanted.model, wanted.dimensions):
        return
    raise Invalid(
        f"collection {existing.name} was indexed with model {existing.model} ({existing.dimensions} dimensions), the "
        f"model in use is {wanted.model} ({wanted.dimensions}): run `toolscript index rebuild`, or go back to that "
        "model with --model or TOOLSCRIPT_SEARCH_MODEL",
        details={"collection": existing.name, "indexed_with": existing.model, "in_use": wanted.model},
    )


@dataclass(frozen=True, slots=True)
class Terms:
    """A sparse vector for lexical search: term numbers, ascending, and their weights."""

    ids: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """One entry of a collection."""

    id: str
    vector: Vector | None
    terms: Terms
    payload: Mapping[str, Any]


class Candidate(NamedTuple):
    """A point that a ranking found, with its score in that ranking. A tuple, because every search creates many, and a
    tuple takes a third of the time of a dataclass."""

    id: str
    score: float
    payload: Mapping[str, Any] = MappingProxyType({})


class TermMatches(NamedTuple):
    """Some places of a ranking by terms, and how many points share a term with the query (at least, if that many were
    asked for)."""

    places: list[Candidate]
    total: int


def sort_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Sorts by score, best first, then by id, so that the order does not depend on the engine."""
    return sorted(candidates, key=lambda c: (-c.score, c.id))


# Engines add up numbers in different orders: scores that are compared across pages or engines have so many digits.
SCORE_DIGITS = 6


def round_scores(scores: Sequence[float]) -> NDArray[np.float64]:
    """The scores with SCORE_DIGITS digits; never a negative zero."""
    import numpy as np

    return np.asarray(np.round(np.array(scores, np.float64), SCORE_DIGITS) + 0.0, np.float64)


_NOTHING = nullcontext()


def no_span(_: str) -> AbstractContextManager[object]:
    """A span that records nothing."""
    return _NOTHING


MAX_QUERY_CHARACTERS = 1000
# Agents send whole tasks to tool search.
MAX_TASK_CHARACTERS = 8000
# The maximum number of tools below the threshold that an answer shows as the closest ones.
MAX_CLOSEST = 3


class SearchPart(StrEnum):
    """The parts of a search that can fail. `degraded` lists the parts that an answer had to do without; the same words
    name the `adapter` in the details of an error when the search cannot answer without that part."""

    EMBEDDER = "embedder", "The model could not embed the query: results match by words and names, or there are none."
    INDEX = "index", "The index, or one of its collections, did not answer: results from it are missing."
    STORE = "store", "The store did not answer."
    CATALOGUE = (
        "catalogue",
        "Some servers' tools are not indexed yet, or their words could not be read: a later search may find more.",
    )
    SCHEMAS = "schemas", "Schemas could not be read: tools come without them."
    RERANKER = "reranker", "The reranker failed: results keep the order of the first ranking."

    def __new__(cls, value: str, meaning: str) -> SearchPart:
        part = str.__new__(cls, value)
        part._value_ = value
        part.__doc__ = meaning
        return part


@dataclass(slots=True)
class SearchReport:
    """How a search went: milliseconds per stage, counts, and the parts that it had to do without."""

    timings_ms: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    degraded: list[SearchPart] = field(default_factory=list)
    servers_starting: list[str] = field(default_factory=list)
    """Servers whose tools are not included yet."""
    span: Callable[[str], AbstractContextManager[object]] = no_span
    """Returns a context manager around the stage of a name, for tracing."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Records the milliseconds of the block."""
        started = time.perf_counter()
        try:
            with self.span(name):
                yield
        finally:
            self.timings_ms[name] = (time.perf_counter() - started) * 1000

    def degrade(self, part: SearchPart) -> None:
        """Notes, once, that the search had to do without that part."""
        if part not in self.degraded:
            self.degraded.append(part)


@dataclass(frozen=True, slots=True)
class SimilarityRange:
    """The range of a model's cosine similarities: `floor` for unrelated texts, `ceiling` for paraphrases."""

    floor: float
    ceiling: float
    skills: float | None = None
    """The ceiling where a text is compared with a skill, if it is a different one (docs/decisions/0011)."""
    has_relevance: bool = False
    """Whether relevances in documents were fitted to this range (docs/decisions/0029)."""

    def narrow_to_skills(self) -> SimilarityRange:
        """The range for comparisons with skills."""
        return SimilarityRange(self.floor, self.ceiling if self.skills is None else self.skills)


@dataclass(frozen=True, slots=True)
class TermCounts:
    """The number of documents in a scope, and for each requested term the number of documents that contain it."""

    documents: int
    documents_with_term: Mapping[int, int]
