"""The points of one collection: its rows, and the statements that write, rank, count and read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pgvector import SparseVector
from psycopg.types.json import Jsonb

from toolscript.adapters.pgvector.connections import register_types, run_sql
from toolscript.adapters.pgvector.filters import Sql, derive_key, select_fields, to_microseconds, translate_filter
from toolscript.adapters.pgvector.tables import (
    MAX_TERMS,
    TERM_SPACE,
    CollectionTable,
    pad_dimensions,
    raise_max_weight,
)
from toolscript.adapters.storage.postgres import Connection
from toolscript.domain.errors import Invalid
from toolscript.domain.filters import Filter, Payload, parse_moment
from toolscript.domain.search import (
    SCORE_DIGITS,
    Candidate,
    Point,
    TermMatches,
    Terms,
    Vector,
    round_scores,
    sort_candidates,
)
from toolscript.ports.indexes import Fields

GRAPH_CANDIDATES = 128
# The server adds up numbers of 32 bits.
ALMOST = 0.999
COLUMNS = {
    "key": "uuid",
    "id": "text",
    "vector": "vector",
    "terms": "sparsevec",
    "term_ids": "int4[]",
    "moments": "jsonb",
    "payload": "jsonb",
}


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a collection, over one connection."""

    connection: Connection
    table: CollectionTable

    def write(self, points: Sequence[Point]) -> bool:
        """Adds or replaces points (each id once) in one transaction; writers of a collection wait for each other.
        Returns whether the description of the table has changed."""
        register_types(self.connection)
        weight = max((abs(w) for p in points for w in p.terms.weights), default=0.0)
        with self.connection.transaction():
            if weight > self.table.max_weight:
                raise_max_weight(self.connection, self.table, weight)
            self._run("SELECT pg_advisory_xact_lock(hashtext('toolscript points'), %s)", [self.table.number])
            self.delete([p.id for p in points])
            sql = f"COPY {self.table.name} ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)"
            with self.connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
                copy.set_types([*COLUMNS.values()])
                for point in points:
                    copy.write_row(_build_row(point, self.table.collection.dimensions))
        return weight > self.table.max_weight

    def delete(self, ids: Sequence[str]) -> None:
        self._run(f"DELETE FROM {self.table.name} WHERE key = ANY(%s::uuid[])", [[derive_key(i) for i in ids]])

    def find_nearest(self, vector: Vector, where: Filter, limit: int, fields: Fields) -> list[Candidate]:
        """The nearest points, by comparing with every point that passes the filter."""
        score = "-(vector <#> %s::vector)", [_normalize(vector, self.table.collection.dimensions)]
        return self._rank(score, ("vector IS NOT NULL", []), where, limit, fields)

    def find_nearest_by_graph(self, vector: Vector, where: Filter, limit: int, fields: Fields) -> list[Candidate]:
        """The nearest points that the graph leads to."""
        query = [_normalize(vector, self.table.collection.dimensions)]
        with self.connection.transaction():
            self._run(f"SET LOCAL hnsw.ef_search = {max(GRAPH_CANDIDATES, min(limit, 1000))}")
            self._run("SET LOCAL hnsw.iterative_scan = strict_order")
            score, order = ("-(vector <#> %s::vector)", query), ("vector <#> %s::vector", query)
            return self._rank(score, ("true", []), where, limit, fields, order)

    def find_by_terms(self, terms: Terms, where: Filter, limit: int, fields: Fields) -> list[Candidate]:
        """The points with the largest dot product that share a term with the query.

        Points that have only words of little weight are read last, or not at all: most have such words, and where all
        these words together weigh less than the last place of the others, no such point is among the best.
        """
        score = "-(terms <#> %s::sparsevec)", [_build_sparse_vector(terms)]
        by_weight = sorted(zip(terms.weights, terms.ids, strict=True), reverse=True)
        last_place = by_weight[0][0]  # a guess, which a point with the rarest word alone comes near
        while True:
            needed = self._count_needed(by_weight, last_place)
            ids = [number for _, number in by_weight[:needed]]
            found = self._rank(score, ("term_ids && %s::integer[]", [ids]), where, limit, fields)
            last_place = found[-1].score if found and len(found) == limit else 0.0
            if self._count_needed(by_weight, last_place) <= needed:
                return found

    def _count_needed(self, by_weight: Sequence[tuple[float, int]], score: float) -> int:
        """The number of terms, largest weights first, such that every point that scores this high has one of them."""
        left = 0.0
        for number in range(len(by_weight), 0, -1):
            left += abs(by_weight[number - 1][0])
            if left * self.table.max_weight >= score * ALMOST:
                return number
        return 1

    def match_terms(self, terms: Terms, where: Filter, start: int, end: int, max_total: int) -> TermMatches:
        """Some places of the points that share a term, by rounded scores, and the number of these points."""
        register_types(self.connection)
        condition, parameters = translate_filter(where)
        sql = (
            f"WITH matching AS MATERIALIZED (SELECT id, -(terms <#> %s::sparsevec) AS score FROM {self.table.name} "
            f"WHERE term_ids && %s::integer[] AND {condition}), "
            f"places AS (SELECT id, score FROM matching WHERE score > 0 ORDER BY round(score * 1e{SCORE_DIGITS}) DESC, "
            "id OFFSET %s LIMIT %s) "
            "SELECT total, id, score FROM (SELECT count(*) AS total FROM matching WHERE score > 0) AS counted "
            "LEFT JOIN places ON true"
        )
        given = [_build_sparse_vector(terms), list(terms.ids), *parameters, start, max(0, min(end, max_total) - start)]
        rows = self._run(sql, given)
        places = [(point_id, score) for _, point_id, score in rows if point_id is not None]
        scores = round_scores([score for _, score in places]).tolist()
        ranked = sort_candidates([Candidate(i, score) for (i, _), score in zip(places, scores, strict=True)])
        return TermMatches(ranked, min(rows[0][0], max_total))

    def count(self, where: Filter, max_count: int | None = None) -> int:
        condition, parameters = translate_filter(where)
        matching = f"SELECT FROM {self.table.name} WHERE {condition} LIMIT %s"
        ((number,),) = self._run(f"SELECT count(*) FROM ({matching}) AS matching", [*parameters, max_count])
        return int(number)

    def scroll(self, where: Filter, fields: Fields) -> list[Candidate]:
        (condition, parameters), (payload, names) = translate_filter(where), select_fields(fields)
        rows = self._run(f"SELECT id, {payload} FROM {self.table.name} WHERE {condition}", [*names, *parameters])
        return sort_candidates([Candidate(point_id, 0.0, payload) for point_id, payload in rows])

    def read_payloads(self, ids: Sequence[str], fields: Fields) -> dict[str, Payload]:
        payload, names = select_fields(fields)
        sql = f"SELECT id, {payload} FROM {self.table.name} WHERE key = ANY(%s::uuid[])"
        return dict(self._run(sql, [*names, [derive_key(i) for i in ids]]))

    def read_vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        register_types(self.connection)
        sql = f"SELECT id, vector FROM {self.table.name} WHERE key = ANY(%s::uuid[]) AND vector IS NOT NULL"
        rows = run_sql(self.connection, sql, [[derive_key(i) for i in ids]], binary=True)
        return {point_id: vector.to_numpy()[: self.table.collection.dimensions] for point_id, vector in rows}

    def analyze(self) -> float:
        """Updates the planner's statistics and returns its estimate of the number of points."""
        self._run(f"ANALYZE {self.table.name}")
        ((points,),) = self._run("SELECT reltuples FROM pg_class WHERE oid = %s::regclass", [self.table.name])
        return float(points)

    def _rank(
        self,
        score: Sql,
        also: Sql,
        where: Filter,
        limit: int,
        fields: Fields,
        # No index offers this order, so the planner cannot use the graph.
        order: Sql = ("score DESC, id", []),
    ) -> list[Candidate]:
        register_types(self.connection)
        (condition, parameters), (payload, names) = translate_filter(where), select_fields(fields)
        best = (
            f"SELECT id, payload, {score[0]} AS score FROM {self.table.name} WHERE {also[0]} AND {condition} "
            f"ORDER BY {order[0]} LIMIT %s"
        )
        rows = self._run(
            f"SELECT id, score, {payload} FROM ({best}) AS best",
            [*names, *score[1], *also[1], *parameters, *order[1], limit],
        )
        return sort_candidates([Candidate(*row) for row in rows])

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return run_sql(self.connection, sql, parameters)


def _build_row(point: Point, dimensions: int) -> list[Any]:
    """The values of COLUMNS. Raises Invalid for a vector of another length."""
    terms = _build_sparse_vector(point.terms)
    moments = _find_moments(point.payload)
    return [
        derive_key(point.id),
        point.id,
        None if point.vector is None else _normalize(point.vector, dimensions),
        terms if terms.indices() else None,
        terms.indices() or None,
        Jsonb(moments) if moments else None,
        Jsonb(point.payload),
    ]


def _normalize(vector: Vector, dimensions: int) -> Vector:
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


def _build_sparse_vector(terms: Terms) -> SparseVector:
    """The terms with their weights; of more than a sparsevec can hold, the heaviest."""
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
