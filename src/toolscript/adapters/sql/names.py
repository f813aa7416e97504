"""The names in a SQLite store, for the completion of shells: read without opening the application or migrating
anything."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from toolscript.adapters.sql.sqlite import connect_sqlite

_QUERIES = {
    "tools": "SELECT item_id AS name, description AS about FROM tools WHERE is_active AND type = 'tool'",
    "servers": "SELECT DISTINCT server AS name, '' AS about FROM tools WHERE is_active",
    "skills": "SELECT id AS name, name AS about FROM skill_categories WHERE is_active",
}


def read_names(file: Path, kind: str) -> dict[str, str]:
    """The names of tools, servers or skills, with what is known about them. Raises sqlite3.Error."""
    with closing(connect_sqlite(str(file), read_only=True)) as connection:
        return {row["name"]: row["about"] for row in connection.execute(_QUERIES[kind])}
