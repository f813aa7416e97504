"""Statements on one collection's table: points written, deleted, ranked, counted and read."""

from __future__ import annotations

from collections.abc import Sequence

from toolscript.adapters.pgvector.connections import register_types, run_sql
from toolscript.adapters.pgvector.filters import Sql, select_fields, translate_filter
from toolscript.adapters.pgvector.rows import COLUMNS, build_row, build_sparse_vector, derive_key, normalize
from toolscript.adapters.pgvector.tables import CollectionTable
from toolscript.adapters.postgres import Connection
from toolscript.domain.filters import Filter, Payload
from toolscript.domain.search import Candidate, Point, Terms, Vector, sort_candidates

GRAPH_CANDIDATES = 128


def write(connection: Connection, table: CollectionTable, points: Sequence[Point]) -> None:
    """Adds or replaces points (each id once) in one transaction; writers of a collection wait for each other."""
    register_types(connection)
    with connection.transaction():
        run_sql(connection, "SELECT pg_advisory_xact_lock(hashtext('toolscript points'), %s)", [table.number])
        delete(connection, table, [p.id for p in points])
        sql = f"COPY {table.name} ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)"
        with connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
            copy.set_types([*COLUMNS.values()])
            for point in points:
                copy.write_row(build_row(point, table.collection.dimensions))


def delete(connection: Connection, table: CollectionTable, ids: Sequence[str]) -> None:
    run_sql(connection, f"DELETE FROM {table.name} WHERE key = ANY(%s::uuid[])", [[derive_key(i) for i in ids]])


def find_nearest(
    connection: Connection,
    table: CollectionTable,
    vector: Vector,
    where: Filter,
    limit: int,
    fields: Sequence[str] | None,
) -> list[Candidate]:
    """The nearest points, by comparing with every point that passes the filter."""
    score: Sql = ("-(vector <#> %s::vector)", [normalize(vector, table.collection.dimensions)])
    return _rank(connection, table, score, ("vector IS NOT NULL", []), where, limit, fields)


def find_nearest_by_graph(
    connection: Connection,
    table: CollectionTable,
    vector: Vector,
    where: Filter,
    limit: int,
    fields: Sequence[str] | None,
) -> list[Candidate]:
    """The nearest points that the graph leads to."""
    register_types(connection)
    query = normalize(vector, table.collection.dimensions)
    (condition, parameters), (payload, names) = translate_filter(where), select_fields(fields)
    best = (
        f"SELECT id, payload, vector <#> %s::vector AS distance FROM {table.name} WHERE {condition} "
        "ORDER BY vector <#> %s::vector LIMIT %s"
    )
    with connection.transaction():
        run_sql(connection, f"SET LOCAL hnsw.ef_search = {max(GRAPH_CANDIDATES, min(limit, 1000))}")
        run_sql(connection, "SET LOCAL hnsw.iterative_scan = strict_order")
        rows = run_sql(
            connection,
            f"SELECT id, -distance, {payload} FROM ({best}) AS best",
            [*names, query, *parameters, query, limit],
        )
    return sort_candidates([Candidate(*row) for row in rows])


def find_by_terms(
    connection: Connection,
    table: CollectionTable,
    terms: Terms,
    where: Filter,
    limit: int,
    fields: Sequence[str] | None,
) -> list[Candidate]:
    """The points with the largest dot product among those that share a term."""
    score: Sql = ("-(terms <#> %s::sparsevec)", [build_sparse_vector(terms)])
    return _rank(connection, table, score, ("term_ids && %s::integer[]", [list(terms.ids)]), where, limit, fields)


def count(connection: Connection, table: CollectionTable, where: Filter, max_count: int | None = None) -> int:
    condition, parameters = translate_filter(where)
    matching = f"SELECT FROM {table.name} WHERE {condition} LIMIT %s"
    ((number,),) = run_sql(connection, f"SELECT count(*) FROM ({matching}) AS matching", [*parameters, max_count])
    return int(number)


def scroll(
    connection: Connection, table: CollectionTable, where: Filter, fields: Sequence[str] | None
) -> list[Candidate]:
    (condition, parameters), (payload, names) = translate_filter(where), select_fields(fields)
    rows = run_sql(connection, f"SELECT id, {payload} FROM {table.name} WHERE {condition}", [*names, *parameters])
    return sort_candidates([Candidate(point_id, 0.0, payload) for point_id, payload in rows])


def read_payloads(
    connection: Connection, table: CollectionTable, ids: Sequence[str], fields: Sequence[str] | None
) -> dict[str, Payload]:
    payload, names = select_fields(fields)
    sql = f"SELECT id, {payload} FROM {table.name} WHERE key = ANY(%s::uuid[])"
    return dict(run_sql(connection, sql, [*names, [derive_key(i) for i in ids]]))


def read_vectors(connection: Connection, table: CollectionTable, ids: Sequence[str]) -> dict[str, Vector]:
    register_types(connection)
    sql = f"SELECT id, vector FROM {table.name} WHERE key = ANY(%s::uuid[]) AND vector IS NOT NULL"
    rows = run_sql(connection, sql, [[derive_key(i) for i in ids]], binary=True)
    return {point_id: vector.to_numpy()[: table.collection.dimensions] for point_id, vector in rows}


def analyze(connection: Connection, table: CollectionTable) -> float:
    """Updates the planner's statistics and returns its estimate of the number of points."""
    run_sql(connection, f"ANALYZE {table.name}")
    ((points,),) = run_sql(connection, "SELECT reltuples FROM pg_class WHERE oid = %s::regclass", [table.name])
    return float(points)


def _rank(
    connection: Connection,
    table: CollectionTable,
    score: Sql,
    also: Sql,
    where: Filter,
    limit: int,
    fields: Sequence[str] | None,
) -> list[Candidate]:
    """Orders by a score that no index offers, so that the planner cannot use the graph."""
    register_types(connection)
    (condition, parameters), (payload, names) = translate_filter(where), select_fields(fields)
    best = (
        f"SELECT id, payload, {score[0]} AS score FROM {table.name} WHERE {also[0]} AND {condition} "
        "ORDER BY score DESC, id LIMIT %s"
    )
    rows = run_sql(
        connection,
        f"SELECT id, score, {payload} FROM ({best}) AS best",
        [*names, *score[1], *also[1], *parameters, limit],
    )
    return sort_candidates([Candidate(*row) for row in rows])
