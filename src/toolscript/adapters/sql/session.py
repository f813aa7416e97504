"""What the SQL stores need of a database; SQLite and PostgreSQL implement it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Row = Mapping[str, Any]


class Session(Protocol):
    """A connection in a transaction, used by one thread. Statements name their parameters `:like_this`."""

    @property
    def words(self) -> Mapping[str, str]:
        """The values of the `$words` in migrations; some statements need them, too."""

    @property
    def schemas(self) -> tuple[str, ...]:
        """Statements to run before the first migration."""

    def rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows that a statement returns. JSON, lists of texts and booleans come back as such."""

    def run(self, sql: str, **parameters: Any) -> int:
        """Runs a statement and returns the number of rows it changed."""

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Runs a statement once per row."""

    def has_table(self, name: str) -> bool: ...

    def among(self, column: str, parameter: str) -> str:
        """The condition that a column's value is in the list given as that parameter."""

    def lock(self, subject: str) -> None:
        """Waits for other transactions that locked this subject; keeps the lock until the transaction ends."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Sessions(Protocol):
    """Opens the sessions of one database, and keeps them open between transactions."""

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """Errors of the driver when the database cannot do its work."""

    @property
    def rejections(self) -> tuple[type[Exception], ...]:
        """Errors of the driver when a value violates a constraint of the tables."""

    def begin(self, *, writing: bool) -> Session:
        """Starts a transaction. Raises one of `faults`, or Unavailable when the database cannot be opened."""

    def give_back(self, session: Any) -> None:
        """Takes back a session whose transaction has ended."""

    def discard(self, session: Any) -> None:
        """Takes back a session that failed."""

    def close(self) -> None: ...
