"""Opens the stores of knowledge that the settings name: a read-only one for searches, and one for writing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.knowledge import SqlKnowledge, SqlKnowledgeReader
from toolscript.adapters.storage.private_files import make_private_folder
from toolscript.app.extras import require_extra
from toolscript.domain.errors import Invalid
from toolscript.domain.limits import current_limits
from toolscript.ports.stores import KnowledgeReader, KnowledgeStore
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.adapters.mongo.knowledge import MongoKnowledge, MongoKnowledgeReader

IN_MEMORY = "sqlite://"
LIBRARY_SECONDS = 30.0


def store_url(settings: Settings) -> str:
    """The database that TOOLSCRIPT_STORE names."""
    return settings.store or f"sqlite:///{settings.data / 'toolscript.db'}"


async def open_reader(settings: Settings, database: Database) -> KnowledgeReader:
    """Opens the read-only store for searches. Raises Invalid or Unavailable."""
    if settings.knowledge:
        return _mongo(settings)[0].at(settings.knowledge, timeout_seconds=current_limits().knowledge_store)
    return await _reader_of(database, store_url(settings))


def open_store(settings: Settings, database: Database) -> KnowledgeStore:
    """Opens the store for writing."""
    return _mongo(settings)[1].at(settings.knowledge) if settings.knowledge else SqlKnowledge(database)


@asynccontextmanager
async def open_library(settings: Settings) -> AsyncIterator[KnowledgeReader]:
    """Opens knowledge for reading, without an index or a model, also while a gateway uses the same data folder. Where
    knowledge is in MongoDB, the SQL database is not opened. Raises Invalid or Unavailable."""
    async with AsyncExitStack() as stack:
        reader: KnowledgeReader
        if settings.knowledge:
            reader = _mongo(settings)[0].at(settings.knowledge, timeout_seconds=LIBRARY_SECONDS)
        else:
            if not settings.store:
                with suppress(OSError):  # opening the database says what is wrong with the folder
                    make_private_folder(settings.data, follow_link=True)
            database = await Database.open(store_url(settings))
            stack.push_async_callback(database.close)
            reader = await _reader_of(database, store_url(settings))
        stack.push_async_callback(reader.close)
        yield reader


async def _reader_of(database: Database, url: str) -> KnowledgeReader:
    """A separate read-only connection; a database in memory has only one."""
    return SqlKnowledgeReader(database if url == IN_MEMORY else await Database.open(url, read_only=True))


def _mongo(settings: Settings) -> tuple[type[MongoKnowledgeReader], type[MongoKnowledge]]:
    """The reader and the writer. Raises Invalid for another scheme."""
    scheme = settings.knowledge.partition(":")[0]
    if scheme not in {"mongodb", "mongodb+srv"}:
        raise Invalid(
            f"TOOLSCRIPT_KNOWLEDGE has the unknown scheme {scheme!r}: leave it empty to keep knowledge in "
            "TOOLSCRIPT_STORE, or give mongodb://HOST/NAME or mongodb+srv://HOST/NAME",
            details={"field": "TOOLSCRIPT_KNOWLEDGE", "allowed": ["", "mongodb", "mongodb+srv"]},
        )
    with require_extra("mongo", "TOOLSCRIPT_KNOWLEDGE"):
        from toolscript.adapters.mongo.knowledge import MongoKnowledge, MongoKnowledgeReader
    return MongoKnowledgeReader, MongoKnowledge
