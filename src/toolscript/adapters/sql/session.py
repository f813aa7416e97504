"""What the SQL stores need of a database, said once; SQLite and PostgreSQL each have their way of doing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Row = Mapping[str, Any]


class Session(Protocol):
    """A connection, used by one thread. Statements name their parameters `:like_this`."""

    @property
    def words(self) -> Mapping[str, str]:
        """What the `$words` of a migration are called here; some of them statements need, too."""

    @property
    def schemas(self) -> tuple[str, ...]:
        """Statements that must run before the first migration."""

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """What the driver raises when the database cannot do its work."""

    @property
    def refusals(self) -> tuple[type[Exception], ...]:
        """What the driver raises when a value breaks a rule of the tables."""

    def rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """What a statement returns. JSON, lists of texts and booleans come back as such."""

    def run(self, sql: str, **parameters: Any) -> int:
        """Runs a statement and returns how many rows it touched."""

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Runs a statement once per row."""

    def has(self, table: str) -> bool:
        """Whether there is a table of that name."""

    def among(self, column: str, parameter: str) -> str:
        """The condition that a column's value is in the list given as that parameter."""

    def begin(self, *, writing: bool) -> None:
        """Starts a transaction. Raises one of `faults` when the connection is gone."""

    def lock(self, subject: str) -> None:
        """Waits until no other transaction is at the same subject; holds it until the transaction ends."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...
