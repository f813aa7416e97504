"""MongoDB in use: documents of other pipelines, and servers that are down, do not answer, or reject values."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import bson
import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, ObjectId, Regex, Timestamp
from pymongo import MongoClient
from pymongo.collection import Collection

from tests.fixtures.coroutines import call_until_available
from tests.fixtures.knowledge_ingest import HANDBOOK, Library, book
from tests.servers.mongo import run_mongo
from toolscript.adapters.mongo.knowledge import LENIENT, MongoKnowledge, MongoKnowledgeReader
from toolscript.adapters.mongo.records import read_chunk, read_source
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.knowledge import (
    UNKNOWN_SOURCE,
    Chunk,
    Extraction,
    KnowledgeRecords,
    Position,
    Source,
    derive_id,
    format_content,
)

pytestmark = [pytest.mark.req("K-05", "X-02"), pytest.mark.usefixtures("_swept"), pytest.mark.slow]

SOURCE, CHUNK, EXTRACTION = IDS = [ObjectId(derive_id(name)) for name in ("source", "chunk", "extraction")]
ODD = [
    None,
    True,
    -1,
    Int64(2**62),
    0.5,
    1e300,
    float("nan"),
    float("inf"),
    "text",
    " 12 ",
    "9" * 5000,
    "",
    [],
    [None, 1, ["a"], {"b": 2}],
    {},
    {"chapter": {"x": 1}, "section": ["s"], "page": [7]},
    datetime(2024, 1, 2, tzinfo=UTC),
    ObjectId("0" * 24),
    Binary(b"\xff\x00"),
    Binary.from_uuid(UUID(int=7)),
    Decimal128("1.50"),
    Regex("a.*", "i"),
    Code("return 1"),
    Timestamp(1, 2),
    MaxKey(),
]


@pytest.fixture
def collections(mongo: str) -> Iterator[dict[str, Collection[Any]]]:
    with MongoClient[dict[str, Any]](mongo) as client:
        database = client.get_default_database()
        yield {name: database[name] for name in ("sources", "chunks", "extractions")}


@pytest.fixture
async def reader(mongo: str) -> AsyncIterator[MongoKnowledgeReader]:
    opened = MongoKnowledgeReader.at(mongo, timeout_seconds=30.0)
    yield opened
    await opened.close()


@pytest.fixture
async def store(mongo: str) -> AsyncIterator[MongoKnowledge]:
    opened = MongoKnowledge.at(mongo)
    yield opened
    await opened.close()


async def test_documents_are_written_as_other_pipelines_read_them(
    store: MongoKnowledge, collections: dict[str, Collection[Any]]
) -> None:
    source = Source(str(SOURCE), "book", "T", ("A",), "a.md", "2025-01-01T00:00:00Z", metadata={"digest": "d"})
    chunk = Chunk(str(CHUNK), source.id, "text", Position("C", "S", 4), 9)
    drawn = Extraction(str(EXTRACTION), source.id, chunk.id, "decision", {"what": "x"}, ("t",), "2025-01-02T00:00:00Z")
    await store.replace(source, [chunk], [drawn])
    assert [*collections["sources"].find()] == [
        {
            "_id": SOURCE,
            "type": "book",
            "title": "T",
            "authors": ["A"],
            "path": "a.md",
            "ingested_at": "2025-01-01T00:00:00Z",
            "status": "ready",
            "metadata": {"digest": "d"},
            "schema_version": 1,
        }
    ]
    assert [*collections["chunks"].find()] == [
        {
            "_id": CHUNK,
            "source_id": str(SOURCE),
            "content": "text",
            "position": {"chapter": "C", "section": "S", "page": 4},
            "token_count": 9,
            "schema_version": 1,
            "number": 0,
        }
    ]
    assert [*collections["extractions"].find()] == [
        {
            "_id": EXTRACTION,
            "source_id": str(SOURCE),
            "chunk_id": str(CHUNK),
            "type": "decision",
            "content": {"what": "x"},
            "topics": ["t"],
            "extracted_at": "2025-01-02T00:00:00Z",
            "schema_version": 1,
        }
    ]


async def test_documents_of_another_pipeline_are_found_whatever_their_ids_are(
    reader: MongoKnowledgeReader, collections: dict[str, Collection[Any]]
) -> None:
    collections["sources"].insert_many([{"_id": SOURCE, "title": "By number"}, {"_id": "by-name", "title": "By name"}])
    collections["chunks"].insert_many(
        [
            {"_id": CHUNK, "source_id": str(SOURCE), "content": "one", "embedding": [0.5] * 384},
            {"_id": "chunk-2", "source_id": SOURCE, "content": "two"},
            {"_id": "chunk-3", "source_id": "by-name", "content": "three", "number": 1},
            {"_id": "chunk-4", "source_id": "by-name", "content": "four", "number": 0},
        ]
    )
    found = await reader.get_records([str(SOURCE), "by-name"], [str(CHUNK), "chunk-2"], [])
    titles = {own: source.title for own, source in found.sources.items()}
    assert titles == {str(SOURCE): "By number", "by-name": "By name"}
    assert {i: (c.source_id, c.content) for i, c in found.chunks.items()} == {
        str(CHUNK): (str(SOURCE), "one"),
        "chunk-2": (str(SOURCE), "two"),
    }
    assert {chunk.content for chunk in (await reader.get_contents(str(SOURCE)))[0]} == {"one", "two"}
    assert [chunk.content for chunk in (await reader.get_contents("by-name"))[0]] == ["four", "three"]
    assert await reader.count_contents() == {str(SOURCE): (2, 0), "by-name": (2, 0)}


async def test_missing_fields_get_default_values(
    reader: MongoKnowledgeReader, collections: dict[str, Collection[Any]]
) -> None:
    for name, own in (("sources", SOURCE), ("chunks", CHUNK), ("extractions", EXTRACTION)):
        collections[name].insert_one({"_id": own})
    assert await reader.get_records([str(SOURCE)], [str(CHUNK)], [str(EXTRACTION)]) == KnowledgeRecords(
        {str(SOURCE): Source(str(SOURCE), "", UNKNOWN_SOURCE, (), "", "", "ready", {}, 1)},
        {str(CHUNK): Chunk(str(CHUNK), "", "", Position(), 0, 1)},
        {str(EXTRACTION): Extraction(str(EXTRACTION), "", "", "", {}, (), "", 1)},
    )


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ({"page": 12}, Position(page=12)),
        ({"page": "12"}, Position(page=12)),
        ({"page": 12.0}, Position(page=12)),
        ({"page": "xii", "chapter": 3}, Position("3")),
        ({"page": 1.5, "section": None}, Position()),
        ({"page": True}, Position()),
        ({"chapter": "One", "section": "1.1", "page": None, "line": 7}, Position("One", "1.1", line=7)),
        ("page 7", Position()),
        ([1, 2], Position()),
        (None, Position()),
    ],
)
async def test_a_position_is_read_in_every_form(
    reader: MongoKnowledgeReader, collections: dict[str, Collection[Any]], position: Any, expected: Position
) -> None:
    collections["chunks"].insert_one({"_id": CHUNK, "position": position})
    assert (await reader.get_records([], [str(CHUNK)], [])).chunks[str(CHUNK)].position == expected


async def test_types_of_mongodb_become_readable_strings(
    reader: MongoKnowledgeReader, collections: dict[str, Collection[Any]]
) -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    collections["sources"].insert_one({"_id": SOURCE, "authors": "Ada", "ingested_at": moment, "metadata": "a note"})
    content = {"when": moment, "of": CHUNK, "share": Decimal128("0.10"), "n": Int64(3)}
    collections["extractions"].insert_one({"_id": EXTRACTION, "content": content, "topics": "one", "chunk_id": CHUNK})
    collections["extractions"].insert_one({"_id": "plain", "content": "Use a cache.", "topics": ["a", None, 1]})
    found = await reader.get_records([str(SOURCE)], [], [str(EXTRACTION), "plain"])
    source, drawn = found.sources[str(SOURCE)], found.extractions[str(EXTRACTION)]
    assert (source.authors, source.ingested_at) == (("Ada",), "2024-01-02T03:04:05+00:00")
    assert source.metadata == {"text": "a note"}
    assert drawn.content == {"when": "2024-01-02T03:04:05+00:00", "of": str(CHUNK), "share": "0.10", "n": 3}
    assert (drawn.topics, drawn.chunk_id) == (("one",), str(CHUNK))
    assert format_content(found.extractions["plain"].content) == "text: Use a cache."
    assert found.extractions["plain"].topics == ("a", "1")


async def test_no_value_in_a_document_makes_reading_fail(
    reader: MongoKnowledgeReader, collections: dict[str, Collection[Any]]
) -> None:
    fields = {
        "sources": ["type", "title", "authors", "path", "ingested_at", "status", "metadata", "schema_version"],
        "chunks": ["source_id", "content", "position", "token_count", "schema_version", "number"],
        "extractions": ["source_id", "chunk_id", "type", "content", "topics", "extracted_at", "schema_version"],
    }
    ids = [f"odd-{n}" for n in range(len(ODD))]
    for name, names in fields.items():
        odd: list[dict[str, Any]] = [
            {"_id": own, **dict.fromkeys(names, value)} for own, value in zip(ids, ODD, strict=True)
        ]
        collections[name].insert_many(odd)
        collections[name].insert_many([{**one, "_id": one["_id"] + " too", "source_id": "book"} for one in odd])
    found = await reader.get_records(ids, ids, ids)
    assert [len(each) for each in (found.sources, found.chunks, found.extractions)] == [len(ODD)] * 3
    read: list[Any] = [*found.sources.values(), *found.chunks.values(), *found.extractions.values()]
    json.dumps([asdict(each) for each in read], allow_nan=False)
    assert all(isinstance(format_content(each.content), str) for each in found.extractions.values())
    chunks, extractions = await reader.get_contents("book")
    assert (len(chunks), len(extractions)) == (len(ODD), len(ODD))
    assert len(await reader.list_sources()) == 2 * len(ODD)
    assert len(await reader.count_contents()) == 2 * len(ODD)


def test_invalid_utf8_and_dates_out_of_range_are_read_as_far_as_possible() -> None:
    # Current drivers and servers do not write this: three bytes of the content are not valid UTF-8.
    element = b"\x02_id\x00\x04\x00\x00\x00bad\x00" + b"\x02content\x00\x06\x00\x00\x00a\xff\xfe\xedb\x00"
    document = (len(element) + 5).to_bytes(4, "little") + element + b"\x00"
    lenient: Any = LENIENT
    content = read_chunk(bson.decode(document, lenient)).content
    assert (content[0], content[-1]) == ("a", "b")
    source = read_source(bson.decode(bson.encode({"_id": SOURCE, "ingested_at": DatetimeMS(2**60)}), lenient))
    assert str(2**60) in source.ingested_at


async def test_the_writer_creates_indexes_and_the_reader_creates_nothing(
    reader: MongoKnowledgeReader, store: MongoKnowledge, mongo: str, collections: dict[str, Collection[Any]]
) -> None:
    def indexes() -> dict[str, list[list[str]]]:
        return {
            name: sorted([field for field, _ in index["key"]] for index in each.index_information().values())
            for name, each in collections.items()
        }

    await reader.get_records([str(SOURCE)], [], [])
    await reader.list_sources()
    assert collections["sources"].database.list_collection_names() == []
    # An index that another program created under its own name.
    collections["extractions"].create_index("type", name="by_kind")
    source = Source(str(SOURCE), "book", "T", (), "", "")
    await store.replace(source, [], [])
    again = MongoKnowledge.at(mongo)
    await again.replace(source, [], [])
    await again.close()
    assert indexes() == {
        "sources": [["_id"], ["title"]],
        "chunks": [["_id"], ["source_id", "number"]],
        "extractions": [["_id"], ["chunk_id"], ["source_id"], ["topics"], ["type"]],
    }


@pytest.mark.req("K-06")
async def test_an_interrupted_replacement_is_not_ready_and_repeating_it_completes_it(
    store: MongoKnowledge, collections: dict[str, Collection[Any]]
) -> None:
    source = Source(str(SOURCE), "book", "T", (), "", "")
    old, new = (
        [Chunk(derive_id(name), source.id, name, Position(), 1) for name in names] for names in (("a", "b"), ("b", "c"))
    )
    await store.replace(source, old, [])
    failing = {
        "configureFailPoint": "failCommand",
        "mode": {"times": 1},
        "data": {"failCommands": ["delete"], "errorCode": 8000},
    }
    collections["sources"].database.client.admin.command(failing)
    with pytest.raises(Unavailable):
        await store.replace(source, new, [])
    assert [each.status for each in await store.list_sources()] == ["indexing"]
    await store.replace(source, new, [])
    assert [each.status for each in await store.list_sources()] == ["ready"]
    assert await store.get_contents(source.id) == (new, [])


async def test_fields_of_another_pipeline_stay(store: MongoKnowledge, collections: dict[str, Collection[Any]]) -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    documents: dict[str, dict[str, Any]] = {
        "sources": {"title": "Theirs", "status": "complete", "isbn": "123", "metadata": {"when": moment}},
        "chunks": {"source_id": SOURCE, "content": "text", "position": {"chapter": "1", "line": 7}, "vector": [0.5]},
        "extractions": {
            "source_id": str(SOURCE),
            "chunk_id": CHUNK,
            "type": "w",
            "content": {"n": Int64(3)},
            "by": "us",
        },
    }
    for (name, document), own in zip(documents.items(), (SOURCE, CHUNK, EXTRACTION), strict=True):
        collections[name].insert_one({"_id": own, **document})
    (source,) = await store.list_sources()
    chunks, extractions = await store.get_contents(source.id)
    more = Chunk(derive_id("more"), source.id, "more", Position(), 1)
    changed = replace(source, title="Ours")
    await store.replace(changed, [*chunks, more], [replace(each, type="warning") for each in extractions])
    list_stored = {
        name: each.find_one({"_id": own}) or {} for (name, each), own in zip(collections.items(), IDS, strict=True)
    }
    assert list_stored["sources"]["title"] == "Ours"
    assert list_stored["extractions"]["type"] == "warning"
    documents["sources"]["title"], documents["extractions"]["type"] = "Ours", "warning"
    for name, document in documents.items():
        # The driver of this test reads dates without a time zone.
        read = {"metadata": {"when": moment.replace(tzinfo=None)}} if name == "sources" else {}
        assert {field: list_stored[name][field] for field in document} == document | read
    assert await store.list_sources() == [changed]
    assert [chunk.content for chunk in (await store.get_contents(source.id))[0]] == ["text", "more"]


@pytest.mark.req("K-06")
async def test_an_import_into_a_source_of_another_pipeline_keeps_its_fields(
    store: MongoKnowledge, collections: dict[str, Collection[Any]]
) -> None:
    collections["sources"].insert_one({"_id": SOURCE, "title": "Theirs", "status": "complete", "isbn": "123"})
    collections["chunks"].insert_one({"_id": CHUNK, "source_id": str(SOURCE), "content": "text", "vector": [0.5]})
    library = Library(store=store)
    await library.ingesting.index_all()
    line = {"extraction": {"source_id": "Theirs", "type": "warning", "content": {"a": "b"}}}
    taken = await library.importing.take([line])
    assert (taken.extractions, taken.refused) == (1, [])
    assert collections["sources"].find_one() == {"_id": SOURCE, "title": "Theirs", "status": "complete", "isbn": "123"}
    assert collections["chunks"].find_one() == {
        "_id": CHUNK, "source_id": str(SOURCE), "content": "text", "vector": [0.5],
    }  # fmt: skip
    assert collections["extractions"].count_documents({"source_id": str(SOURCE)}) == 1


@pytest.mark.req("K-06")
async def test_an_import_does_not_mark_a_half_replaced_book_as_complete(
    store: MongoKnowledge, collections: dict[str, Collection[Any]]
) -> None:
    library = Library(store=store, books={HANDBOOK: book(1, 2, 3)})
    admin = collections["sources"].database.client.admin
    failing = {"configureFailPoint": "failCommand", "data": {"failCommands": ["delete"], "errorCode": 8000}}
    await library.ingesting.ingest(HANDBOOK)
    admin.command(failing | {"mode": "alwaysOn"})  # so that the change cannot be undone
    library.drawer.books[HANDBOOK] = book(4, 5)
    with pytest.raises(Unavailable):
        await library.ingesting.ingest(HANDBOOK)
    admin.command({"configureFailPoint": "failCommand", "mode": "off"})
    line = {"extraction": {"source_id": "The Handbook", "type": "warning", "content": {"a": "b"}}}
    ((_, problem),) = (await library.importing.take([line])).refused
    assert "is not complete" in problem
    assert [each.status for each in await store.list_sources()] == ["indexing"]
    assert (await library.ingesting.ingest(HANDBOOK)).chunks == 2
    await library.assert_whole()


async def test_a_document_that_is_too_large_for_mongodb_is_rejected(store: MongoKnowledge) -> None:
    source = Source(str(SOURCE), "book", "T", (), "", "", metadata={"all": "x" * 17_000_000})
    with pytest.raises(Invalid, match="rejects a value"):
        await store.replace(source, [], [])


@asynccontextmanager
async def _silent() -> AsyncIterator[int]:
    """The port of a server that takes connections and never answers."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()


