"""What is asked of one collection's table: points written, removed, ranked, counted and read back."""

from __future__ import annotations

from collections.abc import Sequence

from toolscript.adapters.pgvector.connections import Connection, rows
from toolscript.adapters.pgvector.filters import (
    COLUMNS,
    Said,
    chosen,
    copied,
    key_of,
    terms_literal,
    translated,
    vector_from,
    vector_literal,
)
from toolscript.adapters.pgvector.tables import Held
from toolscript.domain.filters import Filter, Payload
from toolscript.domain.search import Candidate, Point, Terms, Vector, sort_candidates

COPY_BATCH = 5_000
GRAPH_CANDIDATES = 128


def write(connection: Connection, held: Held, points: Sequence[Point]) -> None:
    """Adds or replaces points (each id once) in one transaction; writers of a collection take turns."""
    with connection.transaction():
        rows(connection, "SELECT pg_advisory_xact_lock(hashtext('toolscript points'), %s)", [held.number])
        delete(connection, held, [p.id for p in points])
        for start in range(0, len(points), COPY_BATCH):
            sql = f"COPY {held.table} ({COLUMNS}) FROM STDIN (FORMAT BINARY)"
            with connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
                for block in copied(points[start : start + COPY_BATCH], held.collection.dimensions):
                    copy.write(block)


def delete(connection: Connection, held: Held, ids: Sequence[str]) -> None:
    rows(connection, f"DELETE FROM {held.table} WHERE key = ANY(%s::uuid[])", [[key_of(i) for i in ids]])


def nearest(
    connection: Connection, held: Held, vector: Vector, where: Filter, limit: int, fields: Sequence[str] | None
) -> list[Candidate]:
    """The nearest points, every one that passes the filter looked at."""
    score: Said = ("-(vector <#> %s::vector)", [vector_literal(vector, held.collection.dimensions)])
    return _ranked(connection, held, score, ("vector IS NOT NULL", []), where, limit, fields)


def nearest_by_graph(
    connection: Connection, held: Held, vector: Vector, where: Filter, limit: int, fields: Sequence[str] | None
) -> list[Candidate]:
    """The nearest points that the graph leads to."""
    asked = vector_literal(vector, held.collection.dimensions)
    (condition, parameters), (payload, named) = translated(where), chosen(fields)
    best = (
        f"SELECT id, payload, vector <#> %s::vector AS distance FROM {held.table} WHERE {condition} "
        "ORDER BY vector <#> %s::vector LIMIT %s"
    )
    with connection.transaction():
        rows(connection, f"SET LOCAL hnsw.ef_search = {max(GRAPH_CANDIDATES, min(limit, 1000))}")
        rows(connection, "SET LOCAL hnsw.iterative_scan = strict_order")
        found = rows(
            connection,
            f"SELECT id, -distance, {payload} FROM ({best}) AS best",
            [*named, asked, *parameters, asked, limit],
        )
    return sort_candidates([Candidate(i, score, told) for i, score, told in found])


def sharing_terms(
    connection: Connection, held: Held, terms: Terms, where: Filter, limit: int, fields: Sequence[str] | None
) -> list[Candidate]:
    """The points with the largest dot product among those that share a term."""
    score: Said = ("-(terms <#> %s::sparsevec)", [terms_literal(terms)])
    return _ranked(connection, held, score, ("term_ids && %s::integer[]", [list(terms.ids)]), where, limit, fields)


def count(connection: Connection, held: Held, where: Filter, at_most: int | None = None) -> int:
    condition, parameters = translated(where)
    matching = f"SELECT FROM {held.table} WHERE {condition} LIMIT %s"
    ((found,),) = rows(connection, f"SELECT count(*) FROM ({matching}) AS matching", [*parameters, at_most])
    return int(found)


def scroll(connection: Connection, held: Held, where: Filter, fields: Sequence[str] | None) -> list[Candidate]:
    (condition, parameters), (payload, named) = translated(where), chosen(fields)
    found = rows(connection, f"SELECT id, {payload} FROM {held.table} WHERE {condition}", [*named, *parameters])
    return sort_candidates([Candidate(i, 0.0, told) for i, told in found])


def payloads(
    connection: Connection, held: Held, ids: Sequence[str], fields: Sequence[str] | None
) -> dict[str, Payload]:
    payload, named = chosen(fields)
    sql = f"SELECT id, {payload} FROM {held.table} WHERE key = ANY(%s::uuid[])"
    return dict(rows(connection, sql, [*named, [key_of(i) for i in ids]]))


def vectors(connection: Connection, held: Held, ids: Sequence[str]) -> dict[str, Vector]:
    sql = f"SELECT id, vector FROM {held.table} WHERE key = ANY(%s::uuid[]) AND vector IS NOT NULL"
    found = rows(connection, sql, [[key_of(i) for i in ids]], binary=True)
    return {i: vector_from(told, held.collection.dimensions) for i, told in found}


def analyse(connection: Connection, held: Held) -> float:
    """Tells the planner what the table holds, and returns about how many points that is."""
    rows(connection, f"ANALYZE {held.table}")
    ((points,),) = rows(connection, "SELECT reltuples FROM pg_class WHERE oid = %s::regclass", [held.table])
    return float(points)


def _ranked(
    connection: Connection,
    held: Held,
    score: Said,
    also: Said,
    where: Filter,
    limit: int,
    fields: Sequence[str] | None,
) -> list[Candidate]:
    """Ordered by a score that no index offers, so that the planner cannot take the graph for it."""
    (condition, parameters), (payload, named) = translated(where), chosen(fields)
    best = (
        f"SELECT id, payload, {score[0]} AS score FROM {held.table} WHERE {also[0]} AND {condition} "
        "ORDER BY score DESC, id LIMIT %s"
    )
    found = rows(
        connection,
        f"SELECT id, score, {payload} FROM ({best}) AS best",
        [*named, *score[1], *also[1], *parameters, limit],
    )
    return sort_candidates([Candidate(i, s, told) for i, s, told in found])
