"""What only the index in PostgreSQL has: its server, permissions, other processes, and its graph."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psycopg
import pytest

from tests.fixtures.coroutines import call_until_available
from tests.fixtures.limits import set_limits
from toolscript.adapters.memory import MemoryIndex
from toolscript.adapters.pgvector.filters import translate_filter
from toolscript.adapters.pgvector.index import PgVectorIndex
from toolscript.app.app import open_app
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.filters import Condition, Filter, Op, matches
from toolscript.domain.search import Collection, FieldType, Point, Terms, Vector
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.settings import Settings

pytestmark = [pytest.mark.req("X-02", "H-16"), pytest.mark.slow]

NAME = "things"
DIMENSIONS = 16
THINGS = Collection(NAME, "model-a", DIMENSIONS, {"color": FieldType.KEYWORD, "100% 'odd'": FieldType.KEYWORD})
SECRET = "ge%23heim"


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture
def database(postgres_server: str) -> Iterator[str]:
    """The URL of an empty database."""
    name = f"index_{uuid.uuid4().hex}"
    run(postgres_server, f"CREATE DATABASE {name}")
    yield urlsplit(postgres_server)._replace(path=f"/{name}").geturl()
    run(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def open_things(url: str, collection: Collection = THINGS, **options: Any) -> AsyncIterator[PgVectorIndex]:
    index = PgVectorIndex(url, **options)
    try:
        await index.open(collection)
        yield index
    finally:
        await index.close()


def vector(seed: int, dimensions: int = DIMENSIONS) -> Vector:
    made = np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made), np.float32)


def points(count: int, **payload: Any) -> list[Point]:
    return [Point(f"p{n:04d}", vector(n), Terms((n % 7,), (1.0,)), {"n": n, **payload}) for n in range(count)]


@pytest.mark.req("X-03")
async def test_the_error_for_a_server_without_pgvector_says_what_it_needs(database: str) -> None:
    name = urlsplit(database).path.removeprefix("/")
    run(database, f"ALTER DATABASE {name} SET extension_control_path = '/nowhere'")
    with pytest.raises(Unavailable, match=r"TOOLSCRIPT_INDEX.*CREATE EXTENSION vector needs pgvector"):
        async with open_things(database):
            pass


@pytest.mark.req("X-03")
async def test_the_error_for_a_user_without_rights_names_the_administrator(database: str) -> None:
    guest = f"guest_{uuid.uuid4().hex}"
    run(database, f"CREATE ROLE {guest} LOGIN PASSWORD 'guest'")
    try:
        parts = urlsplit(database)
        netloc = f"{guest}:guest@{parts.netloc.rpartition('@')[2]}"
        with pytest.raises(Unavailable, match=r"administrator .* run CREATE EXTENSION vector"):
            async with open_things(parts._replace(netloc=netloc).geturl()):
                pass
    finally:
        run(database, f"DROP ROLE {guest}")


@pytest.mark.req("X-03", "X-04")
async def test_an_unreachable_server_is_named_without_its_password() -> None:
    index = PgVectorIndex(f"postgresql://anna:{SECRET}@127.0.0.1:9/tools")
    with pytest.raises(
        Unavailable, match=r"postgresql://127\.0\.0\.1:9/tools cannot be opened.*TOOLSCRIPT_INDEX"
    ) as raised:
        await index.describe(NAME)
    await index.close()
    assert raised.value.details["field"] == "TOOLSCRIPT_INDEX"
    assert raised.value.__cause__ is None
    assert not any(secret in str(raised.value.to_envelope()) for secret in (SECRET, "ge#heim", "heim"))


@pytest.mark.req("X-03", "X-04")
@pytest.mark.parametrize("url", [f"postgresql://anna:{SECRET}%zz@host/x", f"postgresql://anna:{SECRET}@[host/x"])
def test_an_unusable_address_is_rejected_without_repeating_it(url: str) -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_INDEX is not a usable PostgreSQL address") as raised:
        PgVectorIndex(url)
    assert "heim" not in str(raised.value.to_envelope())


async def test_processes_that_open_a_new_database_at_once_all_succeed(database: str) -> None:
    several = [PgVectorIndex(database) for _ in range(4)]
    await asyncio.gather(*(index.open(THINGS) for index in several))
    await asyncio.gather(*(index.upsert(NAME, points(50)) for index in several))
    assert [await index.count(NAME) for index in several] == [50] * 4
    for index in several:
        await index.close()


async def test_closed_connections_are_replaced(database: str) -> None:
    async with open_things(database) as index:
        await index.upsert(NAME, points(5))
        for work in (lambda: index.count(NAME), lambda: index.upsert(NAME, points(5))):
            run(
                database,
                "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid()",
            )
            await work()
        assert await index.count(NAME) == 5


async def test_a_closed_index_is_unavailable(database: str) -> None:
    async with open_things(database) as index:
        pass
    with pytest.raises(Unavailable, match="closed"):
        await index.count(NAME)


async def test_a_statement_that_takes_too_long_is_cancelled(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, statement=0.2)
    index = PgVectorIndex(database)
    await call_until_available(lambda: index.open(THINGS))
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE toolscript_index.collections, toolscript_index.points_1")
        with pytest.raises(Unavailable) as raised:
            await index.count(NAME)
        assert "within 0.2 seconds" in str(raised.value.__cause__)
    assert await call_until_available(lambda: index.count(NAME)) == 0
    await index.close()


async def test_an_index_that_another_process_recreated_is_found_again(database: str) -> None:
    async with open_things(database) as ours, open_things(database) as other:
        await ours.upsert(NAME, points(5))
        await other.drop(NAME)
        await other.open(THINGS)
        await other.upsert(NAME, points(3))
        assert await ours.count(NAME) == 3
        await other.drop(NAME)
        await other.open(replace(THINGS, model="model-b"))
        with pytest.raises(Invalid, match="model-b"):
            await ours.upsert(NAME, points(1))


async def test_a_collection_may_gain_fields(database: str) -> None:
    async with open_things(database) as index:
        await index.open(replace(THINGS, fields={**THINGS.fields, "shape": FieldType.KEYWORD}))
        described = await index.describe(NAME)
        assert described is not None
        assert set(described.fields) == {*THINGS.fields, "shape"}


async def test_readers_see_all_of_a_batch_or_nothing(database: str) -> None:
    async with open_things(database) as index, open_things(database) as reader:
        writing = asyncio.create_task(index.upsert(NAME, points(6_000)))
        seen = {await reader.count(NAME)}
        while not writing.done():
            seen.add(await reader.count(NAME))
        await writing
        assert seen <= {0, 6_000}
        assert await reader.count(NAME) == 6_000


@pytest.mark.req("X-03")
async def test_an_invalid_value_is_rejected_and_nothing_is_written(database: str) -> None:
    async with open_things(database) as index:
        for wrong in (
            Point("nul", vector(1), Terms(), {"text": "a\0b"}),
            Point("short", vector(1, 4), Terms(), {}),
        ):
            with pytest.raises(Invalid, match=r"rejects a value|dimensions"):
                await index.upsert(NAME, [*points(3), wrong])
        with pytest.raises(Invalid, match="4 dimensions does not fit a collection of 16"):
            await index.dense(NAME, vector(1, 4), limit=1)
        assert await index.count(NAME) == 0


async def test_long_ids_and_texts_of_many_words_are_stored(database: str) -> None:
    many = Terms(tuple(range(20_000)), tuple(1.0 + n / 1000 for n in range(20_000)))
    long_id = "".join(chr(0x4E00 + n * 7 % 20_000) for n in range(5_000))
    async with open_things(database) as index:
        await index.upsert(NAME, [Point(long_id, vector(1), many, {"text": "x" * 20_000}), *points(3)])
        (found,) = await index.lexical(NAME, Terms((19_999,), (1.0,)), limit=5)
        assert found.id == long_id
        assert found.score == pytest.approx(20.999)
        assert len(found.payload["text"]) == 20_000
        assert (await index.vectors(NAME, [long_id]))[long_id] == pytest.approx(vector(1))
        await index.delete(NAME, [long_id])
        assert await index.count(NAME) == 3


ODD_VALUES: list[Any] = [
    None,
    [],
    [None],
    {},
    {"red": 1},
    [["red"], [3]],
    [{"red": 1}, "blue"],
    "red",
    "Red",
    "",
    "3",
    3,
    3.0,
    -0.0,
    1e30,
    True,
    [False, "true"],
    "2024-01-01",
    "2024-W01-1",
    "20240101T000000",
    ["2024-01-01T00:00:00+14:00", "0001-01-01"],
    "2024-13-01",
]
CONDITIONS: list[tuple[Op, Any]] = [
    *product([Op.EQ, Op.NE, Op.CONTAINS], ["red", "", "3", "true", 3, 3.0, 0, True, False, "2024-01-01"]),
    *product([Op.LT, Op.LTE, Op.GT, Op.GTE], [3, 0.5, "2024-01-01", "2024-01-01T00:00:00+14:00", "9999-12-31"]),
    *product([Op.IN, Op.NIN], [[], ["red", "3"], ["red", 3, False], [True]]),
    *product([Op.EXISTS], [True, False]),
]


@pytest.mark.req("D-03")
async def test_filters_agree_with_the_oracle_for_unusual_payloads(database: str) -> None:
    for field in ("color", "100% 'odd'", "meta.free text"):
        payloads = {f"p{n:02d}": {field: value} for n, value in enumerate(ODD_VALUES)} | {"p99": {}}
        async with open_things(database) as index:
            await index.drop(NAME)
            await index.open(THINGS)
            await index.upsert(NAME, [Point(i, None, Terms(), payload) for i, payload in payloads.items()])
            for op, value in CONDITIONS:
                condition = Condition(field, op, value)
                for where in (Filter(must=(condition,)), Filter(must_not=(condition,)), Filter(should=(condition,))):
                    expected = [i for i, payload in sorted(payloads.items()) if matches(where, payload)]
                    assert [c.id for c in await index.scroll(NAME, where=where)] == expected, where


@pytest.mark.req("X-04")
def test_values_of_callers_are_never_part_of_a_statement() -> None:
    value = "'; DROP TABLE x; --"
    conditions = [Condition(value, op, value) for op in (Op.EQ, Op.NE, Op.CONTAINS)]
    conditions += [Condition(value, op, [value]) for op in (Op.IN, Op.NIN)]
    conditions += [Condition(value, Op.GT, 3), Condition(value, Op.EXISTS, True)]
    for condition in conditions:
        sql, parameters = translate_filter(Filter((condition,), (condition,), (condition,)))
        assert "DROP" not in sql
        assert sql.count("%s") == len(parameters)


async def test_a_large_collection_gets_a_graph_and_answers_as_before(database: str) -> None:
    many = [replace(p, payload={"n": i, "color": "red" if i % 50 == 0 else "blue"}) for i, p in enumerate(points(400))]
    oracle = MemoryIndex()
    await oracle.open(THINGS)
    await oracle.upsert(NAME, many)
    async with open_things(database, graph_from=300, exact_up_to=50) as index:
        await index.upsert(NAME, many)
        await index.wait_until_idle()
        with psycopg.connect(database) as connection:
            valid = connection.execute(
                "SELECT indisvalid FROM pg_index WHERE indexrelid::regclass::text LIKE '%graph%'"
            )
            assert valid.fetchall() == [(True,)]
        for color, seed in product((None, "red", "blue"), range(5)):
            where = Filter(must=(Condition("color", Op.EQ, color),)) if color else Filter()
            found = await index.dense(NAME, vector(1000 + seed), where=where, limit=10, fields=["n"])
            expected = await oracle.dense(NAME, vector(1000 + seed), where=where, limit=10, fields=["n"])
            assert len({c.id for c in found} & {c.id for c in expected}) >= len(expected) - 1
            assert found[0].score == pytest.approx(expected[0].score, abs=1e-5)
            assert found[0].payload == expected[0].payload
        await index.upsert(NAME, many)
        await index.wait_until_idle()


async def test_closing_cancels_a_graph_that_is_being_built(database: str) -> None:
    async with open_things(database, graph_from=1_000) as index:
        await index.upsert(NAME, points(3_000))
    async with open_things(database, graph_from=1_000) as index:
        await index.upsert(NAME, points(1_000))
        await index.drop(NAME)
        assert await index.describe(NAME) is None


@pytest.mark.req("H-15")
async def test_one_database_serves_as_store_and_index(small: Settings, database: str) -> None:
    settings = replace(small, store=database, index=database)
    async with open_app(settings) as app:
        await app.catalogue.sync.run(load_demo_items())
        await app.check_ready()
        found = await app.tools.search.search("git commit")
        assert found.hits[0].id == "git__git_commit"
    async with open_app(settings) as app:
        assert await app.count_indexed_tools() == len(load_demo_items())
        assert [h.id for h in (await app.tools.search.search("git commit")).hits] == [h.id for h in found.hits]
    with pytest.raises(Invalid, match="hashed-64"):
        async with open_app(replace(settings, search_model="hashed-32")):
            pass
