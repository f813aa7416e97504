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


DEGRADED_CATALOGUE = "catalogue"
"""What a report says was done without while tools of some server are still on their way."""


@dataclass(slots=True)
class SearchReport:
    """How a search went: milliseconds per stage, counts, and the name of whatever had to be done without."""

    timings_ms: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)
    span: Callable[[str], AbstractContextManager[object]] = no_span
    """What to enter for as long as a stage of that name lasts, for those who follow a request from outside."""


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
