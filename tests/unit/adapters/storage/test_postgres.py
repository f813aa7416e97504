"""The pool of connections to PostgreSQL, and connections that the network has dropped without a word."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
import psycopg
import pytest

from toolscript.adapters.storage.postgres import KEEPALIVES, PostgresPool

pytestmark = [pytest.mark.req("X-07"), pytest.mark.slow]

SIZE = 4


@pytest.fixture
def pool(postgres_server: str) -> Iterator[PostgresPool]:
    opened = PostgresPool(postgres_server, part="store", size=SIZE, settings="")
    yield opened
    opened.close()


@contextmanager
def silence_idle(pool: PostgresPool) -> Iterator[None]:
    """Fills the pool with idle connections whose server processes do not answer while the block lasts."""
    with ExitStack() as stack:
        connections = [stack.enter_context(pool.connection()) for _ in range(SIZE)]
        try:
            processes = [psutil.Process(connection.info.backend_pid) for connection in connections]
        except psutil.NoSuchProcess:
            pytest.skip("the server runs on another machine")
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def test_after_a_timeout_the_other_idle_connections_are_not_used(pool: PostgresPool) -> None:
    with silence_idle(pool):
        with pool.connection() as connection:
            connection.max_silence = 0.2
            with pytest.raises(psycopg.OperationalError, match="no answer within"):
                connection.execute("SELECT 1")
        for _ in range(SIZE):
            with pool.connection() as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)


def test_idle_connections_are_dropped_without_waiting_for_them(pool: PostgresPool) -> None:
    with silence_idle(pool):
        pool.drop_idle()
        with pool.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_system_notices_connections_that_the_network_dropped_unless_the_url_says_otherwise(
    postgres_server: str, pool: PostgresPool
) -> None:
    with pool.connection() as connection:
        found = connection.info.get_parameters()
    assert {name: int(found[name]) for name in KEEPALIVES} == KEEPALIVES
    mark = "&" if "?" in postgres_server else "?"
    with PostgresPool(f"{postgres_server}{mark}keepalives_idle=7", part="store", size=1, settings="").connect() as own:
        assert own.info.get_parameters()["keepalives_idle"] == "7"
