"""Knowledge is imported over HTTP as JSON lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.fixtures.knowledge_search import HARBOUR, TIDES, stock
from toolscript.app.app import App, local_token
from toolscript.domain.access import Scope
from toolscript.services.knowledge.transfer import export_lines
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.input_limits import MAX_UPLOAD_BYTES
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.json.knowledge import MAX_REFUSED

pytestmark = pytest.mark.req("K-06", "G-09")

IMPORT = "/api/v1/knowledge/import"
NOTE = {"extraction": {"source_id": "Of Tides", "type": "warning", "content": {"what": "Mind the ebb"}, "topics": []}}


@pytest.fixture
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with stock(tmp_path_factory.mktemp("data")) as opened:
        yield opened


@pytest.fixture
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    served = ServedApp(replace(app.settings, api_key="the operator's key"), app)
    headers = {"Authorization": f"Bearer {local_token(app.access.local_key, app.settings.tenant)}"}
    transport = httpx.ASGITransport(create_http_app(served))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        yield client


def join_lines(*lines: Any) -> bytes:
    return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines).encode()


async def test_what_was_exported_is_imported_and_found(app: App, http: httpx.AsyncClient) -> None:
    lines = [line async for line in export_lines(app.stores.knowledge, await app.stores.knowledge.list_sources())]
    await app.texts.ingest_knowledge.remove(TIDES.id)
    response = await http.post(IMPORT, content=join_lines(*lines))
    assert response.status_code == 200, response.text
    assert response.json() == {
        "sources": 2,
        "added": 1,
        "changed": 0,
        "chunks": 3,
        "extractions": 2,
        "refused": [],
        "refused_count": 0,
    }
    found = await http.post("/search_knowledge", json={"query": HARBOUR.content, "limit": 1, "type": "chunk"})
    assert [hit["id"] for hit in found.json()["results"]] == [HARBOUR.id]
    again = (await http.post(IMPORT, content=join_lines(*lines))).json()
    assert (again["sources"], again["added"], again["changed"]) == (2, 0, 0)


async def test_invalid_lines_are_named_and_the_others_imported(http: httpx.AsyncClient) -> None:
    response = (await http.post(IMPORT, content=join_lines("x", "", NOTE, "[]", {"page": {}}))).json()
    assert (response["extractions"], [each["line"] for each in response["refused"]]) == (1, [1, 4, 5])
    for nothing in (b"", b"\n \n"):
        empty = await http.post(IMPORT, content=nothing)
        assert (empty.status_code, empty.json()["refused_count"]) == (200, 0)
    many = (await http.post(IMPORT, content=b"x\n" * (MAX_REFUSED + 5))).json()
    assert (len(many["refused"]), many["refused_count"]) == (MAX_REFUSED, MAX_REFUSED + 5)


async def test_an_import_needs_the_scope_admin(app: App, http: httpx.AsyncClient) -> None:
    _, key = await app.access.keys.create("reader", scopes=[Scope.SEARCH, Scope.KNOWLEDGE])
    for given, status in (("wrong", 401), (key, 403)):
        refused = await http.post(IMPORT, content=join_lines(NOTE), headers={"Authorization": f"Bearer {given}"})
        assert refused.status_code == status
    assert (await app.stores.knowledge.count_contents())[TIDES.id] == (2, 1)


async def test_a_body_above_the_limit_is_refused(http: httpx.AsyncClient) -> None:
    refused = await http.post(IMPORT, headers={"Content-Length": str(MAX_UPLOAD_BYTES + 1)}, content=b"")
    assert refused.status_code == 413


async def test_an_import_waits_for_an_ingest_of_the_same_source(app: App, http: httpx.AsyncClient) -> None:
    async with app.texts.ingest_knowledge.locks.lock([TIDES.id]):
        waiting = asyncio.create_task(http.post(IMPORT, content=join_lines(NOTE)))
        done, _ = await asyncio.wait({waiting}, timeout=0.2)
        assert not done
        assert (await app.stores.knowledge.count_contents())[TIDES.id] == (2, 1)
    assert (await waiting).json()["extractions"] == 1
    assert (await app.stores.knowledge.count_contents())[TIDES.id] == (2, 2)
