"""Knowledge search over HTTP when one call of a real adapter fails, hangs or returns garbage: every response arrives
within the deadline, in one of two formats."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import httpx
import numpy as np
import pytest
from pymongo import MongoClient

from tests.fixtures.examples import choose
from tests.fixtures.faults import FAULTS as COMMON_FAULTS
from tests.fixtures.faults import Fault, FaultyAdapter, hang, returning
from tests.fixtures.knowledge_search import HARBOUR, TIDES, WARNING, stock, stock_mongo
from tests.fixtures.limits import set_limits
from tests.fixtures.serving import replace_parts
from toolscript.adapters.mongo.knowledge import MongoKnowledgeReader
from toolscript.app.app import App
from toolscript.domain.errors import Unavailable
from toolscript.domain.knowledge import KnowledgeRecords
from toolscript.domain.limits import current_limits
from toolscript.retrieval.retriever import Retriever
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS
from toolscript.services.knowledge.search import KnowledgeSearch
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = [pytest.mark.req("K-01", "K-03"), pytest.mark.usefixtures("_quiet", "_swept")]

SEARCH = "/search_knowledge"
# What hangs here hangs for ever, so this tells a deadline from none, also where other work takes the processor.
MAX_SECONDS = 30.0
CODES = {"VALIDATION_ERROR", "NOT_FOUND", "RATE_LIMITED", "INTERNAL_ERROR"}

FAULTS: Mapping[str, Fault] = {**COMMON_FAULTS, "a number": returning(lambda _: 42)}

# An error, an answer that never comes and one that is none; the others are tried in `make test-all`.
SOME_FAULTS = ("unavailable", "hangs", "none")

# The part that fails, its method, and the adapter in the error.
PLACES: Mapping[str, tuple[str, str, str]] = {
    "embedder": ("embedder", "embed_query", "embedder"),
    "index": ("index", "dense", "index"),
    "reader": ("reader", "get_records", "store"),
}


@pytest.fixture
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with stock(tmp_path_factory.mktemp("data")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has a minute when the one before hangs."""
    set_limits(monkeypatch, knowledge_embedding=60.0, knowledge_ranking=120.0, knowledge_reading=180.0)


@asynccontextmanager
async def open_client(app: App, *faults: tuple[str, str, Fault, tuple[str, ...]]) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application with faults in these parts."""
    real = {"embedder": app.model.embedder, "index": app.index, "reader": app.stores.knowledge}
    parts = {name: FaultyAdapter(part) for name, part in real.items()}
    for part, method, fault, collections in faults:
        parts[part] = FaultyAdapter(parts[part], method, fault, collections)
    embedder, index, reader = cast(Any, parts.values())
    search = KnowledgeSearch(Retriever(embedder, index), index, reader, app.observability.events)
    serving = ServedApp(app.settings, replace_parts(app, knowledge_search=search))
    transport = httpx.ASGITransport(create_http_app(serving), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def post_search(http: httpx.AsyncClient, **more: Any) -> httpx.Response:
    began = time.monotonic()
    answer = await http.post(SEARCH, json={"query": "enter the harbour", **more})
    assert time.monotonic() - began < MAX_SECONDS
    assert "Traceback" not in answer.text
    return answer


def check_503(answer: httpx.Response, adapter: str) -> None:
    """The response names the part that failed, and not its address."""
    assert answer.status_code == 503, answer.text
    response = answer.json()
    assert response.keys() == {"error"}
    assert response["error"].keys() == {"code", "message", "details"}
    assert (response["error"]["code"], response["error"]["details"]) == ("INTERNAL_ERROR", {"adapter": adapter})
    assert response["error"]["message"] == (
        f"knowledge search is unavailable: the {adapter} failed, see the gateway's log. Try again in a moment"
    )


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The reasons of failed searches in the log."""
    return [getattr(each, "reason", "") for each in caplog.records if each.getMessage() == "knowledge_not_searched"]