async def _unavailable_within(seconds: float, reader: MongoKnowledgeReader) -> str:
    message = ""
    for ask in (reader.ping(), reader.list_sources(), reader.get_records(["a"], ["b"], ["c"])):
        start = time.monotonic()
        with pytest.raises(Unavailable) as raised:
            await ask
        assert time.monotonic() - start < seconds
        message = raised.value.message
        assert "\n" not in message
        assert "check TOOLSCRIPT_KNOWLEDGE" in message
        assert "hunter2" not in message + json.dumps(raised.value.details)
    await reader.close()
    return message


async def test_a_server_that_is_down_is_unavailable_within_the_timeout() -> None:
    reader = MongoKnowledgeReader.at("mongodb://me:hunter2@127.0.0.1:9/books", timeout_seconds=0.1)
    assert "mongodb://127.0.0.1:9/books does not answer" in await _unavailable_within(20.0, reader)


@pytest.mark.extended
async def test_a_writer_with_a_long_timeout_fails_soon_when_no_server_listens() -> None:
    store = MongoKnowledge.at("mongodb://127.0.0.1:9/books")
    start = time.monotonic()
    with pytest.raises(Unavailable, match="Connect call failed"):
        await store.list_sources()
    await store.close()
    assert time.monotonic() - start < 25.0


