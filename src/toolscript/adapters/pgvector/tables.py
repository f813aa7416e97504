"""The tables of an index in PostgreSQL: one that lists the collections, and one per collection with a row per point.
Why one row has everything: docs/decisions/0010."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import psycopg
from psycopg.sql import Literal

from toolscript.adapters.pgvector.connections import run_sql
from toolscript.adapters.storage.postgres import Connection
from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Collection, FieldType, require_same_model

SCHEMA = "toolscript_index"
MIN_PGVECTOR = (0, 8)
TERM_SPACE = 1_000_000_000
MAX_TERMS = 16_000  # of a sparsevec
# More than any weight of BM25 (2.2): seldom does a writer have to raise it.
USUAL_WEIGHT = 2.5

_REGISTER = 16
_INDEXED_TYPES = frozenset({FieldType.KEYWORD, FieldType.TENANT})


@dataclass(frozen=True, slots=True)
class CollectionTable:
    """A collection in the database: the number in its table's name, whether its graph is ready, and a weight that no
    term of a point exceeds."""

    collection: Collection
    number: int
    has_graph: bool
    max_weight: float = USUAL_WEIGHT

    @property
    def name(self) -> str:
        return f"{SCHEMA}.points_{self.number}"

    @property
    def graph(self) -> str:
        return f"graph_{self.number}"


def pad_dimensions(dimensions: int) -> int:
    """The length of the vectors in the table: a multiple of a vector register. Zeros at the end change no dot product,
    and pgvector is quickest (some builds of it: only safe) where no remainder is left."""
    return -(-dimensions // _REGISTER) * _REGISTER


def find(connection: Connection, name: str) -> CollectionTable | None:
    """The collection of that name, or None."""
    # Not to_regclass: a transaction that has waited for another to create the table would not see it there.
    if not run_sql(connection, "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'collections'", [SCHEMA]):
        return None
    found = run_sql(
        connection,
        # As JSON, because the table of an earlier version has no such columns.
        f"SELECT number, model, dimensions, fields, coalesce((to_jsonb(c) ->> 'exact')::boolean, false), "
        "coalesce((to_jsonb(c) ->> 'max_weight')::float8, 'Infinity'), "
        "coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = "
        f"to_regclass('{SCHEMA}.graph_' || number)), false) FROM {SCHEMA}.collections c WHERE name = %s",
        [name],
    )
    if not found:
        return None
    number, model, dimensions, fields, exact, max_weight, has_graph = found[0]
    kinds = {field: FieldType(kind) for field, kind in fields.items()}
    return CollectionTable(Collection(name, model, dimensions, kinds, exact), number, has_graph, max_weight)


def create(connection: Connection, wanted: Collection) -> CollectionTable:
    """Creates the collection unless it exists; processes wait for each other. Raises Invalid when it exists with
    another model."""
    found = find(connection, wanted.name)
    if found is None or _differ(found.collection, wanted):
        with connection.transaction():
            _lock(connection)
            found = find(connection, wanted.name)
            if found is None:
                _prepare_database(connection)
                found = _create(connection, wanted)
            require_same_model(found.collection, wanted)
            found = _declare(connection, found, wanted)
    require_same_model(found.collection, wanted)
    return found


def _differ(existing: Collection, wanted: Collection) -> bool:
    return existing.exact != wanted.exact or bool(wanted.fields.items() - existing.fields.items())


def drop(connection: Connection, name: str) -> None:
    with connection.transaction():
        _lock(connection)
        found = find(connection, name)
        if found:
            run_sql(connection, f"DROP TABLE IF EXISTS {found.name}")
            run_sql(connection, f"DELETE FROM {SCHEMA}.collections WHERE number = %s", [found.number])


def raise_max_weight(connection: Connection, table: CollectionTable, weight: float) -> None:
    """Stores that terms of the collection's points have weights up to this one."""
    sql = f"UPDATE {SCHEMA}.collections SET max_weight = greatest(max_weight, %s) WHERE number = %s"
    run_sql(connection, sql, [weight, table.number])


def _lock(connection: Connection) -> None:
    run_sql(connection, "SELECT pg_advisory_xact_lock(hashtext('toolscript index'))")