async def search_ok(http: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    answer = await post_search(http, **more)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


@pytest.mark.parametrize("fault", choose(FAULTS, *SOME_FAULTS))
@pytest.mark.parametrize("place", PLACES)
async def test_a_failing_required_part_is_a_503_within_the_deadline(app: App, place: str, fault: str) -> None:
    part, method, adapter = PLACES[place]
    async with open_client(app, (part, method, FAULTS[fault], ())) as http:
        check_503(await post_search(http), adapter)


@pytest.mark.parametrize("fault", choose(FAULTS, *SOME_FAULTS))
@pytest.mark.parametrize(("failing", "left"), [(CHUNKS, "extraction"), (EXTRACTIONS, "chunk")])
async def test_one_failing_collection_degrades_the_search(app: App, failing: str, left: str, fault: str) -> None:
    async with open_client(app) as healthy, open_client(app, ("index", "dense", FAULTS[fault], (failing,))) as http:
        well, response = await search_ok(healthy), await search_ok(http)
        both = {*well["results"][0].keys()}
    assert response["metadata"]["degraded"] == ["index"]
    assert response["results"] == [result for result in well["results"] if result["type"] == left]
    assert response["metadata"]["result_count"] == len(response["results"]) > 0
    assert both == {"id", "score", "relevance", "type", "content", "source"}
    assert "degraded" not in well["metadata"]


@pytest.mark.parametrize("fault", choose(FAULTS, *SOME_FAULTS))
async def test_a_failing_collection_that_is_not_searched_does_not_matter(app: App, fault: str) -> None:
    async with open_client(app, ("index", "dense", FAULTS[fault], (CHUNKS,))) as http:
        response = await search_ok(http, type="extraction")
        check_503(await post_search(http, type="chunk"), "index")
    assert {result["type"] for result in response["results"]} == {"extraction"}
    assert "degraded" not in response["metadata"]


@pytest.mark.parametrize("method", ["describe", "open"])
@pytest.mark.parametrize("fault", choose([name for name in FAULTS if name not in {"none", "a number"}], *SOME_FAULTS))
async def test_an_index_that_cannot_be_opened_is_a_503(app: App, method: str, fault: str) -> None:
    async with open_client(app, ("index", method, FAULTS[fault], ())) as http:
        check_503(await post_search(http), "index")


NONSENSE: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "a query vector of no numbers": ("embedder", lambda v: v * np.float32("nan")),
    "an endless query vector": ("embedder", lambda v: np.full_like(v, np.inf)),
    "a query vector of words": ("embedder", lambda _: ["a", "b"]),
    "a text for a query vector": ("embedder", lambda _: "0.1, 0.2"),
    "candidates that are None": ("index", lambda c: [None for _ in c]),
    "candidates that tell None": ("index", lambda c: [each._replace(payload=None) for each in c]),
    "scores that are no numbers": ("index", lambda c: [each._replace(score=float("nan")) for each in c]),
    "scores without end": ("index", lambda c: [each._replace(score=float("inf")) for each in c]),
    "scores in words": ("index", lambda c: [each._replace(score="high") for each in c]),
    "records of None": ("reader", lambda _: KnowledgeRecords(None, None, None)),  # type: ignore[arg-type]
    "chunks that are texts": ("reader", lambda s: replace(s, chunks=dict.fromkeys(s.chunks, "text"))),
    "extractions that are texts": ("reader", lambda s: replace(s, extractions=dict.fromkeys(s.extractions, "text"))),
    "sources that are texts": ("reader", lambda s: replace(s, sources=dict.fromkeys(s.sources, "text"))),
}


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_garbage_counts_as_a_failure(app: App, nonsense: str) -> None:
    place, make = NONSENSE[nonsense]
    part, method, adapter = PLACES[place]
    async with open_client(app, (part, method, returning(make), ())) as http:
        check_503(await post_search(http), adapter)