@pytest.mark.extended
@pytest.mark.req("K-06")
async def test_a_server_that_stops_during_a_write_is_reported_soon() -> None:
    source = Source(str(SOURCE), "book", "T", (), "", "")
    chunks = [Chunk(derive_id(n), source.id, f"{n} " * 100, Position(), 1) for n in range(1_500)]
    # The source and the first 500 chunks are written, and the next ones are not before the server stops.
    blocking = {
        "configureFailPoint": "failCommand",
        "mode": {"skip": 2, "times": 1},
        "data": {"failCommands": ["update"], "blockConnection": True, "blockTimeMS": 600_000},
    }
    with ExitStack() as life:
        uri = life.enter_context(run_mongo())
        store = MongoKnowledge.at(uri)
        with MongoClient[dict[str, Any]](uri) as client:
            client.admin.command(blocking)
            written = client["toolscript"]["chunks"]
            writing = asyncio.create_task(store.replace(source, chunks, []))
            while not await asyncio.to_thread(written.estimated_document_count):
                assert not writing.done()
        life.close()
        start = time.monotonic()
        with pytest.raises(Unavailable, match="does not answer"):
            await writing
        await store.close()
        assert time.monotonic() - start < 25.0


async def test_timeouts_in_the_address_do_not_extend_the_timeout() -> None:
    options = "timeoutMS=60000&serverSelectionTimeoutMS=60000&connectTimeoutMS=60000&socketTimeoutMS=60000"
    async with _silent() as port:
        reader = MongoKnowledgeReader.at(f"mongodb://127.0.0.1:{port}/?{options}", timeout_seconds=0.1)
        await _unavailable_within(20.0, reader)


