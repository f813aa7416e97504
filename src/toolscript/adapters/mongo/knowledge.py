"""Knowledge on MongoDB, through pymongo: the collections `sources`, `chunks` and `extractions`, and `term_counts` for
search by words. Ids are ObjectIds where they have 24 hexadecimal digits, and strings otherwise."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Self

import pymongo
from bson import CodecOptions, DatetimeConversion, ObjectId
from bson.errors import BSONError, InvalidBSON
from pymongo import AsyncMongoClient, IndexModel, UpdateOne
from pymongo.errors import BulkWriteError, OperationFailure, PyMongoError

from toolscript.adapters.mongo.records import read_chunk, read_extraction, read_source, reading_order
from toolscript.adapters.storage.knowledge_records import (
    build_record,
    build_records,
    build_status_values,
    is_storable,
    unknown_source,
)
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.knowledge import Chunk, Extraction, KnowledgeRecords, Source, SourceStatus
from toolscript.domain.search import TermCounts

DATABASE = "toolscript"
READ_TIMEOUT_SECONDS = 2.0
WRITE_TIMEOUT_SECONDS = 30.0
# A running server is found within milliseconds; only its answers take longer.
SERVER_SELECTION_SECONDS = 5.0
CLOSE_TIMEOUT_SECONDS = 1.0
READ_BATCH = 1000
# In `term_counts`: in how many chunks of a source a term occurs. The "term" that counts the chunks:
ALL_CHUNKS = -1
WRITE_BATCH = 500

# Other pipelines store more in their documents, such as vectors, which are not needed here.
FIELDS = {
    "sources": [each.name for each in fields(Source)],
    "chunks": [*(each.name for each in fields(Chunk)), "number"],
    "extractions": [each.name for each in fields(Extraction)],
}
INDEXES = {
    "sources": [IndexModel("title")],
    "chunks": [IndexModel(["source_id", "number"])],
    "extractions": [IndexModel(field) for field in ("source_id", "chunk_id", "type", "topics")],
    "term_counts": [IndexModel("source_id"), IndexModel(["term", "texts"])],
}
# An index of the same fields exists under another name or with other options; it is kept.
INDEX_EXISTS_CODES = {85, 86}
TOO_LARGE_CODES = {10334, 17419, 17420}
# Dates out of range and invalid UTF-8 must not make a read fail.
LENIENT: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)

READERS: dict[str, Callable[[Mapping[str, Any]], Source | Chunk | Extraction]] = {
    "sources": read_source,
    "chunks": read_chunk,
    "extractions": read_extraction,
}

Documents = list[dict[str, Any]]


class MongoKnowledgeReader:
    """Reads the knowledge of one database."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]], address: str) -> None:
        self._client = client
        self._database = client.get_default_database(DATABASE, LENIENT)
        self._address = address

    @classmethod
    def at(cls, uri: str, *, timeout_seconds: float = READ_TIMEOUT_SECONDS) -> Self:
        """The knowledge in the database that the URI's path names (default: `toolscript`). Does not connect. A call
        fails after the timeout, or after a few seconds without a server. Raises Invalid for an unusable URI."""
        try:
            client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri, **_build_timeouts(timeout_seconds))
            return cls(client, uri.partition("://")[2].partition("?")[0].rpartition("@")[2])
        except (PyMongoError, ValueError, TypeError, LookupError):
            # Not chained: the driver's message may repeat the URI with its password.
            raise Invalid(
                "TOOLSCRIPT_KNOWLEDGE is not a usable MongoDB address: give mongodb://USER:PASSWORD@HOST:27017/NAME or "
                "mongodb+srv://USER:PASSWORD@HOST/NAME, special characters in the password percent-encoded",
                details={"field": "TOOLSCRIPT_KNOWLEDGE", "allowed": ["mongodb://…", "mongodb+srv://…"]},
            ) from None

    async def get_records(
        self, source_ids: Collection[str], chunk_ids: Collection[str], extraction_ids: Collection[str]
    ) -> KnowledgeRecords:
        sources, chunks, extractions = await asyncio.gather(
            self._find_by_id("sources", source_ids),
            self._find_by_id("chunks", chunk_ids),
            self._find_by_id("extractions", extraction_ids),
        )
        return KnowledgeRecords(
            {source.id: source for source in map(read_source, sources)},
            {chunk.id: chunk for chunk in map(read_chunk, chunks)},
            {extraction.id: extraction for extraction in map(read_extraction, extractions)},
        )

    async def has_sources(self) -> bool:
        with self._translate_errors():
            return await self._database["sources"].find_one({}, ["_id"]) is not None

    async def list_sources(self) -> list[Source]:
        found = await self._find("sources", {})
        return sorted(map(read_source, found), key=lambda source: (source.title, source.id))

    async def get_contents(self, source_id: str) -> tuple[list[Chunk], list[Extraction]]:
        own = {"source_id": {"$in": _keys([source_id])}}
        chunks, extractions = await asyncio.gather(self._find("chunks", own), self._find("extractions", own))
        return [*map(read_chunk, sorted(chunks, key=reading_order))], sorted(
            map(read_extraction, extractions), key=lambda each: each.id
        )

    async def count_contents(self) -> dict[str, tuple[int, int]]:
        sources, chunks, extractions = await asyncio.gather(
            self._find("sources", {}, ["_id"]), self._count_by_source("chunks"), self._count_by_source("extractions")
        )
        ids = [str(each["_id"]) for each in sources]
        return {source_id: (chunks.get(source_id, 0), extractions.get(source_id, 0)) for source_id in ids}

    async def count_terms(self, terms: Sequence[int]) -> TermCounts:
        stages: list[dict[str, Any]] = [
            {"$match": {"term": {"$in": [ALL_CHUNKS, *terms]}}},
            {"$group": {"_id": "$term", "texts": {"$sum": "$texts"}}},
        ]
        with self._translate_errors():
            groups = await (await self._database["term_counts"].aggregate(stages)).to_list()
        counts = {int(group["_id"]): int(group["texts"]) for group in groups}
        return TermCounts(counts.pop(ALL_CHUNKS, 0), counts)

    async def ping(self) -> None:
        with self._translate_errors():
            await self._database.command("ping")

    async def close(self) -> None:
        with pymongo.timeout(CLOSE_TIMEOUT_SECONDS):
            await self._client.close()

    async def _find_by_id(self, name: str, ids: Collection[str]) -> Documents:
        return await self._find(name, {"_id": {"$in": _keys(ids)}}) if ids else []

    async def _find(self, name: str, where: dict[str, Any], only: Sequence[str] | None = None) -> Documents:
        with self._translate_errors():
            found = self._database[name].find(where, only or FIELDS[name], batch_size=READ_BATCH)
            return await found.to_list()

    async def _count_by_source(self, name: str) -> dict[str, int]:
        """The number of documents of each source, whether they name it by ObjectId or by string."""
        counts: dict[str, int] = {}
        with self._translate_errors():
            groups = await self._database[name].aggregate([{"$group": {"_id": "$source_id", "n": {"$sum": 1}}}])
            for group in await groups.to_list():
                counts[str(group["_id"])] = counts.get(str(group["_id"]), 0) + int(group["n"])
        return counts

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raises Unavailable or Invalid instead of the driver's errors."""
        try:
            yield
        except (PyMongoError, InvalidBSON) as error:
            if isinstance(error, BulkWriteError) and _codes(error) & TOO_LARGE_CODES:
                raise Invalid("the knowledge store rejects a value: it makes a document larger than 16 MB") from error
            raise Unavailable(
                f"the knowledge store mongodb://{self._address} does not answer: {_reason(error)}; check "
                "TOOLSCRIPT_KNOWLEDGE and the server",
                details={"field": "TOOLSCRIPT_KNOWLEDGE", "store": self._address},
            ) from error
        except BSONError as error:
            raise Invalid(f"the knowledge store rejects a value: {_reason(error)}") from error


