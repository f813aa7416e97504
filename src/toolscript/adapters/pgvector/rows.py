"""Points as rows of a collection's table."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
from pgvector import SparseVector
from psycopg.types.json import Jsonb

from toolscript.adapters.pgvector.filters import to_microseconds
from toolscript.domain.errors import Invalid
from toolscript.domain.filters import parse_moment
from toolscript.domain.search import Point, Terms, Vector

COLUMNS = {
    "key": "uuid",
    "id": "text",
    "vector": "vector",
    "terms": "sparsevec",
    "term_ids": "int4[]",
    "moments": "jsonb",
    "payload": "jsonb",
}
TERM_SPACE = 1_000_000_000
MAX_TERMS = 16_000  # of a sparsevec

_REGISTER = 16


def build_row(point: Point, dimensions: int) -> list[Any]:
    """The values of COLUMNS. Raises Invalid for a vector of another length."""
    terms = build_sparse_vector(point.terms)
    moments = _find_moments(point.payload)
    return [
        derive_key(point.id),
        point.id,
        None if point.vector is None else normalize(point.vector, dimensions),
        terms if terms.indices() else None,
        terms.indices() or None,
        Jsonb(moments) if moments else None,
        Jsonb(point.payload),
    ]


def derive_key(point_id: str) -> uuid.UUID:
    """The primary key of a row: ids may be longer than an index of PostgreSQL takes."""
    return uuid.UUID(bytes=hashlib.blake2b(point_id.encode("utf-8", "surrogatepass"), digest_size=16).digest())


def pad_dimensions(dimensions: int) -> int:
    """The length of the vectors in the table: a multiple of a vector register. Zeros at the end change no dot product,
    and pgvector is quickest (some builds of it: only safe) where no remainder is left."""
    return -(-dimensions // _REGISTER) * _REGISTER


def normalize(vector: Vector, dimensions: int) -> Vector:
    """The vector with length one, padded with zeros. Raises Invalid for a vector of other dimensions."""
    if len(vector) != dimensions:
        raise Invalid(
            f"a vector of {len(vector)} dimensions does not fit a collection of {dimensions}",
            details={"given": len(vector), "allowed": dimensions},
        )
    length = float(np.linalg.norm(vector))
    padded = np.zeros(pad_dimensions(dimensions), np.float32)
    padded[:dimensions] = vector / length if length else vector
    return padded


def build_sparse_vector(terms: Terms) -> SparseVector:
    """The terms with their weights; of too many, the heaviest."""
    weights = dict(zip(terms.ids, terms.weights, strict=True))
    if len(weights) > MAX_TERMS:
        weights = dict(sorted(weights.items(), key=lambda item: -abs(item[1]))[:MAX_TERMS])
    return SparseVector(weights, TERM_SPACE)


def _find_moments(payload: Mapping[str, Any]) -> dict[str, list[int]]:
    """The instants in a payload's texts, as the filter language reads them rather than the database."""
    moments: dict[str, list[int]] = {}
    for field, value in payload.items():
        instants = [parse_moment(v) for v in (value if isinstance(value, list | tuple) else [value])]
        numbers = [to_microseconds(i) for i in instants if i is not None]
        if numbers:
            moments[field] = numbers
    return moments
