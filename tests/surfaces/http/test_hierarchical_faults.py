"""Fallbacks of hierarchical search over HTTP: real adapters, of which one call fails, hangs or returns garbage."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from tests.fixtures.examples import choose
from tests.fixtures.faults import FAULTS, Fault, FaultyAdapter, hang, raising, returning
from tests.fixtures.limits import set_limits
from tests.fixtures.serving import replace_parts
from toolscript.app.app import App, open_app
from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Candidate, SimilarityRange
from toolscript.retrieval.capabilities import load_capabilities
from toolscript.retrieval.retriever import Retriever
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.catalogue.item_points import TOOLS
from toolscript.services.catalogue.skill_points import SKILLS
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.tools.hierarchical_search import HierarchicalSearch
from toolscript.services.tools.ranking import ToolRanking
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = [pytest.mark.req("H-04"), pytest.mark.usefixtures("_quiet")]

SEARCH = "/api/v1/search"
REQUEST = {"query": "read a file", "skill_threshold": 0.0, "tool_threshold": 0.0}
# What hangs here hangs for ever, so this tells a deadline from none, also where other work takes the processor.
MAX_SECONDS = 30.0
# All pass in the 200 s of a hang. The time for tools is also that for the catalogue, which is read while the time for
# the embedding runs.
STAGE_SECONDS = 150.0


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = dict.fromkeys(("skills_stage", "tools_stage", "schemas_stage"), STAGE_SECONDS)
    set_limits(monkeypatch, tool_embedding=190.0, **stages)


PLACES: Mapping[str, tuple[str, str, str | None]] = {
    "embedder": ("embedder", "embed_query", None),
    "skills": ("index", "scroll", SKILLS),
    "vectors of skills": ("index", "vectors", SKILLS),
    "tools": ("index", "dense", TOOLS),
    "payloads of tools": ("index", "payloads", TOOLS),
    "store": ("item_store", "get_schemas", None),
}

# The parts in `degraded`, and the results.
EXPECTED = {
    "embedder": (["embedder"], "nothing"),
    "skills": (["index"], "unfiltered"),
    "vectors of skills": (["index"], "unfiltered"),
    "tools": (["index"], "no tools"),
    "payloads of tools": (["index"], "no tools"),
    "store": (["catalogue", "schemas"], "no schemas"),
}


def without_payload(hits: Sequence[Candidate]) -> list[Candidate]:
    return [c._replace(payload={}) for c in hits]


def change_values(**payload: Any) -> Callable[[Sequence[Candidate]], list[Candidate]]:
    return lambda hits: [c._replace(payload={**c.payload, **payload}) for c in hits]


def values(make: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda values: {i: make(v) for i, v in values.items()}


def uneven(values: Mapping[str, Any]) -> dict[str, Any]:
    return {i: v if n else v[:3] for n, (i, v) in enumerate(values.items())}


NONSENSE: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "a query vector of no numbers": ("embedder", lambda v: v * np.float32("nan")),
    "an endless query vector": ("embedder", lambda v: np.full_like(v, np.inf)),
    "a query vector of words": ("embedder", lambda v: ["a", "b"]),
    "a text for a query vector": ("embedder", lambda v: "0.1, 0.2"),
    "skills without a payload": ("skills", without_payload),
    "skills with None as payload": ("skills", lambda hits: [c._replace(payload=None) for c in hits]),
    "skills with countless tools": ("skills", change_values(tool_count="many")),
    "skills without tightness": ("skills", change_values(tightness=None)),
    "no list of skills": ("skills", lambda hits: 42),
    "skill vectors of no numbers": ("vectors of skills", values(lambda v: v * np.float32("nan"))),
    "skill vectors of another size": ("vectors of skills", values(lambda v: v[:3])),
    "skill vectors of several sizes": ("vectors of skills", uneven),
    "skill vectors that are None": ("vectors of skills", values(lambda v: None)),
    "no list of tools": ("tools", lambda hits: 42),
    "tools without a payload": ("payloads of tools", values(lambda _: {})),
    "tools with None as payload": ("payloads of tools", values(lambda _: None)),
    "tools without a name": ("payloads of tools", values(lambda payload: {**payload, "name": None})),
    "no payload by id": ("payloads of tools", list),
    "schemas that are None": ("store", dict.fromkeys),
    "schemas that are one": ("store", lambda values: {i: schemas[:1] for i, schemas in values.items()}),
    "a number for schemas": ("store", lambda values: 42),
}


@pytest.fixture
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


@pytest.fixture(scope="module")
async def filled(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("filled")
    async with open_app(load_settings(variables={}, data_dir=folder, search_model="hashed-64")) as app:
        await app.catalogue.sync.run(load_demo_items())
        await app.catalogue.sync.index_catalogue()
        yield app


@asynccontextmanager
async def open_client(app: App, *faults: FaultyAdapter) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application with faults in these parts."""
    real = list_parts(app)
    parts: dict[str, Any] = {name: FaultyAdapter(part) for name, part in real.items()}
    for faulty in faults:
        (name,) = [name for name, part in real.items() if part is faulty.real]
        parts[name] = faulty
    snapshots = CatalogueSnapshots(
        parts["item_store"], parts["index"], SimilarityRange(0.0, 1.0), read_timeout=STAGE_SECONDS / 2
    )
    ranking = ToolRanking(Retriever(parts["embedder"], parts["index"]), load_capabilities())
    search = HierarchicalSearch(ranking, snapshots)
    serving = ServedApp(app.settings, replace_parts(app, hierarchical_search=search))
    transport = httpx.ASGITransport(create_http_app(serving), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        try:
            yield client
        finally:
            await snapshots.close()


def list_parts(app: App) -> dict[str, Any]:
    return {"embedder": app.model.embedder, "index": app.index, "item_store": app.stores.items}


def add_fault(app: App, place: str, fault: Fault) -> FaultyAdapter:
    part, method, collection = PLACES[place]
    real = list_parts(app)[part]
    # Schemas are read only where the facts about the catalogue cannot be, which have them as well.
    others = ("get_items",) if method == "get_schemas" else ()
    return FaultyAdapter(real, method, fault, (collection,) if collection else (), others=others)


async def search_ok(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    started = time.monotonic()
    answer = await http.post(SEARCH, json={**REQUEST, **fields})
    assert answer.status_code == 200, answer.text
    assert time.monotonic() - started < MAX_SECONDS
    response: dict[str, Any] = answer.json()
    assert response["metadata"]["total_time_ms"] < MAX_SECONDS * 1000
    return response


def without_times(response: dict[str, Any]) -> dict[str, Any]:
    metadata = {k: v for k, v in response["metadata"].items() if not k.endswith("_ms")}
    return {**response, "metadata": metadata}


async def check_fallback(app: App, place: str, fault: Fault) -> None:
    faulty = add_fault(app, place, fault)
    async with open_client(app) as healthy, open_client(app, faulty) as http:
        well, direct = await search_ok(healthy), await search_ok(healthy, strategy="direct")
        response = await search_ok(http)
        parts, returned = EXPECTED[place]
        assert response["metadata"]["degraded"] == parts
        match returned:
            case "nothing":
                assert (response["tools"], response["matched_skills"], response["metadata"]["skill_ids_used"]) == (
                    [],
                    [],
                    None,
                )
            case "unfiltered":
                assert (response["tools"], response["matched_skills"]) == (direct["tools"], [])
                assert response["metadata"]["skill_ids_used"] is None
            case "no tools":
                assert response["tools"] == []
                assert 1 <= len(response["matched_skills"]) <= len(well["matched_skills"])
                assert response["metadata"]["stage2_candidate_count"] == 0
            case "no schemas":
                assert len(response["tools"]) == len(well["tools"])
                for name in ("input_schema", "output_schema", "annotations"):
                    assert {t[name] for t in response["tools"]} == {None}
        assert response["metadata"]["final_count"] == len(response["tools"])
        faulty.is_on = False
        # The reading of the catalogue goes on until the store's own deadline, which a fault that hangs for ever lacks.
        if (place, fault) != ("store", hang):
            assert without_times(await search_ok(http)) == without_times(well)


# An error and an answer that never comes are what a part can do; the others are tried in `make test-all`.
SOME_FAULTS = ("unavailable", "hangs")
CASES = [(place, fault) for place in PLACES for fault in FAULTS]
CHOSEN = [
    (place, fault)
    for place, fault in CASES
    if fault in {*SOME_FAULTS, *(("runtime error",) if place == "tools" else ())}
]


@pytest.mark.parametrize("case", choose(CASES, *CHOSEN), ids="-".join)
async def test_a_failing_part_degrades_as_in_the_table_until_it_recovers(
    filled: App, case: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    place, fault = case
    await check_fallback(filled, place, FAULTS[fault])
    assert {"stage_failed", "query_not_embedded"} & {record.message for record in caplog.records} or (
        (place, fault) == ("embedder", "none")
    )


SOME_NONSENSE = (
    *("a query vector of no numbers", "a text for a query vector", "skills without a payload", "no list of skills"),
    *("skill vectors of no numbers", "skill vectors of several sizes", "no list of tools"),
    *("tools with None as payload", "no payload by id", "a number for schemas"),
)


@pytest.mark.parametrize("nonsense", choose(NONSENSE, *SOME_NONSENSE))
async def test_a_part_that_returns_garbage_counts_as_failed(filled: App, nonsense: str) -> None:
    place, make = NONSENSE[nonsense]
    await check_fallback(filled, place, returning(make))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_a_tool_whose_score_is_no_number_is_left_out(filled: App, number: float) -> None:
    broken = returning(lambda hits: [hits[0]._replace(score=number), *hits[1:]])
    async with open_client(filled) as healthy, open_client(filled, add_fault(filled, "tools", broken)) as http:
        well, response = await search_ok(healthy), await search_ok(http)
    assert response["metadata"]["degraded"] == ["index"]
    assert response["tools"]
    assert {t["id"] for t in response["tools"]} & {t["id"] for t in well["tools"]}


async def test_skills_are_found_while_the_store_does_not_answer(filled: App) -> None:
    async with open_client(filled, add_fault(filled, "store", raising(Unavailable("down")))) as http:
        answer = await http.get(f"{SEARCH}/skills", params={"query": "read a file", "threshold": 0})
    assert answer.status_code == 200, answer.text
    assert answer.json()


async def test_a_query_vector_of_the_wrong_size_degrades_the_search(filled: App) -> None:
    async with open_client(filled, add_fault(filled, "embedder", returning(lambda v: v[:3]))) as http:
        for strategy in ("hierarchical", "direct", "hybrid"):
            response = await search_ok(http, strategy=strategy)
            assert response["tools"] == []
            assert response["metadata"]["degraded"]


async def test_failing_schemas_do_not_matter_unless_requested(filled: App) -> None:
    others = await filled.stores.items.get_schemas([stored.item.id for stored in await filled.stores.items.get_items()])
    async with (
        open_client(filled) as healthy,
        open_client(filled, FaultyAdapter(filled.stores.items, "get_schemas", returning(lambda _: others))) as http,
    ):
        assert without_times(await search_ok(http)) == without_times(await search_ok(healthy))


async def test_a_skill_without_a_vector_is_read_again(filled: App) -> None:
    """The index returns only half of the points once; the next search has all of them."""
    faulty = add_fault(filled, "vectors of skills", returning(lambda values: dict(list(values.items())[::2])))
    async with open_client(filled) as healthy, open_client(filled, faulty) as http:
        assert (await search_ok(http))["metadata"]["degraded"] == []
        faulty.is_on = False
        assert (await search_ok(http, limit=6))["matched_skills"] == (await search_ok(healthy, limit=6))[
            "matched_skills"
        ]


async def test_all_parts_behind_the_model_may_fail_together(filled: App) -> None:
    faults = [
        FaultyAdapter(filled.index, "scroll", hang, (SKILLS,)),
        FaultyAdapter(filled.stores.items, "get_schemas", hang, others=("get_items",)),
    ]
    async with open_client(filled, *faults) as http:
        response = await search_ok(http)
    assert response["metadata"]["degraded"] == ["catalogue", "index", "schemas"]
    assert len(response["tools"]) == 5


@pytest.mark.parametrize("fault", choose(FAULTS, *SOME_FAULTS))
async def test_a_direct_search_ignores_failing_skills(filled: App, fault: str) -> None:
    async with open_client(filled, add_fault(filled, "skills", FAULTS[fault])) as http:
        response = await search_ok(http, strategy="direct")
    assert (len(response["tools"]), response["metadata"]["degraded"]) == (5, [])


async def test_concurrent_searches_wait_once_for_hanging_skills(filled: App) -> None:
    async with open_client(filled, add_fault(filled, "skills", hang)) as http:
        clock = asyncio.get_running_loop()
        started = clock.time()
        answers = await asyncio.gather(*(search_ok(http, limit=1 + n % 50) for n in range(50)))
    assert clock.time() - started < 40 * STAGE_SECONDS
    assert all(response["metadata"]["degraded"] == ["index"] for response in answers)


@pytest.mark.req("H-08", "D-11")
@pytest.mark.parametrize("fault", choose(FAULTS, *SOME_FAULTS))
@pytest.mark.parametrize(("place", "stage"), [("skills", "skills"), ("tools", "tools")])
async def test_a_failing_single_stage_is_a_503(filled: App, place: str, stage: str, fault: str) -> None:
    async with open_client(filled, add_fault(filled, place, FAULTS[fault])) as http:
        answer = await http.get(f"{SEARCH}/{stage}?query=read&threshold=0")
    assert answer.status_code == 503, answer.text
    error = answer.json()["error"]
    assert error["code"] == "UNAVAILABLE"
    assert f"{stage} cannot be searched right now" in error["message"]


@pytest.mark.req("H-08")
@pytest.mark.parametrize("fault", choose(FAULTS, *SOME_FAULTS))
async def test_a_single_stage_without_a_vector_is_a_503(filled: App, fault: str) -> None:
    async with open_client(filled, add_fault(filled, "embedder", FAULTS[fault])) as http:
        for stage in ("skills", "tools"):
            answer = await http.get(f"{SEARCH}/{stage}?query=read&threshold=0")
            assert answer.status_code == 503
            assert "the embedding model does not respond" in answer.json()["error"]["message"]
