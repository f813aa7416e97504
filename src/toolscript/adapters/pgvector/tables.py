"""The tables of an index in PostgreSQL: one that says which collections there are, and one per collection that holds
its points, a row each. Why one row holds everything: docs/decisions/0010."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import psycopg
from psycopg.sql import Literal

from toolscript.adapters.pgvector.connections import Connection, rows
from toolscript.adapters.pgvector.filters import TERM_SPACE, padded
from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Collection, FieldType, require_same_model

SCHEMA = "toolscript_index"
OLDEST_PGVECTOR = (0, 8)

_INDEXED = frozenset({FieldType.KEYWORD, FieldType.TENANT})


@dataclass(frozen=True, slots=True)
class Held:
    """A collection as the database has it: the number in the names of its tables, and whether its graph is ready."""

    collection: Collection
    number: int
    has_graph: bool

    @property
    def table(self) -> str:
        return f"{SCHEMA}.points_{self.number}"

    @property
    def graph(self) -> str:
        return f"graph_{self.number}"


def find(connection: Connection, name: str) -> Held | None:
    """What the database says of a collection, or None where there is none."""
    # Not to_regclass: a transaction that has waited for another to create the table would not see it there.
    if not rows(connection, "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'collections'", [SCHEMA]):
        return None
    found = rows(
        connection,
        # As JSON, because the table of an earlier version has no such column.
        f"SELECT number, model, dimensions, fields, coalesce((to_jsonb(c) ->> 'exact')::boolean, false), "
        "coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = "
        f"to_regclass('{SCHEMA}.graph_' || number)), false) FROM {SCHEMA}.collections c WHERE name = %s",
        [name],
    )
    if not found:
        return None
    number, model, dimensions, fields, exact, has_graph = found[0]
    kinds = {field: FieldType(kind) for field, kind in fields.items()}
    return Held(Collection(name, model, dimensions, kinds, exact), number, has_graph)


def create(connection: Connection, wanted: Collection) -> Held:
    """The collection, made unless it exists; processes that come at once take turns. Raises Invalid when it was made
    with another model."""
    found = find(connection, wanted.name)
    if found is None or _differ(found.collection, wanted):
        with connection.transaction():
            _take_turns(connection)
            found = find(connection, wanted.name)
            if found is None:
                _prepare_database(connection)
                found = _create(connection, wanted)
            require_same_model(found.collection, wanted)
            found = _declare(connection, found, wanted)
    require_same_model(found.collection, wanted)
    return found


def _differ(held: Collection, wanted: Collection) -> bool:
    return held.exact != wanted.exact or bool(wanted.fields.items() - held.fields.items())


def drop(connection: Connection, name: str) -> None:
    with connection.transaction():
        _take_turns(connection)
        found = find(connection, name)
        if found:
            rows(connection, f"DROP TABLE IF EXISTS {found.table}")
            rows(connection, f"DELETE FROM {SCHEMA}.collections WHERE number = %s", [found.number])


def _take_turns(connection: Connection) -> None:
    rows(connection, "SELECT pg_advisory_xact_lock(hashtext('toolscript index'))")


def _prepare_database(connection: Connection) -> None:
    if not rows(connection, "SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
        _add_extension(connection)
    ((version,),) = rows(connection, "SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_PGVECTOR:
        raise _unusable(f"its pgvector is {version}, 0.8 or newer is needed: run ALTER EXTENSION vector UPDATE there")
    rows(connection, f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    rows(
        connection,
        f"CREATE TABLE IF NOT EXISTS {SCHEMA}.collections (name text PRIMARY KEY, number integer GENERATED ALWAYS "
        "AS IDENTITY, model text NOT NULL, dimensions integer NOT NULL, fields jsonb NOT NULL, "
        "exact boolean NOT NULL DEFAULT false)",
    )


def _add_extension(connection: Connection) -> None:
    try:
        with connection.transaction():
            rows(connection, "CREATE EXTENSION vector")
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


def _create(connection: Connection, wanted: Collection) -> Held:
    ((number,),) = rows(
        connection,
        f"INSERT INTO {SCHEMA}.collections (name, model, dimensions, fields) VALUES (%s, %s, %s, '{{}}') "
        "RETURNING number",
        [wanted.name, wanted.model, wanted.dimensions],
    )
    made = Held(Collection(wanted.name, wanted.model, wanted.dimensions), number, has_graph=False)
    # A row of up to a page stays in one place; beyond that the vector is the last thing to be moved out of it.
    rows(
        connection,
        f'CREATE TABLE {made.table} (key uuid PRIMARY KEY, id text COLLATE "C" NOT NULL, '
        f"vector vector({padded(wanted.dimensions)}) STORAGE MAIN, terms sparsevec({TERM_SPACE}), term_ids integer[], "
        "moments jsonb, payload jsonb NOT NULL) WITH (toast_tuple_target = 8160)",
    )
    for column in ("id", "vector", "terms", "payload"):
        rows(connection, f"ALTER TABLE {made.table} ALTER COLUMN {column} SET STATISTICS 0")
    rows(connection, f"CREATE INDEX ON {made.table} USING gin (term_ids) WITH (fastupdate = off)")
    return made


def _declare(connection: Connection, held: Held, wanted: Collection) -> Held:
    """Makes indexes for the fields that are new, and remembers them, and whether searches must be exact."""
    for field, kind in wanted.fields.items():
        if kind in _INDEXED and field not in held.collection.fields:
            named = Literal(field).as_string(connection).replace("%", "%%")
            rows(connection, f"CREATE INDEX ON {held.table} USING gin ((payload -> {named})) WITH (fastupdate = off)")
    fields = {**held.collection.fields, **wanted.fields}
    rows(connection, f"ALTER TABLE {SCHEMA}.collections ADD COLUMN IF NOT EXISTS exact boolean NOT NULL DEFAULT false")
    rows(
        connection,
        f"UPDATE {SCHEMA}.collections SET fields = %s::jsonb, exact = %s WHERE number = %s",
        [json.dumps(fields), wanted.exact, held.number],
    )
    return replace(held, collection=replace(held.collection, fields=fields, exact=wanted.exact))


def _unusable(problem: str) -> Unavailable:
    return Unavailable(
        f"the database of TOOLSCRIPT_INDEX cannot hold an index: {problem}", details={"field": "TOOLSCRIPT_INDEX"}
    )
