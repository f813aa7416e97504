"""The way to the PostgreSQL server that holds an index: a few connections, each kept by a worker thread of its own,
and what the driver raises said in our words."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from toolscript.domain.errors import Invalid, Unavailable

T = TypeVar("T")
Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

WORKERS = 4
CONNECT_SECONDS = 5
STATEMENT_SECONDS = 30

_FIELD = {"field": "TOOLSCRIPT_INDEX"}
_FAULTS = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.InternalError,
    psycopg.errors.InsufficientPrivilege,
)


class Connections:
    """Runs units of work on connections that are opened when they are first needed."""

    def __init__(self, url: str) -> None:
        """Contacts nobody. Raises Invalid for what is not a PostgreSQL URL."""
        try:
            told = conninfo_to_dict(url)
        except psycopg.Error:
            # What the driver says repeats the URL, password and all.
            raise Invalid(
                "TOOLSCRIPT_INDEX is not a usable PostgreSQL address: give postgresql://USER:PASSWORD@HOST:5432/NAME, "
                "special characters in the password percent-encoded",
                details={**_FIELD, "allowed": "postgresql://USER:PASSWORD@HOST:5432/NAME"},
            ) from None
        self._url = url
        self._secret = str(told.get("password") or "")
        self._options = str(told.get("options") or "")
        self._where = f"postgresql://{told.get('host') or 'localhost'}/{told.get('dbname') or ''}"
        self._workers = ThreadPoolExecutor(max_workers=WORKERS, thread_name_prefix="pgvector")
        self._own = threading.local()
        self._all: set[Connection] = set()
        self._closed = False

    async def run(self, work: Callable[[Connection], T]) -> T:
        """What the work returns. It must do no harm when it is done twice: a connection that has died meanwhile is
        replaced once. Raises Unavailable when the server cannot do it, Invalid when it refuses a value."""
        if self._closed:
            raise Unavailable("the index is closed", details=_FIELD)
        return await asyncio.get_running_loop().run_in_executor(self._workers, self._work, work)

    def connect(self) -> Connection:
        """A connection of the caller's own. Raises Unavailable, naming the server but no password."""
        options = f"{self._options} -c statement_timeout={STATEMENT_SECONDS * 1000} -c jit=off"
        try:
            return psycopg.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,  # so that every plan is made for its own filter
                connect_timeout=CONNECT_SECONDS,
                options=options.strip(),
            )
        except psycopg.Error as error:
            raise Unavailable(
                f"the index {self._where} cannot be opened: {self._reason(error)}; check TOOLSCRIPT_INDEX and the "
                "server",
                details={**_FIELD, "index": self._where},
            ) from None

    async def close(self) -> None:
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        self._closed = True
        self._workers.shutdown()
        for connection in self._all:
            connection.close()

    def _work(self, work: Callable[[Connection], T]) -> T:
        try:
            try:
                return work(self._held())
            except (psycopg.OperationalError, psycopg.InterfaceError):
                if not self._held().closed:
                    raise
                self._forget()
                return work(self._held())
        except psycopg.DataError as error:
            raise Invalid(f"the index refuses a value: {self._reason(error)}", details=_FIELD) from error
        except psycopg.errors.QueryCanceled as error:
            raise Unavailable(
                f"the index {self._where} did not answer within {STATEMENT_SECONDS} seconds: {self._reason(error)}",
                details=_FIELD,
            ) from error
        except _FAULTS as error:
            if self._held().closed:
                self._forget()
            raise Unavailable(
                f"the index {self._where} does not answer: {self._reason(error)}; check TOOLSCRIPT_INDEX and the "
                "server",
                details=_FIELD,
            ) from error

    def _held(self) -> Connection:
        held: Connection | None = getattr(self._own, "connection", None)
        if held is None:
            held = self._own.connection = self.connect()
            self._all.add(held)
        return held

    def _forget(self) -> None:
        self._all.discard(self._own.connection)
        self._own.connection.close()
        del self._own.connection

    def _reason(self, error: Exception) -> str:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return said.replace(self._secret, "***") if self._secret else said


def rows(connection: Connection, sql: str, parameters: Sequence[Any] = (), *, binary: bool = False) -> list[Any]:
    """What a statement returns. Statements are written in this package; what callers give comes as parameters."""
    with connection.cursor(binary=binary) as cursor:
        cursor.execute(sql.encode(), parameters)
        return cursor.fetchall() if cursor.description else []
