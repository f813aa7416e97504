"""What a search is made of, whatever is searched: collections of points, candidates, rankings, reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolscript.domain.errors import Invalid

Vector = NDArray[np.float32]


class FieldType(StrEnum):
    """How an engine may index a payload field that filters ask about."""

    KEYWORD = "keyword"
    TENANT = "tenant"
    INTEGER = "integer"
    FLOAT = "float"
    BOOL = "bool"
    DATETIME = "datetime"


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of points that one embedding model made. The model and its dimensions travel with it."""

    name: str
    model: str
    dimensions: int
    fields: Mapping[str, FieldType] = field(default_factory=dict)
    exact: bool = False
    """Whether every point is compared, however many there are: what one tenant finds must not depend on another's."""


def require_same_model(held: Collection, wanted: Collection) -> None:
    """Raises Invalid when a collection was made by another model: vectors of two models must not mix."""
    if (held.model, held.dimensions) == (wanted.model, wanted.dimensions):
        return
    raise Invalid(
        f"collection {held.name} was indexed with model {held.model} ({held.dimensions} dimensions), the model in use "
        f"is {wanted.model} ({wanted.dimensions}): run `toolscript index rebuild`, or go back to that model with "
        "--model or TOOLSCRIPT_SEARCH_MODEL",
        details={"collection": held.name, "indexed_with": held.model, "in_use": wanted.model},
    )


@dataclass(frozen=True, slots=True)
class Terms:
    """A sparse vector: term numbers, ascending, and their weights. The lexical side of a point or a query."""

    ids: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """One searchable thing in a collection."""

    id: str
    vector: Vector | None
    terms: Terms
    payload: Mapping[str, Any]


class Candidate(NamedTuple):
    """A point that a ranking found, with that ranking's own score. Many are made for every search, and a tuple is made
    in a third of the time."""

    id: str
    score: float
    payload: Mapping[str, Any] = MappingProxyType({})


Ranking = Sequence[Candidate]


def sort_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best score first; equal scores by id, so that an order never depends on the engine."""
    return sorted(candidates, key=lambda c: (-c.score, c.id))


_NOTHING = nullcontext()


def no_span(_: str) -> AbstractContextManager[object]:
    """Nobody follows."""
    return _NOTHING


MAX_QUERY_CHARACTERS = 1000


class SearchPart(StrEnum):
    """The parts of a search that can fail. `degraded` lists those that an answer had to do without; the same words name
    the `adapter` in the details of an error when the search cannot answer without that part."""

    EMBEDDER = "embedder", "The model could not embed the query: results match by words and names, or there are none."
    INDEX = "index", "The index, or one of its collections, did not answer: results from it are missing."
    STORE = "store", "The store did not answer."
    CATALOGUE = "catalogue", "Some servers' tools are not indexed yet: a later search may find more."
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
    span: Callable[[str], AbstractContextManager[object]] = no_span
    """What to enter for as long as a stage of that name lasts, for those who follow a request from outside."""

    def degrade(self, part: SearchPart) -> None:
        """Notes, once, that the search had to do without that part."""
        if part not in self.degraded:
            self.degraded.append(part)


@dataclass(frozen=True, slots=True)
class SimilarityRange:
    """What a model's cosines mean: `floor` is what unrelated texts score, `ceiling` what texts that say the same do."""

    floor: float
    ceiling: float


@dataclass(frozen=True, slots=True)
class TermCounts:
    """How many documents a scope has, and how many of them hold each of the asked-for terms."""

    documents: int
    documents_with_term: Mapping[int, int]