def _prepare_database(connection: Connection) -> None:
    if not run_sql(connection, "SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
        _add_extension(connection)
    ((version,),) = run_sql(connection, "SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_PGVECTOR:
        raise _unusable(f"its pgvector is {version}, 0.8 or newer is needed: run ALTER EXTENSION vector UPDATE there")
    run_sql(connection, f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    run_sql(
        connection,
        f"CREATE TABLE IF NOT EXISTS {SCHEMA}.collections (name text PRIMARY KEY, number integer GENERATED ALWAYS "
        "AS IDENTITY, model text NOT NULL, dimensions integer NOT NULL, fields jsonb NOT NULL, "
        "exact boolean NOT NULL DEFAULT false, max_weight float8)",
    )
    run_sql(connection, f"ALTER TABLE {SCHEMA}.collections ADD COLUMN IF NOT EXISTS max_weight float8")


def _add_extension(connection: Connection) -> None:
    try:
        with connection.transaction():
            run_sql(connection, "CREATE EXTENSION vector")
    except psycopg.errors.InsufficientPrivilege as error:
        raise _unusable(
            "it lacks the extension vector, and this user may not add it: let an administrator of the database run "
            "CREATE EXTENSION vector"
        ) from error
    except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile) as error:
        raise _unusable(
            "it lacks the extension vector: CREATE EXTENSION vector needs pgvector, which must be installed on the "
            "database server (https://github.com/pgvector/pgvector)"
        ) from error


def _create(connection: Connection, wanted: Collection) -> CollectionTable:
    ((number,),) = run_sql(
        connection,
        f"INSERT INTO {SCHEMA}.collections (name, model, dimensions, fields, max_weight) "
        "VALUES (%s, %s, %s, '{}', %s) RETURNING number",
        [wanted.name, wanted.model, wanted.dimensions, USUAL_WEIGHT],
    )
    created = CollectionTable(Collection(wanted.name, wanted.model, wanted.dimensions), number, has_graph=False)
    # A row of up to a page stays in one place; beyond that the vector is the last thing to be moved out of it.
    run_sql(
        connection,
        f'CREATE TABLE {created.name} (key uuid PRIMARY KEY, id text COLLATE "C" NOT NULL, '
        f"vector vector({pad_dimensions(wanted.dimensions)}) STORAGE MAIN, terms sparsevec({TERM_SPACE}), "
        "term_ids integer[], moments jsonb, payload jsonb NOT NULL) WITH (toast_tuple_target = 8160)",
    )
    for column in ("id", "vector", "terms", "payload"):
        run_sql(connection, f"ALTER TABLE {created.name} ALTER COLUMN {column} SET STATISTICS 0")
    run_sql(connection, f"CREATE INDEX ON {created.name} USING gin (term_ids) WITH (fastupdate = off)")
    return created


def _declare(connection: Connection, table: CollectionTable, wanted: Collection) -> CollectionTable:
    """Creates indexes for new fields, and stores the fields and whether searches must be exact."""
    for field, kind in wanted.fields.items():
        if kind in _INDEXED_TYPES and field not in table.collection.fields:
            literal = Literal(field).as_string(connection).replace("%", "%%")
            run_sql(
                connection, f"CREATE INDEX ON {table.name} USING gin ((payload -> {literal})) WITH (fastupdate = off)"
            )
    fields = {**table.collection.fields, **wanted.fields}
    run_sql(
        connection, f"ALTER TABLE {SCHEMA}.collections ADD COLUMN IF NOT EXISTS exact boolean NOT NULL DEFAULT false"
    )
    run_sql(
        connection,
        f"UPDATE {SCHEMA}.collections SET fields = %s::jsonb, exact = %s WHERE number = %s",
        [json.dumps(fields), wanted.exact, table.number],
    )
    return replace(table, collection=replace(table.collection, fields=fields, exact=wanted.exact))


def _unusable(problem: str) -> Unavailable:
    return Unavailable(
        f"the database of TOOLSCRIPT_INDEX cannot be used for an index: {problem}",
        details={"field": "TOOLSCRIPT_INDEX"},
    )
