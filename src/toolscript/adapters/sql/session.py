"""A transaction of a database, as the SQL stores use it, and what differs between databases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Protocol, TypeVar, cast

from toolscript.domain.errors import Unavailable

T = TypeVar("T")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between SQLite and PostgreSQL."""

    words: Mapping[str, str]
    """The values of the `$words` in migrations; some statements need them, too."""
    schemas: Sequence[str]
    """Statements to run before the first migration."""
    among: str
    find_table: str
    lock: str | None
    skip_locked: str
    """Ends a SELECT whose rows other transactions must not take meanwhile."""
    notify: str | None
    """Tells processes that listen to a channel when the transaction is committed; None where nobody can listen."""
    adapt: Callable[[Any], Any]
    translate: Callable[[str], Any]
    """How the driver takes values and statements."""
    faults: tuple[type[Exception], ...]
    """Errors of the driver when the database cannot do its work."""
    rejections: tuple[type[Exception], ...]
    """Errors of the driver when a value violates a constraint of the tables."""


@dataclass(frozen=True, slots=True)
class Session:
    """A connection in a transaction, used by one thread. Statements name their parameters `:like_this`."""

    connection: Any
    dialect: Dialect

    def rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows that a statement returns. JSON, lists of texts and booleans come back as such."""
        return [*self._execute(sql, parameters)]

    def run(self, sql: str, **parameters: Any) -> int:
        """Runs a statement and returns the number of rows it changed."""
        return int(self._execute(sql, parameters).rowcount)

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Runs a statement once per row."""
        with closing(self.connection.cursor()) as cursor:
            cursor.executemany(self.dialect.translate(sql), [self._adapt(row) for row in rows])

    def has_table(self, name: str) -> bool:
        return bool(self.rows(self.dialect.find_table, name=name))

    def among(self, column: str, parameter: str) -> str:
        """The condition that a column's value is in the list given as that parameter."""
        return self.dialect.among.format(column=column, parameter=parameter)

    def lock(self, subject: str) -> None:
        """Waits for other transactions that locked this subject; keeps the lock until the transaction ends."""
        if self.dialect.lock:
            self.run(self.dialect.lock, subject=f"toolscript {subject}")

    def notify(self, channel: str) -> None:
        """Wakes the processes that listen to this channel, once the transaction is committed."""
        if self.dialect.notify:
            self.rows(self.dialect.notify, channel=channel)

    def _execute(self, sql: str, parameters: Row) -> Any:
        return self.connection.execute(self.dialect.translate(sql), self._adapt(parameters))

    def _adapt(self, row: Row) -> dict[str, Any]:
        return {name: self.dialect.adapt(value) for name, value in row.items()}


def load(kind: Callable[..., T], row: Row) -> T:
    """A dataclass from the columns that are named like its fields. Lists become tuples."""
    values = [row[name] for name in _list_fields(kind)]
    return kind(*[tuple(value) if isinstance(value, list) else value for value in values])


@cache
def _list_fields(kind: Callable[..., Any]) -> list[str]:
    return [each.name for each in fields(cast(Any, kind))]


class Sessions(Protocol):
    """Opens the sessions of one database, and keeps their connections open between transactions."""

    @property
    def dialect(self) -> Dialect: ...

    def begin(self, *, writing: bool) -> Session:
        """Starts a transaction. Raises a fault, or Unavailable when the database cannot be opened."""

    def explain(self, error: Exception) -> Unavailable:
        """The error to raise for a fault of the driver: DiskFull, or Unavailable with the driver's reason."""

    def give_back(self, session: Session, *, failed: bool) -> None:
        """Rolls back what is not committed, and keeps the connection unless it `failed`."""

    async def listen(self, channel: str, when_notified: Callable[[], object]) -> None:
        """Calls `when_notified` for every notification, until cancelled. Raises a fault."""

    def close(self) -> None: ...


def get_first_line(error: Exception) -> str:
    """The first line of a driver's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
