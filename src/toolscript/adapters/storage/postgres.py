"""PostgreSQL connections for the SQL stores and the pgvector index: a `psycopg_pool` that connects on first use and
reports errors with the server's address, never with its password. Nothing waits for a silent server without end."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolTimeout

from toolscript.adapters.storage.outages import Outage
from toolscript.domain.errors import Invalid

CONNECT_SECONDS = 5
# How long a server may send nothing before it counts as not answering: it may be stopped, or the network cut. A
# statement that writes may wait for other writers, until `current_limits().statement` ends it.
READ_SECONDS = 10.0
WRITE_SECONDS = 35.0
# Finds out that the network dropped a connection: after about 60 s without traffic, or 30 s without an acknowledgement.
KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 30_000}
# How often a thread that waits for a new connection looks whether connecting has failed.
POLL_SECONDS = 0.05

FAULTS = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.InternalError,
    psycopg.errors.InsufficientPrivilege,
)

# The pool logs failed connections; here they are raised.
logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)


class TimedConnection(psycopg.Connection[Any]):
    """A connection that closes itself and raises OperationalError when the server sends nothing for `max_silence`
    seconds. The server's own timeouts do not help when it is the server that is stopped."""

    max_silence: float = READ_SECONDS
    has_timed_out = False

    def wait(self, gen: Generator[Any, Any, Any], *options: Any, **named: Any) -> Any:
        return super().wait(self._limit_silence(gen), *options, **named)

    def _limit_silence(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same steps. psycopg resumes them when the socket is ready, and with 0 ten times a second otherwise."""
        heard_at = time.monotonic()
        try:
            awaited = next(steps)
            while True:
                ready = yield awaited
                if ready:
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at > self.max_silence:
                    self._give_up(steps)
                awaited = steps.send(ready)
        except StopIteration as end:
            return end.value

    def _give_up(self, steps: Generator[Any, Any, Any]) -> NoReturn:
        self.has_timed_out = True
        steps.close()
        self.close()
        raise psycopg.OperationalError(f"no answer within {self.max_silence:g} seconds")


Connection: TypeAlias = TimedConnection


class PostgresPool:
    """Up to `size` connections to one server, in autocommit mode."""

    def __init__(self, url: str, *, part: str, size: int, settings: str, **options: Any) -> None:
        """`part` is "store" or "index", for error messages; `settings` are options of the server (`-c name=value`),
        `options` the arguments of `psycopg.connect`. Does not connect. Raises Invalid for an unusable URL."""
        self._part, self._field = part, f"TOOLSCRIPT_{part.upper()}"
        try:
            parsed = conninfo_to_dict(url)
        except psycopg.Error:
            # Not chained: the driver's message repeats the URL with its password.
            raise Invalid(
                f"{self._field} is not a usable PostgreSQL address: give postgresql://USER:PASSWORD@HOST:5432/NAME, "
                "special characters in the password percent-encoded",
                details={"field": self._field, "allowed": "postgresql://USER:PASSWORD@HOST:5432/NAME"},
            ) from None
        self._url = url
        self._password = str(parsed.get("password") or "")
        port = f":{parsed['port']}" if parsed.get("port") else ""
        self.address = f"postgresql://{parsed.get('host') or 'localhost'}{port}/{parsed.get('dbname') or ''}"
        self._options = {
            "autocommit": True,
            "connect_timeout": CONNECT_SECONDS,
            **{name: value for name, value in KEEPALIVES.items() if name not in parsed},
            "options": f"{parsed.get('options') or ''} {settings}".strip(),
            **options,
        }
        self._failed_attempts = 0
        self._last_failure: Exception = PoolTimeout("no connection in time")
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            connection_class=self._make_connection_class(),
            kwargs=self._options,
            min_size=0,
            max_size=size,
            num_workers=1,
            reconnect_timeout=0,
            open=False,
        )

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection of the pool. It may have died while it was idle: then its first statement fails, and after
        `drop_idle` a second try succeeds. Raises Outage when the server cannot be reached."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def take(self) -> Connection:
        """A connection that the caller gives back. Fails as soon as connecting fails; `getconn` alone would wait until
        its timeout and not give the reason."""
        self._pool.open()
        attempts, deadline = self._failed_attempts, time.monotonic() + 2 * CONNECT_SECONDS
        while True:
            try:
                return self._pool.getconn(timeout=POLL_SECONDS)
            except PoolTimeout:
                if self._failed_attempts > attempts or time.monotonic() > deadline:
                    raise self._unreachable(self._last_failure) from None

    def give_back(self, connection: Connection) -> None:
        """Takes a connection back. When it has timed out, idle connections are dropped: the network may have dropped
        all of them, and each would cost a request that waits."""
        connection.max_silence = READ_SECONDS
        if connection.has_timed_out:
            self.drop_idle()
        self._pool.putconn(connection)

    def connect(self) -> Connection:
        """A connection outside the pool, for statements of any length. Raises Outage when the server cannot be
        reached."""
        try:
            connection = TimedConnection.connect(self._url, **self._options)
        except psycopg.Error as error:
            raise self._unreachable(error) from None
        connection.max_silence = math.inf
        return connection

    async def connect_async(self) -> psycopg.AsyncConnection[Any]:
        """A connection outside the pool, for coroutines. Raises Unavailable when the server cannot be reached."""
        try:
            return await psycopg.AsyncConnection.connect(self._url, **self._options)
        except psycopg.Error as error:
            raise self._unreachable(error) from None

    def drop_idle(self) -> None:
        """Closes the idle connections without a test: a test would wait for each silent connection. New connections
        replace them."""
        self._pool.drain()

    def close(self) -> None:
        self._pool.close()

    def reason(self, error: Exception) -> str:
        """The first line of the driver's message, without the password."""
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return line.replace(self._password, "***") if self._password else line

    def _make_connection_class(self) -> type[Connection]:
        """Connections that tell this pool why connecting failed; `psycopg_pool` only logs it."""
        pool = self

        class RecordedConnection(TimedConnection):
            @classmethod
            def connect(cls, conninfo: str = "", **options: Any) -> Any:
                try:
                    return super().connect(conninfo, **options)
                except psycopg.Error as error:
                    pool._last_failure = error
                    pool._failed_attempts += 1
                    raise

        return RecordedConnection

    def _unreachable(self, error: Exception) -> Outage:
        return Outage(
            f"the {self._part} {self.address} cannot be opened: {self.reason(error)}; "
            f"check {self._field} and the server",
            details={"field": self._field, self._part: self.address},
        )
