"""Knowledge on MongoDB, through pymongo: the collections `sources`, `chunks` and `extractions`, whose ids are
ObjectIds (ours are written with the same 24 digits). The side that searches has verbs for reading only."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import pymongo
from bson import CodecOptions, DatetimeConversion, ObjectId
from bson.errors import BSONError, InvalidBSON
from pymongo import AsyncMongoClient, IndexModel, UpdateOne
from pymongo.errors import BulkWriteError, OperationFailure, PyMongoError

from toolscript.adapters.knowledge_records import is_text, metadata_of, no_such_source, record_of, records_of
from toolscript.adapters.mongo.records import chunk_of, extraction_of, reading_order, source_of
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.knowledge import Chunk, Extraction, KnowledgeRecords, Source, SourceStatus

DATABASE = "toolscript"
READING_SECONDS = 2.0
WRITING_SECONDS = 30.0
# A server that is there is found at once, however long it may take to answer; and nobody waits to say goodbye.
CHOOSING_SECONDS = 5.0
CLOSING_SECONDS = 1.0
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
IS_TOO_LARGE = {10334, 17419, 17420}
# Moments that no calendar has, and bytes that are no text, are no reason to find nothing.
LENIENT: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)

LARGE = ("chunks", "extractions")
READ: dict[str, Callable[[Mapping[str, Any]], Source | Chunk | Extraction]] = {
    "sources": source_of,
    "chunks": chunk_of,
    "extractions": extraction_of,
}

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
        no question waits longer than that for its answer, nor more than a few seconds for a server to be there. Raises
        Invalid."""
        try:
            client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri, **_limits(patience_seconds))
            return cls(client, uri.partition("://")[2].partition("?")[0].rpartition("@")[2])
        except (PyMongoError, ValueError, TypeError, LookupError):
            # What the driver says may repeat the URI, password and all.
            raise Invalid(
                "TOOLSCRIPT_KNOWLEDGE is not a usable MongoDB address: give mongodb://USER:PASSWORD@HOST:27017/NAME or "
                "mongodb+srv://USER:PASSWORD@HOST/NAME, special characters in the password percent-encoded",
                details={"field": "TOOLSCRIPT_KNOWLEDGE", "allowed": ["mongodb://…", "mongodb+srv://…"]},
            ) from None

    async def get_records(
        self, source_ids: Collection[str], chunk_ids: Collection[str], extraction_ids: Collection[str]
    ) -> KnowledgeRecords:
        sources, chunks, extractions = await asyncio.gather(
            self._named("sources", source_ids),
            self._named("chunks", chunk_ids),
            self._named("extractions", extraction_ids),
        )
        return KnowledgeRecords(
            {source.id: source for source in map(source_of, sources)},
            {chunk.id: chunk for chunk in map(chunk_of, chunks)},
            {extraction.id: extraction for extraction in map(extraction_of, extractions)},
        )

    async def list_sources(self) -> list[Source]:
        found = await self._found("sources", {})
        return sorted(map(source_of, found), key=lambda source: (source.title, source.id))

    async def get_contents(self, source_id: str) -> tuple[list[Chunk], list[Extraction]]:
        own = {"source_id": {"$in": _keys([source_id])}}
        chunks, extractions = await asyncio.gather(self._found("chunks", own), self._found("extractions", own))
        in_order = sorted(chunks, key=reading_order)
        return [*map(chunk_of, in_order)], sorted(map(extraction_of, extractions), key=lambda each: each.id)

    async def count_contents(self) -> dict[str, tuple[int, int]]:
        sources, chunks, extractions = await asyncio.gather(
            self._found("sources", {}, ["_id"]), self._counted("chunks"), self._counted("extractions")
        )
        ids = [str(each["_id"]) for each in sources]
        return {own_id: (chunks.get(own_id, 0), extractions.get(own_id, 0)) for own_id in ids}

    async def ping(self) -> None:
        with self._answering():
            await self._database.command("ping")

    async def close(self) -> None:
        with pymongo.timeout(CLOSING_SECONDS):
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
            if isinstance(error, BulkWriteError) and _codes(error) & IS_TOO_LARGE:
                raise Invalid(
                    "the store of knowledge rejects a value: it makes a document larger than 16 MB"
                ) from error
            raise Unavailable(
                f"the store of knowledge mongodb://{self._where} does not answer: {_reason(error)}; check "
                "TOOLSCRIPT_KNOWLEDGE and the server",
                details={"field": "TOOLSCRIPT_KNOWLEDGE", "store": self._where},
            ) from error
        except BSONError as error:
            raise Invalid(f"the store of knowledge rejects a value: {_reason(error)}") from error


