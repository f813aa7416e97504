"""Names in the store, for completion in a shell: a module of its own, because the whole application takes longer to
import than a person waits for a completion."""

from __future__ import annotations

from pathlib import Path

from toolscript.settings import Settings

SQLITE = "sqlite:///"


def read_stored_names(settings: Settings, kind: str) -> dict[str, str]:
    """The names of `tools`, `servers` or `skills` in a SQLite store, with descriptions. Empty where nothing is stored
    yet, and for other databases: connecting to a server takes too long."""
    file = Path(settings.store.removeprefix(SQLITE)) if settings.store else settings.data / "toolscript.db"
    if (settings.store and not settings.store.startswith(SQLITE)) or not file.is_file():
        return {}
    from toolscript.adapters.sql.names import read_names

    return read_names(file, kind)
