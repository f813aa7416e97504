"""SQLite in a file or in memory, with write-ahead logging: readers never wait, writers wait for each other."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolscript.adapters.sql.session import Dialect, Session, get_first_line
from toolscript.adapters.sql.sqlite_files import describe_damage, require_usable_files
from toolscript.adapters.storage.disk_space import RESERVED_BYTES, measure_free_space
from toolscript.adapters.storage.outages import Outage
from toolscript.adapters.storage.private_files import create_private, make_private_folder, restrict
from toolscript.domain.errors import DiskFull, Unavailable, is_disk_full

BUSY_SECONDS = 10
# Another process may read or write: then it empties the log when it ends.
CHECKPOINT_SECONDS = 1
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# With less free space than this, an input or output error means that the disk is full.
FULL_BELOW_BYTES = 2**20

log = logging.getLogger(__name__)

# Columns declared with these types are converted when read.
sqlite3.register_converter("JSON", json.loads)
sqlite3.register_converter("TEXTS", json.loads)
sqlite3.register_converter("BOOLEAN", lambda value: value != b"0")


def _adapt(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple) else value


SQLITE = Dialect(
    words={
        "mcp": "",
        "documents": "",
        "knowledge": "",
        "number": "INTEGER",
        "big_number": "INTEGER",
        "unrepeated": "AUTOINCREMENT",
        "bytes": "BLOB",
        "texts": "TEXTS",
        "time": "TIMESTAMP_TEXT",
        "by_code_point": "COLLATE BINARY",
    },
    schemas=(),
    among="{column} IN (SELECT value FROM json_each(:{parameter}))",
    find_table="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name",
    lock=None,  # a writer already waits for all others
    skip_locked="",
    notify=None,
    adapt=_adapt,
    translate=str,
    faults=(sqlite3.DatabaseError,),
    rejections=(sqlite3.IntegrityError, sqlite3.DataError),
)


class SqliteSessions:
    """The connections to a SQLite file; an empty path is a database in memory."""

    dialect = SQLITE

    def __init__(self, file: str, *, read_only: bool = False) -> None:
        self._file, self._read_only = file, read_only
        self._idle: list[Session] = []
        self._is_checked = False

    def begin(self, *, writing: bool) -> Session:
        """Raises Unavailable when the file cannot be opened as a SQLite database, or is missing and `read_only`."""
        try:
            session = self._idle.pop()
        except IndexError:
            session = Session(self._open(), SQLITE)
        try:
            # IMMEDIATE: a transaction that reads first and writes later can fail without waiting for other writers.
            session.connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
        except SQLITE.faults:
            session.connection.close()
            raise
        return session

    def explain(self, error: Exception) -> Unavailable:
        if self._file:
            code = get_code(error)
            free = measure_free_space(Path(self._file).parent)
            is_low = code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN} and free < FULL_BELOW_BYTES
            if is_disk_full(error) or code == sqlite3.SQLITE_FULL or is_low:
                return DiskFull(free, RESERVED_BYTES)
            if code == sqlite3.SQLITE_READONLY:
                return Outage(
                    f"the store {self._file} cannot be written: {get_first_line(error)}. Allow your user to write "
                    "it, or choose another folder with --data-dir",
                    details={"store": "sql"},
                )
            if code in DAMAGE:
                return Outage(describe_damage(self._file, get_first_line(error)), details={"store": "sql"})
        return Outage(f"the store does not answer: {get_first_line(error)}", details={"store": "sql"})

    def give_back(self, session: Session, *, failed: bool) -> None:
        if failed and self._file:  # closing would delete a database in memory
            session.connection.close()
            return
        if session.connection.in_transaction:
            session.connection.execute("ROLLBACK")
        self._idle.append(session)

    async def listen(self, channel: str, when_notified: Callable[[], object]) -> None:
        """Does nothing: SQLite has no notifications."""

    def close(self) -> None:
        if self._file and not self._read_only and self._idle:
            self._empty_log(self._idle[0].connection)
        for session in self._idle:
            session.connection.close()
        self._idle.clear()

    def _empty_log(self, connection: sqlite3.Connection) -> None:
        """Moves everything from the log into the database, so that it is complete without the log. SQLite does it with
        its last connection, unless that can only read."""
        try:
            connection.execute(f"PRAGMA busy_timeout = {CHECKPOINT_SECONDS * 1000}").close()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        except sqlite3.Error as error:
            log.warning("log_of_store_not_emptied", extra={"file": self._file, "reason": str(error)})

    def _open(self) -> sqlite3.Connection:
        file = self._file
        if self._read_only and not Path(file).is_file():
            raise Unavailable(
                f"the store {file} does not exist: nothing has been stored yet, or TOOLSCRIPT_STORE or "
                "TOOLSCRIPT_DATA_DIR names another place",
                details={"store": file},
            )
        try:
            if file and not self._is_checked:
                require_usable_files(Path(file))
                self._is_checked = True
            if file and not self._read_only:
                self._make_private(Path(file))
            return connect_sqlite(file or ":memory:", read_only=self._read_only)
        except (OSError, sqlite3.Error) as error:
            explained, is_damaged = self.explain(error), get_code(error) in DAMAGE
            if is_damaged or isinstance(explained, DiskFull):
                raise explained from error
            raise Outage(f"the store {file} cannot be opened: {error}", details={"store": file}) from error

    def _make_private(self, file: Path) -> None:
        """Closes the files to other users; SQLite gives new files of the log the mode of the database."""
        if not file.parent.exists():
            make_private_folder(file.parent, follow_link=True)
        create_private(file)
        for ending in ("-wal", "-shm"):
            restrict(Path(f"{file}{ending}"))


def get_code(error: Exception) -> int:
    """SQLite's code of an error, without the extension for the failed operation; 0 for another error."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def connect_sqlite(file: str, *, read_only: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{Path(file).absolute().as_uri()}?mode=ro" if read_only else file,
        uri=read_only,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        detect_types=sqlite3.PARSE_DECLTYPES,
        check_same_thread=False,  # threads use it one after the other
    )
    try:
        connection.row_factory = _as_dict
        if read_only:
            # Reads the file, so that a damaged one is reported now.
            connection.execute("PRAGMA schema_version").close()
        else:
            _use_write_ahead_log(connection)
        for pragma in ("synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switches to write-ahead logging; retries, because the switch itself does not wait for other connections."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}
