"""Where knowledge lives, by the settings' URLs: a handle to read it with, which is all that searching gets, and for
those who write it one to write with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolscript.adapters.sql_database import Database
from toolscript.adapters.sql_knowledge import SqlKnowledge, SqlKnowledgeReader
from toolscript.app.extras import missing_extra
from toolscript.domain.errors import Invalid
from toolscript.ports import KnowledgeReader, KnowledgeStore
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.adapters.mongo import MongoKnowledge, MongoKnowledgeReader

IN_MEMORY = "sqlite://"
# A search waits two seconds for a store; a little less, and it can say what was wrong with it.
SEARCH_SECONDS = 1.5
LIBRARY_SECONDS = 30.0


def store_url(settings: Settings) -> str:
    """The database that TOOLSCRIPT_STORE names."""
    return settings.store or f"sqlite:///{settings.data / 'toolscript.db'}"


async def open_reader(
    settings: Settings, database: Database, *, patience_seconds: float = SEARCH_SECONDS
) -> KnowledgeReader:
    """What searches read, through a handle that cannot write; a store in memory has one handle only. A server may take
    that long. Raises Invalid or Unavailable."""
    match settings.knowledge.partition(":")[0]:
        case "":
            url = store_url(settings)
            if url == IN_MEMORY:
                return SqlKnowledgeReader(database)
            return SqlKnowledgeReader(await asyncio.to_thread(Database, url, read_only=True))
        case "mongodb" | "mongodb+srv":
            return _mongo()[0].at(settings.knowledge, patience_seconds=patience_seconds)
        case scheme:
            raise _unusable(scheme)


def open_store(settings: Settings, database: Database) -> KnowledgeStore:
    """What the pipeline writes to."""
    match settings.knowledge.partition(":")[0]:
        case "":
            return SqlKnowledge(database)
        case "mongodb" | "mongodb+srv":
            return _mongo()[1].at(settings.knowledge)
        case scheme:
            raise _unusable(scheme)


@asynccontextmanager
async def open_library(settings: Settings) -> AsyncIterator[KnowledgeReader]:
    """Sources, chunks and extractions to be read, without an index or a model: also beside a gateway that runs on the
    same data folder. Raises Invalid or Unavailable."""
    if not settings.knowledge and not settings.store:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = await asyncio.to_thread(Database, store_url(settings))
    try:
        reader = await open_reader(settings, database, patience_seconds=LIBRARY_SECONDS)
        try:
            yield reader
        finally:
            await reader.close()
    finally:
        await database.close()


def _mongo() -> tuple[type[MongoKnowledgeReader], type[MongoKnowledge]]:
    try:
        from toolscript.adapters.mongo import MongoKnowledge, MongoKnowledgeReader
    except ImportError as error:
        raise missing_extra("mongo", "TOOLSCRIPT_KNOWLEDGE") from error
    return MongoKnowledgeReader, MongoKnowledge


def _unusable(scheme: str) -> Invalid:
    return Invalid(
        f"TOOLSCRIPT_KNOWLEDGE scheme {scheme!r} is not usable: leave it empty to keep knowledge in TOOLSCRIPT_STORE, "
        "or give mongodb://HOST/NAME or mongodb+srv://HOST/NAME",
        details={"field": "TOOLSCRIPT_KNOWLEDGE", "allowed": ["", "mongodb", "mongodb+srv"]},
    )
