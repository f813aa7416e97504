"""SQLite: a file next to the index, or memory. Write-ahead logging; a writer waits its turn."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolscript.adapters.sql.session import Row
from toolscript.domain.errors import Unavailable

BUSY_SECONDS = 10

# Columns declared with these words come back as what they hold.
sqlite3.register_converter("JSON", json.loads)
sqlite3.register_converter("TEXTS", json.loads)
sqlite3.register_converter("BOOLEAN", lambda value: value != b"0")


class SqliteSession:
    """A connection to a SQLite file; an empty path is a database in memory."""

    words: Mapping[str, str] = {
        "mcp": "",
        "documents": "",
        "knowledge": "",
        "number": "INTEGER",
        "unrepeated": "AUTOINCREMENT",
        "bytes": "BLOB",
        "texts": "TEXTS",
        "time": "TIMESTAMP_TEXT",
        "by_code_point": "COLLATE BINARY",
    }
    schemas = ()
    faults = (sqlite3.DatabaseError,)
    refusals = (sqlite3.IntegrityError, sqlite3.DataError)

    def __init__(self, file: str, *, read_only: bool = False) -> None:
        """Raises Unavailable when the file cannot be opened as a SQLite database, or is to be read and not there."""
        if read_only and not Path(file).is_file():
            raise Unavailable(
                f"the store {file} is not there: nothing has been stored yet, or TOOLSCRIPT_STORE or "
                "TOOLSCRIPT_DATA_DIR names another place",
                details={"store": file},
            )
        try:
            if file and not read_only:
                Path(file).parent.mkdir(parents=True, exist_ok=True)
            self._connection = _connected(file or ":memory:", read_only=read_only)
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(f"the store {file} cannot be opened: {error}", details={"store": file}) from error

    def rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        return self._connection.execute(sql, _said(parameters)).fetchall()

    def run(self, sql: str, **parameters: Any) -> int:
        return self._connection.execute(sql, _said(parameters)).rowcount

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        self._connection.executemany(sql, [_said(row) for row in rows])

    def has(self, table: str) -> bool:
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", name=table))

    def among(self, column: str, parameter: str) -> str:
        return f"{column} IN (SELECT value FROM json_each(:{parameter}))"

    def begin(self, *, writing: bool) -> None:
        # A writer takes its lock at once: one that upgrades half-way can find itself locked out for good.
        self._connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")

    def lock(self, subject: str) -> None:
        """Nothing to do: a writer already waits for all others."""

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()


def _connected(file: str, *, read_only: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{Path(file).absolute().as_uri()}?mode=ro" if read_only else file,
        uri=read_only,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        detect_types=sqlite3.PARSE_DECLTYPES,
        check_same_thread=False,  # closed by another thread than the one that uses it
    )
    try:
        connection.row_factory = _as_dict
        if read_only:
            # Reads the file for the first time: what is wrong with it shall be known now.
            connection.execute("PRAGMA schema_version").close()
        else:
            _write_ahead(connection)
        for pragma in ("synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switches to write-ahead logging. The switch does not wait for others by itself, so it is tried again."""
    patience = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > patience:
                raise
            time.sleep(0.01)
        else:
            return


def _said(row: Row) -> dict[str, Any]:
    return {k: json.dumps(v, ensure_ascii=False) if isinstance(v, dict | list) else v for k, v in row.items()}


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}
