"""After a clean stop a SQLite file is complete without its log; damage of either is named with what to do."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from toolscript.adapters.sql.audit import SqlAudit
from toolscript.adapters.sql.database import Database
from toolscript.domain.audit import AuditEvent, AuditKind
from toolscript.domain.errors import Unavailable

pytestmark = pytest.mark.req("X-12")


EVENT = AuditEvent(1, AuditKind.SEARCHES, "", "", "anna", "", "http", "ok", 1.0, 0, 0, "", "")


def measure_log(file: Path) -> int:
    log = Path(f"{file}-wal")
    return log.stat().st_size if log.exists() else 0


async def fill(file: Path) -> Database:
    database = Database(f"sqlite:///{file}")
    await database.write(lambda session: session.run("CREATE TABLE things (name TEXT)"))
    await database.write(lambda session: session.run("INSERT INTO things VALUES ('one')"))
    return database


def read_alone(file: Path, statement: str) -> list[object]:
    """What the file has without its log."""
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)
    connection = sqlite3.connect(copy)
    try:
        return [row[0] for row in connection.execute(statement)]
    finally:
        connection.close()


async def test_after_a_stop_the_file_is_complete_without_its_log_although_a_reader_ends_last(tmp_path: Path) -> None:
    file = tmp_path / "toolscript.db"
    database = await fill(file)
    reader = Database(f"sqlite:///{file}", read_only=True)
    await reader.ping()
    await database.close()
    await reader.close()
    assert read_alone(file, "SELECT name FROM things") == ["one"]
    assert not measure_log(file)


async def test_after_a_stop_the_audit_is_complete_without_its_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    audit = SqlAudit(f"sqlite:///{file}")
    audit.add([EVENT])
    other = Database(f"sqlite:///{tmp_path / 'other.db'}")
    await audit.close()
    await other.close()
    assert read_alone(file, "SELECT count(*) FROM audit_events") == [1]


async def crash(folder: Path) -> Path:
    """The files of a store that was killed: the tables are in the log alone."""
    database = await fill(folder / "running.db")
    file = folder / "toolscript.db"
    for ending in ("", "-wal"):
        shutil.copy(f"{folder / 'running.db'}{ending}", f"{file}{ending}")
    await database.close()
    return file


LOG_DAMAGE: dict[str, Callable[[Path, int], object]] = {
    "zeros": lambda file, size: file.write_bytes(bytes(size)),
    "noise": lambda file, size: file.write_bytes(os.urandom(size)),
    "a page": lambda file, _: overwrite(file, 200),
    "the header": lambda file, _: overwrite(file, 9),
}


def overwrite(file: Path, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte[0] ^ 0xFF]))


@pytest.mark.parametrize("damage", LOG_DAMAGE)
async def test_a_damaged_log_is_named_and_the_store_not_taken_for_empty(tmp_path: Path, damage: str) -> None:
    file = await crash(tmp_path)
    LOG_DAMAGE[damage](Path(f"{file}-wal"), measure_log(file))
    with pytest.raises(
        Unavailable, match=r"toolscript\.db cannot be opened\. It is damaged: its log .*-wal cannot be read\. Restore"
    ):
        Database(f"sqlite:///{file}")


async def test_the_log_of_a_killed_process_is_read(tmp_path: Path) -> None:
    file = await crash(tmp_path)
    os.truncate(f"{file}-wal", measure_log(file) - 100)  # the last transaction was not written completely
    database = Database(f"sqlite:///{file}")
    assert await database.read(lambda session: session.has_table("things"))
    await database.close()


async def test_an_emptied_database_beside_its_log_is_named(tmp_path: Path) -> None:
    file = await crash(tmp_path)
    os.truncate(file, 0)
    with pytest.raises(
        Unavailable, match=r"toolscript\.db cannot be opened\. It is damaged: .*toolscript\.db is empty\. Restore"
    ):
        Database(f"sqlite:///{file}")
    assert measure_log(file)


async def test_an_emptied_database_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "toolscript.db"
    file.touch()
    await Database(f"sqlite:///{file}").close()
    await Database(f"sqlite:///{file}").close()
    assert [record.getMessage() for record in caplog.records] == ["store_was_empty"]


@pytest.mark.parametrize("at", [0, 4096])
async def test_a_damaged_database_is_named_with_what_to_do(tmp_path: Path, at: int) -> None:
    file = tmp_path / "toolscript.db"
    await (await fill(file)).close()
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(os.urandom(size - at))
    with pytest.raises(
        Unavailable, match=r"the store .*toolscript\.db cannot be opened\. It is damaged: .*Restore it from a backup"
    ):
        Database(f"sqlite:///{file}")