class MongoKnowledge(MongoKnowledgeReader):
    """The same, for the pipeline that writes it. It makes the indexes that are missing before it first writes."""

    _is_indexed = False

    @classmethod
    def at(cls, uri: str, *, patience_seconds: float = WRITING_SECONDS) -> Self:
        return super().at(uri, patience_seconds=patience_seconds)

    async def replace(self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> None:
        kept = _Writing("sources", [source], [record_of(source)])
        numbered = [{**each, "number": number} for number, each in enumerate(records_of(source.id, chunks))]
        parts = _Writing("chunks", chunks, numbered)
        drawn = _Writing("extractions", extractions, records_of(source.id, extractions))
        await self._make_indexes()
        own = {"source_id": {"$in": _keys([source.id])}}
        held = await asyncio.gather(self._named("sources", [source.id]), *(self._found(n, own) for n in LARGE))
        with self._answering():
            # Not ready as long as some of what is there is old and some new.
            await self._write(replace(kept, always={"status": str(SourceStatus.INDEXING)}), held[0])
            for writing, documents in zip((parts, drawn), held[1:], strict=True):
                await self._write(writing, documents)
            for writing, documents in zip((parts, drawn), held[1:], strict=True):
                await self._delete_others(writing, documents)
        await self.set_status(source.id, source.status)

    async def add_extractions(self, source_id: str, extractions: Sequence[Extraction]) -> None:
        drawn = _Writing("extractions", extractions, records_of(source_id, extractions))
        if not await self._found("sources", {"_id": {"$in": _keys([source_id])}}, ["_id"]):
            raise no_such_source(source_id)
        await self._make_indexes()
        held = await self._named("extractions", [each.id for each in extractions])
        with self._answering():
            await self._write(drawn, held)

    async def set_status(self, source_id: str, status: str, metadata: Mapping[str, Any] | None = None) -> None:
        values: dict[str, Any] = {"status": str(status)}
        if metadata is not None:
            values["metadata"] = metadata_of(source_id, metadata)
        with self._answering():
            await self._database["sources"].update_one({"_id": {"$in": _keys([source_id])}}, {"$set": values})

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

    async def _write(self, writing: _Writing, held: Documents) -> None:
        changes = [*writing.changes(held)]
        for start in range(0, len(changes), WRITTEN_AT_ONCE):
            some = changes[start : start + WRITTEN_AT_ONCE]
            await self._database[writing.name].bulk_write(
                [UpdateOne({"_id": key}, {"$set": values}, upsert=True) for key, values in some]
            )

    async def _delete_others(self, writing: _Writing, held: Documents) -> None:
        kept = {each.id for each in writing.given}
        stale = [each["_id"] for each in held if str(each["_id"]) not in kept]
        for start in range(0, len(stale), READ_AT_ONCE):
            await self._database[writing.name].delete_many({"_id": {"$in": stale[start : start + READ_AT_ONCE]}})


@dataclass(frozen=True, slots=True)
class _Writing:
    """What is to be in a collection: things and their records, and what is written in any case."""

    name: str
    given: Sequence[Source | Chunk | Extraction]
    records: Sequence[dict[str, Any]]
    always: Mapping[str, Any] = field(default_factory=dict)

    def changes(self, held: Documents) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The keys of the documents that have to change, and the fields that have to: whatever else others keep in a
        document, and however they write what says the same, stays."""
        before = {str(each["_id"]): each for each in held}
        for given, record in zip(self.given, self.records, strict=True):
            document = before.get(given.id)
            values = {name: each for name, each in record.items() if name != "id"}
            if document is not None:
                read = READ[self.name](document)
                values = {
                    name: each for name, each in values.items() if not _is_said(name, given, read, each, document)
                }
            values |= self.always
            if values:
                yield (_key(given.id) if document is None else document["_id"]), values


def _is_said(name: str, given: Any, read: Any, value: Any, document: Mapping[str, Any]) -> bool:
    """Whether a document says that of a field already. 1 is not 1.0, and an order of names is one."""
    if not hasattr(given, name):
        return bool(document.get(name) == value)
    return name in document and repr(getattr(read, name)) == repr(getattr(given, name))


def _limits(patience_seconds: float) -> dict[str, Any]:
    """The driver's options for that much patience. Given a limit for all together (`timeoutMS`), it looks for a server
    and tries again for as long as that: right for a moment, not for half a minute. Without, it tries again once."""
    whole = int(patience_seconds * 1000)
    choosing = int(min(patience_seconds, CHOOSING_SECONDS) * 1000)
    return {
        "timeoutMS": whole if patience_seconds <= CHOOSING_SECONDS else None,
        "socketTimeoutMS": whole,
        "waitQueueTimeoutMS": whole,
        "serverSelectionTimeoutMS": choosing,
        "connectTimeoutMS": choosing,
    }


def _key(own_id: str) -> Any:
    return ObjectId(own_id) if _is_object_id(own_id) else own_id


def _keys(ids: Collection[str]) -> list[Any]:
    """How documents may name these ids: as ObjectIds, where they could be some, and as text."""
    texts = [each for each in ids if is_text(each)]
    return [*(ObjectId(each) for each in texts if _is_object_id(each)), *texts]


def _is_object_id(own_id: str) -> bool:
    return re.fullmatch("[0-9a-f]{24}", own_id) is not None


def _codes(error: BulkWriteError) -> set[int]:
    return {each["code"] for each in (error.details or {}).get("writeErrors", [])}


def _reason(error: Exception) -> str:
    """What the driver says, in one line, without its own settings and without the documents it is about."""
    told = (error.details or {}).get("errmsg") if isinstance(error, OperationFailure) else None
    text = re.split(r" \(configured timeouts|, Timeout:|, full error:", str(told or error))[0].strip()
    return (text.splitlines() or [type(error).__name__])[0]