class MongoKnowledge(MongoKnowledgeReader):
    """Reads and writes the knowledge of one database. Creates missing indexes before its first write."""

    _is_indexed = False

    @classmethod
    def at(cls, uri: str, *, timeout_seconds: float = WRITE_TIMEOUT_SECONDS) -> Self:
        return super().at(uri, timeout_seconds=timeout_seconds)

    async def replace(self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> None:
        # The status is not ready while old and new documents are mixed.
        unready = source.with_status(SourceStatus.INDEXING)
        own = _Update("sources", [unready], [build_record(unready)])
        numbered = [{**record, "number": number} for number, record in enumerate(build_records(source.id, chunks))]
        parts = (
            _Update("chunks", chunks, numbered),
            _Update("extractions", extractions, build_records(source.id, extractions)),
        )
        await self._create_indexes()
        where = {"source_id": {"$in": _keys([source.id])}}
        before = await asyncio.gather(
            self._find_by_id("sources", [source.id]), *(self._find(part.name, where) for part in parts)
        )
        with self._translate_errors():
            for update, existing in zip((own, *parts), before, strict=True):
                await self._write(update, existing)
            for update, existing in zip(parts, before[1:], strict=True):
                await self._delete_others(update, existing)
        await self.set_status(source.id, source.status)

    async def add_extractions(self, source_id: str, extractions: Sequence[Extraction]) -> None:
        update = _Update("extractions", extractions, build_records(source_id, extractions))
        if not await self._find("sources", {"_id": {"$in": _keys([source_id])}}, ["_id"]):
            raise unknown_source(source_id)
        await self._create_indexes()
        existing = await self._find_by_id("extractions", [each.id for each in extractions])
        with self._translate_errors():
            await self._write(update, existing)

    async def set_term_counts(self, source_id: str, counts: TermCounts) -> None:
        rows = [
            {"source_id": _key(source_id), "term": term, "texts": texts}
            for term, texts in {ALL_CHUNKS: counts.documents, **counts.documents_with_term}.items()
            if texts
        ]
        is_known = await self._find("sources", {"_id": {"$in": _keys([source_id])}}, ["_id"])
        await self._create_indexes()
        with self._translate_errors():
            await self._database["term_counts"].delete_many({"source_id": {"$in": _keys([source_id])}})
            if rows and is_known:
                await self._database["term_counts"].insert_many(rows, ordered=False)

    async def set_status(self, source_id: str, status: str, metadata: Mapping[str, Any] | None = None) -> None:
        values = build_status_values(source_id, status, metadata)
        with self._translate_errors():
            await self._database["sources"].update_one({"_id": {"$in": _keys([source_id])}}, {"$set": values})

    async def remove(self, source_id: str) -> bool:
        keys = _keys([source_id])
        with self._translate_errors():
            # The source goes last, so that an interrupted deletion is visible and can be repeated.
            for name in ("term_counts", "extractions", "chunks"):
                await self._database[name].delete_many({"source_id": {"$in": keys}})
            return (await self._database["sources"].delete_many({"_id": {"$in": keys}})).deleted_count > 0

    async def _create_indexes(self) -> None:
        if self._is_indexed:
            return
        with self._translate_errors():
            for name, indexes in INDEXES.items():
                for index in indexes:
                    try:
                        await self._database[name].create_indexes([index])
                    except OperationFailure as error:
                        if error.code not in INDEX_EXISTS_CODES:
                            raise
        self._is_indexed = True

    async def _write(self, update: _Update, existing: Documents) -> None:
        changes = [*update.find_changes(existing)]
        for start in range(0, len(changes), WRITE_BATCH):
            await self._database[update.name].bulk_write(
                [
                    UpdateOne({"_id": key}, {"$set": values}, upsert=True)
                    for key, values in changes[start : start + WRITE_BATCH]
                ]
            )

    async def _delete_others(self, update: _Update, existing: Documents) -> None:
        kept = {item.id for item in update.items}
        stale = [each["_id"] for each in existing if str(each["_id"]) not in kept]
        for start in range(0, len(stale), READ_BATCH):
            await self._database[update.name].delete_many({"_id": {"$in": stale[start : start + READ_BATCH]}})


@dataclass(frozen=True, slots=True)
class _Update:
    """What a collection must contain: items, and their records."""

    name: str
    items: Sequence[Source | Chunk | Extraction]
    records: Sequence[dict[str, Any]]

    def find_changes(self, existing: Documents) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The keys and changed fields of the documents that must change. Other fields stay, and so do values that other
        pipelines write in another form but with the same meaning."""
        before = {str(each["_id"]): each for each in existing}
        for item, record in zip(self.items, self.records, strict=True):
            document = before.get(item.id)
            values = {name: value for name, value in record.items() if name != "id"}
            if document is not None:
                stored = READERS[self.name](document)
                same = {name for name, value in values.items() if _is_same(name, item, stored, value, document)}
                values = {name: value for name, value in values.items() if name not in same}
            if values:
                yield (_key(item.id) if document is None else document["_id"]), values


def _is_same(name: str, item: Any, stored: Any, value: Any, document: Mapping[str, Any]) -> bool:
    """Whether a document already has a field's value. Compared by repr: 1 differs from 1.0, and key orders differ."""
    if not hasattr(item, name):
        return bool(document.get(name) == value)
    return name in document and repr(getattr(stored, name)) == repr(getattr(item, name))


def _build_timeouts(timeout_seconds: float) -> dict[str, Any]:
    """The driver's options for a timeout. With `timeoutMS` the driver looks for a server and retries for the whole
    time: right for 2 seconds, too long for 30. Without it, the driver retries once."""
    total = int(timeout_seconds * 1000)
    selection = int(min(timeout_seconds, SERVER_SELECTION_SECONDS) * 1000)
    return {
        "timeoutMS": total if timeout_seconds <= SERVER_SELECTION_SECONDS else None,
        "socketTimeoutMS": total,
        "waitQueueTimeoutMS": total,
        "serverSelectionTimeoutMS": selection,
        "connectTimeoutMS": selection,
    }


def _key(item_id: str) -> Any:
    return ObjectId(item_id) if _is_object_id(item_id) else item_id


def _keys(ids: Collection[str]) -> list[Any]:
    """The forms that these ids may have in documents: ObjectIds where possible, and strings."""
    texts = [each for each in ids if is_storable(each)]
    return [*(ObjectId(each) for each in texts if _is_object_id(each)), *texts]


def _is_object_id(item_id: str) -> bool:
    return re.fullmatch("[0-9a-f]{24}", item_id) is not None


def _codes(error: BulkWriteError) -> set[int]:
    return {each["code"] for each in (error.details or {}).get("writeErrors", [])}


def _reason(error: Exception) -> str:
    """The driver's message in one line, without its settings and without the documents."""
    message = (error.details or {}).get("errmsg") if isinstance(error, OperationFailure) else None
    text = re.split(r" \(configured timeouts|, Timeout:|, full error:", str(message or error))[0].strip()
    return (text.splitlines() or [type(error).__name__])[0]