async def test_a_query_vector_of_the_wrong_size_is_logged_with_the_remedy(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_client(app, ("embedder", "embed_query", returning(lambda v: v[:3]), ())) as http:
        check_503(await post_search(http), "index")
    (reason,) = reasons(caplog)
    assert "toolscript index rebuild" in reason


WITHOUT_SOURCE: Mapping[str, Callable[[Any], Any]] = {
    "candidates without a payload": lambda c: [each._replace(payload={}) for each in c],
    "sources that are numbers": lambda c: [each._replace(payload={"source_id": 7, "chunk_id": 7}) for each in c],
    "sources that are null": lambda c: [each._replace(payload={"source_id": None, "chunk_id": None}) for each in c],
}


@pytest.mark.req("K-02")
@pytest.mark.parametrize("case", WITHOUT_SOURCE)
async def test_a_hit_without_a_source_has_an_unknown_source(app: App, case: str) -> None:
    async with open_client(app, ("index", "dense", returning(WITHOUT_SOURCE[case]), ())) as http:
        response = await search_ok(http)
    by_id = {result["id"]: result["source"] for result in response["results"]}
    assert {source["title"] for source in by_id.values()} == {"Unknown Source"}
    assert by_id[HARBOUR.id]["position"] == {"chapter": "2 Harbours", "section": None, "page": 40}
    assert (by_id[WARNING.id]["chunk_id"], by_id[WARNING.id]["authors"]) == (HARBOUR.id, [])
    assert response["metadata"]["sources_cited"] == ["Unknown Source"]


@pytest.mark.req("K-02")
async def test_hits_that_the_store_does_not_have_are_left_out(app: App) -> None:
    async with open_client(
        app, ("reader", "get_records", returning(lambda _: KnowledgeRecords({}, {}, {})), ())
    ) as http:
        response = await search_ok(http)
    assert (response["results"], response["metadata"]["sources_cited"]) == ([], [])


async def test_concurrent_searches_wait_no_longer_than_one(app: App) -> None:
    async with open_client(app, ("reader", "get_records", hang, ())) as http:
        clock = asyncio.get_running_loop()
        began = clock.time()
        answers = await asyncio.gather(*(post_search(http, limit=1 + n) for n in range(50)))
    assert clock.time() - began < 40 * current_limits().knowledge_reading
    assert {answer.status_code for answer in answers} == {503}


async def test_all_parts_may_hang_together(app: App) -> None:
    faults = [(part, method, hang, ()) for part, method, _ in PLACES.values()]
    async with open_client(app, *faults) as http:
        check_503(await post_search(http), "embedder")


async def test_the_search_recovers_with_the_failed_part(app: App) -> None:
    broken = True

    async def fault(true: Awaitable[Any]) -> Any:
        if broken:
            raise Unavailable("gone for a while")
        return await true

    async with open_client(app, ("index", "describe", fault, ())) as http:
        check_503(await post_search(http), "index")
        broken = False
        assert (await search_ok(http))["results"]


# --- MongoDB ---


@asynccontextmanager
async def reading_from(app: App, uri: str, seconds: float = 20.0) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application with its knowledge in MongoDB."""
    reader = MongoKnowledgeReader.at(uri, timeout_seconds=seconds)
    search = KnowledgeSearch(Retriever(app.model.embedder, app.index), app.index, reader, app.observability.events)
    transport = httpx.ASGITransport(
        create_http_app(ServedApp(app.settings, replace_parts(app, knowledge_search=search)))
    )
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client
    finally:
        await reader.close()


@pytest.mark.req("K-02", "K-05")
async def test_mongodb_gives_the_same_results_without_removed_records(app: App, mongo: str) -> None:
    await stock_mongo(mongo)
    async with open_client(app) as embedded, reading_from(app, mongo) as http:
        assert await search_ok(http) == await search_ok(embedded)
        with MongoClient[dict[str, Any]](mongo) as client:
            database = client.get_default_database()
            assert database["sources"].delete_one({"title": "Of Tides"}).deleted_count == 1
            assert database["chunks"].delete_one({"content": HARBOUR.content}).deleted_count == 1
        response = await search_ok(http)
    by_id = {result["id"]: result for result in response["results"]}
    assert HARBOUR.id not in by_id
    assert by_id[WARNING.id]["source"] == {
        "source_id": TIDES.id,
        "chunk_id": HARBOUR.id,
        "title": "Unknown Source",
        "authors": [],
        "position": {"chapter": None, "section": None, "page": None},
    }
    assert response["metadata"]["sources_cited"] == ["Gardens", "Unknown Source"]


@pytest.mark.req("K-05")
async def test_a_stopped_mongodb_is_a_503_and_only_the_log_has_its_address(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))  # keeps the port, and does not listen
        uri = f"mongodb://127.0.0.1:{refusing.getsockname()[1]}/gone"
        async with reading_from(app, uri, seconds=0.2) as http:
            check_503(await post_search(http), "store")
    (reason,) = reasons(caplog)
    assert uri in reason


@pytest.mark.req("K-05")
async def test_a_hanging_mongodb_is_a_503_within_the_deadline(app: App) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with reading_from(app, f"mongodb://127.0.0.1:{port}/silent", seconds=0.2) as http:
            check_503(await post_search(http), "store")


@pytest.mark.req("F-04")
async def test_without_a_language_model_the_results_come_with_a_note(app: App) -> None:
    async with open_client(app) as http:
        plain = await search_ok(http)
        response = await search_ok(http, answer=True)
        by_query_string = (await http.post(SEARCH, params={"query": "enter the harbour", "answer": "true"})).json()
    assert by_query_string == response
    answer = response.pop("answer")
    assert response == plain
    assert (answer["status"], answer["text"], answer["sentences"]) == ("unavailable", "", [])
    assert "TOOLSCRIPT_LLM_URL" in answer["note"]


@pytest.mark.req("F-03")
async def test_a_context_is_passage_or_section_and_nothing_else(app: App) -> None:
    async with open_client(app) as http:
        plain = await search_ok(http)
        assert await search_ok(http, context="passage") == plain
        wide = await search_ok(http, context="section")
        refused = await post_search(http, context="book")
    assert len(wide["results"]) <= len(plain["results"])
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "VALIDATION_ERROR"
