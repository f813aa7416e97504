"""How filters, vectors and points are said to PostgreSQL with pgvector: a condition with its parameters, a literal,
or the bytes of a binary COPY (exact, and several times faster to write than text)."""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from toolscript.domain.errors import Invalid
from toolscript.domain.filters import Condition, Filter, Op, is_number, parse_moment
from toolscript.domain.search import Point, Terms, Vector

COLUMNS = "key, id, vector, terms, term_ids, moments, payload"
TERM_SPACE = 1_000_000_000
MOST_TERMS = 16_000  # that a sparsevec holds

_HELD = "(payload -> %s::text)"
_HELD_AS_LIST = (
    f"(SELECT CASE jsonb_typeof(v) WHEN 'array' THEN v ELSE jsonb_build_array(v) END FROM (SELECT {_HELD}) AS held (v))"
)
_RANGES = {Op.LT: "<", Op.LTE: "<=", Op.GT: ">", Op.GTE: ">="}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT4_OID = 23
_REGISTER = 16
_NULL = struct.pack("!i", -1)
_COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_COPY_END = struct.pack("!h", -1)

Said = tuple[str, list[Any]]


def translated(where: Filter) -> Said:
    """The filter as an SQL condition on a row, and its parameters."""
    parts = [_condition(c) for c in where.must]
    if where.should:
        parts.append(_joined(" OR ", [_condition(c) for c in where.should]))
    parts += [_not(_condition(c)) for c in where.must_not]
    return _joined(" AND ", parts) if parts else ("true", [])


def chosen(fields: Sequence[str] | None) -> Said:
    """The SQL for a row's payload, or for the named fields of it."""
    if fields is None:
        return "payload", []
    if not fields:
        return "'{}'::jsonb", []
    picked = "(SELECT jsonb_object_agg(f, payload -> f) FROM unnest(%s::text[]) AS f WHERE payload ? f)"
    return f"coalesce({picked}, '{{}}')", [[str(f) for f in fields]]