async def test_a_server_that_stops_answering_is_unavailable_within_the_timeout(
    mongo: str, collections: dict[str, Collection[Any]]
) -> None:
    collections["chunks"].insert_one({"_id": CHUNK, "content": "text"})
    reader = MongoKnowledgeReader.at(mongo, timeout_seconds=1.0)

    async def read() -> KnowledgeRecords:
        return await reader.get_records([], [str(CHUNK)], [])

    assert (await call_until_available(read)).chunks
    blocking = {
        "configureFailPoint": "failCommand",
        "mode": {"times": 1},
        "data": {"failCommands": ["find"], "blockConnection": True, "blockTimeMS": 30_000},
    }
    collections["chunks"].database.client.admin.command(blocking)
    start = time.monotonic()
    with pytest.raises(Unavailable):
        await read()
    assert time.monotonic() - start < 25.0
    assert (await call_until_available(read)).chunks
    await reader.close()


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://",
        "mongodb://me:hunter2@:x/",
        "mongodb://me:hunter2@host:port/name",
        "mongodb://me:hun/ter2@host/name",
        "mongodb://host/na me",
        "mongodb://host/?datetime_conversion=hunter2",
        "mongodb://host:99999/",
        "mongo://me:hunter2@host",
        "",
    ],
)
async def test_an_address_that_cannot_be_used_is_refused_without_its_password(uri: str) -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_KNOWLEDGE is not a usable MongoDB address") as raised:
        MongoKnowledgeReader.at(uri)
    assert "hunter2" not in raised.value.message
    assert raised.value.__cause__ is None


async def test_without_a_name_in_the_address_the_database_is_toolscript(mongo_server: str) -> None:
    store = MongoKnowledge.at(mongo_server)
    source = Source(derive_id("without a name"), "book", "T", (), "", "")
    await store.replace(source, [], [])
    with MongoClient[dict[str, Any]](mongo_server) as client:
        assert client["toolscript"]["sources"].count_documents({"_id": ObjectId(source.id)}) == 1
    await store.remove(source.id)
    await store.close()
