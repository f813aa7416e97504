"""Knowledge on MongoDB, through pymongo: the collections `sources`, `chunks` and `extractions`, whose ids are
ObjectIds (ours are written with the same 24 digits). The side that searches has verbs for reading only."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Self

from bson import CodecOptions, DatetimeConversion, ObjectId
from bson.errors import BSONError, InvalidBSON
from pymongo import AsyncMongoClient, IndexModel, ReplaceOne
from pymongo.errors import OperationFailure, PyMongoError

from toolscript.adapters.knowledge_records import is_text, no_such_source, record_of, records_of
from toolscript.adapters.mongo_documents import chunk_of, extraction_of, reading_order, source_of
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.knowledge import Chunk, Extraction, Shelf, Source, SourceStatus

DATABASE = "toolscript"
READING_SECONDS = 2.0
WRITING_SECONDS = 30.0
READ_AT_ONCE = 1000
WRITTEN_AT_ONCE = 500

# Other pipelines keep more in their documents, such as vectors, which nobody here needs.
FIELDS = {
    "sources": [each.name for each in fields(Source)],
    "chunks": [*(each.name for each in fields(Chunk)), "number"],
    "extractions": [each.name for each in fields(Extraction)],
}
INDEXES = {
    "sources": [IndexModel("title")],
    "chunks": [IndexModel(["source_id", "number"])],
    "extractions": [IndexModel(field) for field in ("source_id", "chunk_id", "type", "topics")],
}
# An index of the same fields under another name, or with other options: whoever made it had reasons.
IS_THERE_ALREADY = {85, 86}
# Moments that no calendar has, and bytes that are no text, are no reason to find nothing.
LENIENT: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)

Documents = list[dict[str, Any]]


class MongoKnowledgeReader:
    """The knowledge of one database, to be read."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]], where: str) -> None:
        self._client = client
        self._database = client.get_default_database(DATABASE, LENIENT)
        self._where = where

    @classmethod
    def at(cls, uri: str, *, patience_seconds: float = READING_SECONDS) -> Self:
        """The knowledge in the database that the URI's path names, or in `toolscript`. Nothing is contacted yet, and
        nothing waits longer than that. Raises Invalid."""
        milliseconds = int(patience_seconds * 1000)
        try:
            client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
                uri,
                timeoutMS=milliseconds,
                serverSelectionTimeoutMS=milliseconds,
                connectTimeoutMS=milliseconds,
            )
            return cls(client, uri.partition("://")[2].partition("?")[0].rpartition("@")[2])
        except (PyMongoError, ValueError, TypeError, LookupError):
            # What the driver says may repeat the URI, password and all.
            raise Invalid(
                "TOOLSCRIPT_KNOWLEDGE is not a usable MongoDB address: give mongodb://USER:PASSWORD@HOST:27017/NAME or "
                "mongodb+srv://USER:PASSWORD@HOST/NAME, special characters in the password percent-encoded",
                details={"field": "TOOLSCRIPT_KNOWLEDGE", "allowed": ["mongodb://…", "mongodb+srv://…"]},
            ) from None

    async def shelf(
        self, source_ids: Collection[str], chunk_ids: Collection[str], extraction_ids: Collection[str]
    ) -> Shelf:
        sources, chunks, extractions = await asyncio.gather(
            self._named("sources", source_ids),
            self._named("chunks", chunk_ids),
            self._named("extractions", extraction_ids),
        )
        return Shelf(
            {source.id: source for source in map(source_of, sources)},
            {chunk.id: chunk for chunk in map(chunk_of, chunks)},
            {extraction.id: extraction for extraction in map(extraction_of, extractions)},
        )

    async def sources(self) -> list[Source]:
        found = await self._found("sources", {})
        return sorted(map(source_of, found), key=lambda source: (source.title, source.id))

    async def contents(self, source_id: str) -> tuple[list[Chunk], list[Extraction]]:
        own = {"source_id": {"$in": _keys([source_id])}}
        chunks, extractions = await asyncio.gather(self._found("chunks", own), self._found("extractions", own))
        in_order = sorted(chunks, key=reading_order)
        return [*map(chunk_of, in_order)], sorted(map(extraction_of, extractions), key=lambda each: each.id)

    async def counts(self) -> dict[str, tuple[int, int]]:
        sources, chunks, extractions = await asyncio.gather(
            self._found("sources", {}, ["_id"]), self._counted("chunks"), self._counted("extractions")
        )
        ids = [str(each["_id"]) for each in sources]
        return {own_id: (chunks.get(own_id, 0), extractions.get(own_id, 0)) for own_id in ids}

    async def ping(self) -> None:
        with self._answering():
            await self._database.command("ping")

    async def close(self) -> None:
        await self._client.close()

    async def _named(self, name: str, ids: Collection[str]) -> Documents:
        return await self._found(name, {"_id": {"$in": _keys(ids)}}) if ids else []

    async def _found(self, name: str, where: dict[str, Any], only: Sequence[str] | None = None) -> Documents:
        with self._answering():
            found = self._database[name].find(where, only or FIELDS[name], batch_size=READ_AT_ONCE)
            return await found.to_list()

    async def _counted(self, name: str) -> dict[str, int]:
        """How many documents each source has. Some may name it by its ObjectId, and others by its text."""
        counts: dict[str, int] = {}
        with self._answering():
            groups = await self._database[name].aggregate([{"$group": {"_id": "$source_id", "n": {"$sum": 1}}}])
            for group in await groups.to_list():
                counts[str(group["_id"])] = counts.get(str(group["_id"]), 0) + int(group["n"])
        return counts

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Says in our words what the driver raises."""
        try:
            yield
        except (PyMongoError, InvalidBSON) as error:
            raise Unavailable(
                f"the store of knowledge mongodb://{self._where} does not answer: {_reason(error)}; check "
                "TOOLSCRIPT_KNOWLEDGE and the server",
                details={"field": "TOOLSCRIPT_KNOWLEDGE", "store": self._where},
            ) from error
        except BSONError as error:
            raise Invalid(f"the store of knowledge refuses a value: {_reason(error)}") from error


class MongoKnowledge(MongoKnowledgeReader):
    """The same, for the pipeline that writes it. It makes the indexes that are missing before it first writes."""

    _is_indexed = False

    @classmethod
    def at(cls, uri: str, *, patience_seconds: float = WRITING_SECONDS) -> Self:
        return super().at(uri, patience_seconds=patience_seconds)

    async def replace(self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> None:
        kept = _document(record_of(source))
        parts = [{**_document(each), "number": n} for n, each in enumerate(records_of(source.id, chunks))]
        drawn = [*map(_document, records_of(source.id, extractions))]
        await self._make_indexes()
        with self._answering():
            # Not ready as long as some of what is there is old and some new.
            unfinished = {**kept, "status": str(SourceStatus.INDEXING)}
            await self._database["sources"].replace_one({"_id": kept["_id"]}, unfinished, upsert=True)
            for name, documents in (("chunks", parts), ("extractions", drawn)):
                await self._upsert(name, documents)
            for name, documents in (("chunks", parts), ("extractions", drawn)):
                await self._delete_others(name, source.id, {each["_id"] for each in documents})
        await self.set_status(source.id, source.status)

    async def add_extractions(self, source_id: str, extractions: Sequence[Extraction]) -> None:
        drawn = [*map(_document, records_of(source_id, extractions))]
        if not await self._found("sources", {"_id": {"$in": _keys([source_id])}}, ["_id"]):
            raise no_such_source(source_id)
        await self._make_indexes()
        with self._answering():
            await self._upsert("extractions", drawn)

    async def set_status(self, source_id: str, status: str) -> None:
        with self._answering():
            own = {"_id": {"$in": _keys([source_id])}}
            await self._database["sources"].update_one(own, {"$set": {"status": str(status)}})

    async def remove(self, source_id: str) -> bool:
        keys = _keys([source_id])
        with self._answering():
            # The source itself goes last: what is interrupted can be seen, and done again.
            for name in ("extractions", "chunks"):
                await self._database[name].delete_many({"source_id": {"$in": keys}})
            return (await self._database["sources"].delete_many({"_id": {"$in": keys}})).deleted_count > 0

    async def _make_indexes(self) -> None:
        if self._is_indexed:
            return
        with self._answering():
            for name, wanted in INDEXES.items():
                for each in wanted:
                    try:
                        await self._database[name].create_indexes([each])
                    except OperationFailure as error:
                        if error.code not in IS_THERE_ALREADY:
                            raise
        self._is_indexed = True

    async def _upsert(self, name: str, documents: Documents) -> None:
        for start in range(0, len(documents), WRITTEN_AT_ONCE):
            some = documents[start : start + WRITTEN_AT_ONCE]
            await self._database[name].bulk_write([ReplaceOne({"_id": d["_id"]}, d, upsert=True) for d in some])

    async def _delete_others(self, name: str, source_id: str, kept: set[Any]) -> None:
        held = await self._found(name, {"source_id": {"$in": _keys([source_id])}}, ["_id"])
        stale = [each["_id"] for each in held if each["_id"] not in kept]
        for start in range(0, len(stale), READ_AT_ONCE):
            await self._database[name].delete_many({"_id": {"$in": stale[start : start + READ_AT_ONCE]}})


def _document(record: dict[str, Any]) -> dict[str, Any]:
    own_id = record.pop("id")
    return {"_id": ObjectId(own_id) if _is_object_id(own_id) else own_id, **record}


def _keys(ids: Collection[str]) -> list[Any]:
    """How documents may name these ids: as ObjectIds, where they could be some, and as text."""
    texts = [each for each in ids if is_text(each)]
    return [*(ObjectId(each) for each in texts if _is_object_id(each)), *texts]


def _is_object_id(own_id: str) -> bool:
    return re.fullmatch("[0-9a-f]{24}", own_id) is not None


def _reason(error: Exception) -> str:
    """What the driver says, in one line, without its own settings and without the documents it is about."""
    told = (error.details or {}).get("errmsg") if isinstance(error, OperationFailure) else None
    text = re.split(r" \(configured timeouts|, Timeout:|, full error:", str(told or error))[0].strip()
    return (text.splitlines() or [type(error).__name__])[0]