def padded(dimensions: int) -> int:
    """How long the vectors of that many dimensions are in the table. Zeros at the end change no dot product, and
    pgvector is quickest (some builds of it: only safe) where no remainder is left of its vector registers."""
    return -(-dimensions // _REGISTER) * _REGISTER


def vector_literal(vector: Vector, dimensions: int) -> str:
    """Raises Invalid for a vector of another length."""
    return f"[{','.join(map(repr, _ready(vector, dimensions).tolist()))}]"


def terms_literal(terms: Terms) -> str:
    weights = ",".join(f"{t + 1}:{w!r}" for t, w in zip(*_heaviest(terms), strict=True))
    return f"{{{weights}}}/{TERM_SPACE}"


def vector_from(binary: bytes, dimensions: int) -> Vector:
    """The vector in the bytes that pgvector sends: two numbers of 16 bits, then the values."""
    return np.frombuffer(binary, ">f4", dimensions, offset=4).astype(np.float32)


def key_of(own_id: str) -> uuid.UUID:
    """What a row is found by: ids may be longer than an index takes."""
    return uuid.UUID(bytes=hashlib.blake2b(own_id.encode("utf-8", "surrogatepass"), digest_size=16).digest())


def copied(points: Iterable[Point], dimensions: int) -> Iterator[bytes]:
    """The points as the data of a binary COPY into COLUMNS. Raises Invalid for a vector of another length."""
    yield _COPY_HEADER
    for point in points:
        moments = _moments(point.payload)
        ids, weights = _heaviest(point.terms)
        cells = [
            key_of(point.id).bytes,
            point.id.encode(),
            None if point.vector is None else _vector_bytes(point.vector, dimensions),
            _terms_bytes(ids, weights) if ids else None,
            _array_bytes(ids) if ids else None,
            _json_bytes(moments) if moments else None,
            _json_bytes(point.payload),
        ]
        row = [_NULL if cell is None else struct.pack("!i", len(cell)) + cell for cell in cells]
        yield struct.pack("!h", len(cells)) + b"".join(row)
    yield _COPY_END


def _condition(condition: Condition) -> Said:
    field, value = condition.field, condition.value
    match condition.op:
        case Op.EQ:
            return _equals(field, value)
        case Op.NE:
            return _not(_equals(field, value))
        case Op.IN:
            return _one_of(field, value)
        case Op.NIN:
            return _not(_one_of(field, value))
        case Op.CONTAINS:
            return _substring(field, value) if isinstance(value, str) else _equals(field, value)
        case Op.EXISTS:
            there = f"coalesce({_HELD} NOT IN ('null', '[]'), false)", [field]
            return there if value else _not(there)
        case op:
            return _range(field, op, value)


def _equals(field: str, value: Any) -> Said:
    return f"{_HELD} @> %s::jsonb", [field, json.dumps(value)]


def _one_of(field: str, values: Sequence[Any]) -> Said:
    texts = [str(v) for v in values if isinstance(v, str)]
    others = [json.dumps(v) for v in values if not isinstance(v, str)]
    choices: list[Said] = []
    if texts:
        # The operator would find the keys of an object as well.
        choices.append((f"({_HELD} ?| %s::text[] AND jsonb_typeof{_HELD} <> 'object')", [field, texts, field]))
    if others:
        choices.append((f"{_HELD} @> ANY(%s::jsonb[])", [field, others]))
    return _joined(" OR ", choices) if choices else ("false", [])


def _substring(field: str, value: str) -> Said:
    return (
        f"EXISTS (SELECT FROM jsonb_path_query({_HELD_AS_LIST}, 'strict $[*] ? (@.type() == \"string\")') AS told "
        "WHERE strpos(told #>> '{}', %s::text) > 0)",
        [field, value],
    )


def _range(field: str, op: Op, value: Any) -> Said:
    if is_number(value):
        column, bound = _HELD_AS_LIST, value
    else:
        instant = parse_moment(value)
        if instant is None:
            return "false", []
        column, bound = "(moments -> %s::text)", _microseconds(instant)
    path = f'strict $[*] ? (@.type() == "number" && @ {_RANGES[op]} $bound)'
    return f"jsonb_path_exists({column}, %s::jsonpath, %s::jsonb)", [field, path, json.dumps({"bound": bound})]


def _not(said: Said) -> Said:
    """A condition on a missing field is neither true nor false to SQL; its opposite is true."""
    return f"NOT coalesce({said[0]}, false)", said[1]


def _joined(word: str, parts: Sequence[Said]) -> Said:
    return f"({word.join(sql for sql, _ in parts)})", [p for _, parameters in parts for p in parameters]


def _moments(payload: Mapping[str, Any]) -> dict[str, list[int]]:
    """The instants that a payload's texts name, in the sense of the filter language rather than the database's."""
    found: dict[str, list[int]] = {}
    for field, value in payload.items():
        instants = [parse_moment(v) for v in (value if isinstance(value, list | tuple) else [value])]
        named = [_microseconds(i) for i in instants if i is not None]
        if named:
            found[field] = named
    return found


def _microseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(microseconds=1)


def _heaviest(terms: Terms) -> tuple[list[int], list[float]]:
    held = [(t, w) for t, w in zip(terms.ids, terms.weights, strict=True) if w]
    if len(held) > MOST_TERMS:
        held = sorted(held, key=lambda each: -abs(each[1]))[:MOST_TERMS]
    held.sort()
    return [t for t, _ in held], [w for _, w in held]


def _ready(vector: Vector, dimensions: int) -> Vector:
    """A vector of length one with zeros at its end."""
    if len(vector) != dimensions:
        raise Invalid(
            f"a vector of {len(vector)} dimensions does not fit a collection of {dimensions}",
            details={"given": len(vector), "allowed": dimensions},
        )
    length = float(np.linalg.norm(vector))
    made = np.zeros(padded(dimensions), np.float32)
    made[:dimensions] = vector / length if length else vector
    return made


def _vector_bytes(vector: Vector, dimensions: int) -> bytes:
    made = _ready(vector, dimensions)
    return struct.pack("!hh", len(made), 0) + made.astype(">f4").tobytes()


def _terms_bytes(ids: list[int], weights: list[float]) -> bytes:
    return struct.pack("!iii", TERM_SPACE, len(ids), 0) + _big(ids, ">i4") + _big(weights, ">f4")


def _array_bytes(ids: list[int]) -> bytes:
    cells = np.empty((len(ids), 2), ">i4")
    cells[:, 0], cells[:, 1] = 4, ids
    return struct.pack("!iiiii", 1, 0, _INT4_OID, len(ids), 1) + cells.tobytes()


def _json_bytes(value: Any) -> bytes:
    return b"\x01" + json.dumps(value).encode()


def _big(values: Sequence[float], kind: str) -> bytes:
    return np.array(values, kind).tobytes()
