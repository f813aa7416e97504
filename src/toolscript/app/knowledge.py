"""Where knowledge lives, by the settings' URLs: a handle to read it with, which is all that searching gets, and for
those who write it one to write with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.knowledge import SqlKnowledge, SqlKnowledgeReader
from toolscript.app.extras import missing_extra
from toolscript.domain.errors import Invalid
from toolscript.ports.stores import KnowledgeReader, KnowledgeStore
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.adapters.mongo.knowledge import MongoKnowledge, MongoKnowledgeReader

IN_MEMORY = "sqlite://"
# A search waits two seconds for a store; a little less, and it can say what was wrong with it.
SEARCH_SECONDS = 1.5
LIBRARY_SECONDS = 30.0


def store_url(settings: Settings) -> str:
    """The database that TOOLSCRIPT_STORE names."""
    return settings.store or f"sqlite:///{settings.data / 'toolscript.db'}"


async def open_reader(settings: Settings, database: Database) -> KnowledgeReader:
    """What searches read, through a handle that cannot write. Raises Invalid or Unavailable."""
    if settings.knowledge:
        return _mongo(settings)[0].at(settings.knowledge, timeout_seconds=SEARCH_SECONDS)
    return await _reader_of(database, store_url(settings))


def open_store(settings: Settings, database: Database) -> KnowledgeStore:
    """What the pipeline writes to."""
    return _mongo(settings)[1].at(settings.knowledge) if settings.knowledge else SqlKnowledge(database)


@asynccontextmanager
async def open_library(settings: Settings) -> AsyncIterator[KnowledgeReader]:
    """Sources, chunks and extractions to be read, without an index or a model: also beside a gateway that runs on the
    same data folder. The database of everything else is left alone where knowledge is not in it. Raises Invalid or
    Unavailable."""
    async with AsyncExitStack() as stack:
        reader: KnowledgeReader
        if settings.knowledge:
            reader = _mongo(settings)[0].at(settings.knowledge, timeout_seconds=LIBRARY_SECONDS)
        else:
            if not settings.store:
                settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            database = await asyncio.to_thread(Database, store_url(settings))
            stack.push_async_callback(database.close)
            reader = await _reader_of(database, store_url(settings))
        stack.push_async_callback(reader.close)
        yield reader


async def _reader_of(database: Database, url: str) -> KnowledgeReader:
    """A handle of its own that cannot write; a database in memory has one handle only."""
    return SqlKnowledgeReader(database if url == IN_MEMORY else await asyncio.to_thread(Database, url, read_only=True))


def _mongo(settings: Settings) -> tuple[type[MongoKnowledgeReader], type[MongoKnowledge]]:
    """What reads and what writes there. Raises Invalid when the settings name something else."""
    scheme = settings.knowledge.partition(":")[0]
    if scheme not in {"mongodb", "mongodb+srv"}:
        raise Invalid(
            f"TOOLSCRIPT_KNOWLEDGE scheme {scheme!r} is not usable: leave it empty to keep knowledge in "
            "TOOLSCRIPT_STORE, or give mongodb://HOST/NAME or mongodb+srv://HOST/NAME",
            details={"field": "TOOLSCRIPT_KNOWLEDGE", "allowed": ["", "mongodb", "mongodb+srv"]},
        )
    try:
        from toolscript.adapters.mongo.knowledge import MongoKnowledge, MongoKnowledgeReader
    except ImportError as error:
        raise missing_extra("mongo", "TOOLSCRIPT_KNOWLEDGE") from error
    return MongoKnowledgeReader, MongoKnowledge
