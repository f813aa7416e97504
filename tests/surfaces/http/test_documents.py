"""Documents over HTTP: added, read, searched; and the errors of wrong requests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx
import jwt
import pytest

from toolscript.app.app import App, open_app
from toolscript.domain.documents import Document
from toolscript.domain.errors import Unavailable
from toolscript.domain.search import SearchReport
from toolscript.services.documents.search import DocumentHit, DocumentPage, DocumentStream
from toolscript.settings import Settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.bodies import MAX_REPORTED_ERRORS, THREAD_BODY_BYTES
from toolscript.surfaces.http.input_limits import MAX_BODY_BYTES
from toolscript.surfaces.http.routers.documents import MAX_SEARCH_BYTES, NDJSON, DocumentBatchRequest, stream_json_lines
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("D-01", "D-09")

SECRET = "a secret that is long enough for anybody"
KEYS = {"title": "Rotating keys", "text": "Keys are rotated every ninety days.", "metadata": {"year": 2024}}
LEASE = {"title": "Lease", "text": "The notice period is three months.", "metadata": {"tags": ["contract"]}}


def token(tenant: str, plan: str | None = None) -> str:
    claims = {"tenant_id": tenant, "exp": time.time() + 600} | ({"plan": plan} if plan else {})
    return jwt.encode(claims, SECRET, algorithm="HS256")


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    file = tmp_path / "plans.toml"
    file.write_text('[plans.small]\nmax_top_k = 2\nfields = ["title", "year"]\nrequests_per_minute = 3\n')
    return file


@pytest.fixture
async def app(small: Settings, plans: Path) -> AsyncIterator[App]:
    async with open_app(replace(small, jwt_secret=SECRET, plans=plans)) as opened:
        yield opened


@pytest.fixture
async def nobody(app: App) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
async def http(nobody: httpx.AsyncClient) -> httpx.AsyncClient:
    nobody.headers["Authorization"] = f"Bearer {token('acme')}"
    return nobody


async def fill(http: httpx.AsyncClient, **documents: dict[str, Any]) -> None:
    given = [{"id": doc_id, **response} for doc_id, response in documents.items()]
    answer = await http.post("/documents", json={"documents": given})
    assert answer.status_code == 200, answer.text


async def search_ok(http: httpx.AsyncClient, **query_fields: Any) -> dict[str, Any]:
    answer = await http.post("/search", json=query_fields)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


async def test_a_document_is_added_replaced_and_removed(http: httpx.AsyncClient) -> None:
    new = await http.put("/documents/keys", json=KEYS)
    assert (new.status_code, new.json()) == (201, {"doc_id": "keys", "status": "added"})
    same = await http.put("/documents/keys", json=KEYS)
    assert (same.status_code, same.json()["status"]) == (200, "unchanged")
    other = await http.put("/documents/keys", json={**KEYS, "text": "Keys are never rotated."})
    assert (other.status_code, other.json()["status"]) == (200, "changed")
    assert (await http.get("/documents/keys")).json() == {"id": "keys", **KEYS, "text": "Keys are never rotated."}
    gone = await http.delete("/documents/keys")
    assert (gone.status_code, gone.content) == (204, b"")
    for answer in (await http.get("/documents/keys"), await http.delete("/documents/keys")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("doc_id", ["Grüße & mehr?.txt", "../up", "日本/100%"])
async def test_an_id_may_contain_slashes_and_any_other_character(http: httpx.AsyncClient, doc_id: str) -> None:
    path = f"/documents/{quote(doc_id, safe='')}"
    assert (await http.put(path, json=KEYS)).status_code == 201
    assert (await http.get(path)).json()["id"] == doc_id
    assert [each["id"] for each in (await http.get("/documents")).json()["documents"]] == [doc_id]
    assert [hit["doc_id"] for hit in (await search_ok(http, query="keys"))["hits"]] == [doc_id]
    assert (await http.delete(path)).status_code == 204


async def test_title_and_metadata_are_optional(http: httpx.AsyncClient) -> None:
    assert (await http.put("/documents/bare", json={"text": "Bare."})).status_code == 201
    assert (await http.get("/documents/bare")).json() == {"id": "bare", "title": "", "text": "Bare.", "metadata": {}}


async def test_a_batch_counts_added_changed_and_unchanged_documents(http: httpx.AsyncClient) -> None:
    await fill(http, keys=KEYS, lease=LEASE)
    given = [{"id": "keys", **KEYS}, {"id": "lease", **LEASE, "title": "Old lease"}, {"id": "new", "text": "New."}]
    answer = await http.post("/documents", json={"documents": given})
    assert answer.json() == {"added": 1, "changed": 1, "unchanged": 1}
    assert (await http.post("/documents", json={"documents": []})).json() == {"added": 0, "changed": 0, "unchanged": 0}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"id": "x"}, "documents.1.text"),
        ({"id": "x", "text": " "}, "documents.1.text"),
        ({"id": "x", "text": "x", "colour": "red"}, "documents.1.colour"),
        ({"id": "x", "text": "x", "metadata": {"deep": {"er": 1}}}, "documents.1.metadata.deep"),
    ],
)
async def test_a_batch_with_one_invalid_document_writes_nothing(
    http: httpx.AsyncClient, wrong: dict[str, Any], field: str
) -> None:
    answer = await http.post("/documents", json={"documents": [{"id": "keys", **KEYS}, wrong]})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", field)
    assert (await http.get("/documents")).json() == {"documents": [], "next": None}


async def test_documents_are_listed_in_pages_by_id_without_texts(http: httpx.AsyncClient) -> None:
    await fill(http, **{f"d{n}": {"text": "x" * (n + 1)} for n in range(5)})
    seen, after = [], None
    while True:
        page = (await http.get("/documents", params={"limit": 2} | ({"after": after} if after else {}))).json()
        seen += page["documents"]
        after = page["next"]
        if after is None:
            break
    assert [(d["id"], d["characters"]) for d in seen] == [(f"d{n}", n + 1) for n in range(5)]
    assert all(d.keys() == {"id", "title", "metadata", "characters"} for d in seen)


async def test_the_response_of_a_search_has_the_specified_format(http: httpx.AsyncClient) -> None:
    await fill(http, keys=KEYS, lease=LEASE)
    answer = await http.post("/search", json={"query": "notice period", "search_type": "keyword"})
    response = answer.json()
    assert list(response) == [
        "query_id",
        "took_ms",
        "total",
        "total_relation",
        "nothing_relevant",
        "hits",
        "next_page_token",
        "degraded",
    ]
    assert response["query_id"] == answer.headers["x-request-id"] == str(UUID(response["query_id"]))
    request = {"query": "notice period", "search_type": "keyword"}
    own = (await http.post("/search", json=request, headers={"X-Request-ID": "mine"})).json()
    assert own["query_id"] == str(UUID(own["query_id"]))
    assert (response["total"], response["total_relation"], response["next_page_token"], response["degraded"]) == (
        1,
        "eq",
        None,
        [],
    )
    (hit,) = response["hits"]
    assert (hit["doc_id"], hit["snippet"]) == ("lease", LEASE["text"])
    assert hit["metadata"] == {"title": "Lease", "tags": ["contract"]}
    assert hit["score"] > 0
    assert 0 < hit["relevance"] <= 1
    assert response["took_ms"] > 0


@pytest.mark.req("F-03")
async def test_a_minimum_relevance_leaves_out_the_rest_and_nonsense_finds_nothing_relevant(
    http: httpx.AsyncClient,
) -> None:
    await fill(http, keys=KEYS, lease=LEASE)
    whole = await search_ok(http, query="notice period of the lease")
    best = max(hit["relevance"] for hit in whole["hits"])
    kept = await search_ok(http, query="notice period of the lease", min_relevance=best)
    assert kept["hits"] == [hit for hit in whole["hits"] if hit["relevance"] >= best]
    assert (kept["total"], kept["nothing_relevant"]) == (len(kept["hits"]), False)
    nonsense = await search_ok(http, query="asdf qwer zxcv")
    assert nonsense["nothing_relevant"]
    empty = await search_ok(http, query="asdf qwer zxcv", min_relevance=0.3)
    assert (empty["hits"], empty["total"], empty["nothing_relevant"]) == ([], 0, True)


async def test_every_option_of_a_search_has_an_effect(http: httpx.AsyncClient) -> None:
    await fill(http, keys=KEYS, lease=LEASE)
    response = await search_ok(
        http,
        query="rotated keys",
        top_k=1,
        offset=0,
        search_type="hybrid",
        fusion="zscore",
        filters={"must": [{"field": "year", "op": "gte", "value": 2020}], "should": [], "must_not": None},
        include_snippets=True,
        snippet_max_chars=32,
        highlight=True,
        metadata_fields=["year", "unknown"],
        rerank=False,
        page_token=None,
        min_relevance=0,
    )
    (hit,) = response["hits"]
    assert (hit["doc_id"], hit["metadata"]) == ("keys", {"year": 2024})
    assert "**Keys**" in hit["snippet"]
    assert len(hit["snippet"]) <= 32
    without = await search_ok(http, query="rotated keys", include_snippets=False)
    assert without["hits"][0]["snippet"] is None


async def test_without_a_query_the_filters_select_documents(http: httpx.AsyncClient) -> None:
    await fill(http, keys=KEYS, lease=LEASE, other={"text": "Other."})
    response = await search_ok(http)
    assert [(h["doc_id"], h["score"]) for h in response["hits"]] == [("keys", 0), ("lease", 0), ("other", 0)]
    wanted = {"must_not": [{"field": "tags", "op": "exists", "value": True}]}
    assert [h["doc_id"] for h in (await search_ok(http, filters=wanted))["hits"]] == ["keys", "other"]


@pytest.mark.req("D-07")
async def test_a_page_token_returns_the_next_page(http: httpx.AsyncClient) -> None:
    await fill(http, **{f"d{n}": {"text": f"Keys and locks, volume {n}."} for n in range(5)})
    whole = await search_ok(http, query="keys")
    query_fields: dict[str, Any] = {"query": "keys", "top_k": 2}
    seen: list[dict[str, Any]] = []
    for _ in range(3):
        response = await search_ok(http, **query_fields)
        seen += response["hits"]
        query_fields["page_token"] = response["next_page_token"]
    assert seen == whole["hits"]
    assert query_fields["page_token"] is None


@pytest.mark.req("D-01", "D-02", "D-03", "D-11")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"[]", "body"),
        ({"query": 7}, "query"),
        ({"query": "x", "colour": "red"}, "colour"),
        ({"query": "x", "top_k": 201}, "top_k"),
        ({"query": "x", "min_relevance": 1.01}, "min_relevance"),
        ({"query": "x", "top_k": "10"}, "top_k"),
        ({"query": "x", "include_snippets": "yes"}, "include_snippets"),
        ({"query": "x", "search_type": "psychic"}, "search_type"),
        ({"query": "x", "metadata_fields": "title"}, "metadata_fields"),
        ({"query": "x", "filters": []}, "filters"),
        ({"query": "x", "filters": {"mus": []}}, "filters.mus"),
        ({"query": "x", "filters": {"must": [{"field": "a", "op": "eq"}]}}, "filters.must.0.value"),
        ({"query": "x", "filters": {"must": [{"field": "a", "op": "is", "value": 1}]}}, "filters.must.0.op"),
        ({"query": "x", "filters": {"must": [{"field": "a", "op": "lt", "value": "soon"}]}}, "filters.must.0.value"),
        (
            {"filters": {p: [{"field": "a", "op": "eq", "value": 1}] * 51 for p in ("must", "should")}},
            "filters",
        ),
    ],
    ids=lambda given: str(given)[:60],
)
async def test_an_invalid_search_is_refused_with_the_name_of_the_field(
    http: httpx.AsyncClient, body: Any, field: str
) -> None:
    given = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = await http.post("/search", **given)
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", field)
    assert error["message"]


async def test_a_body_that_is_too_large_is_refused_whatever_its_content_length(http: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 2**20 + 1):
            yield b" " * 2**20

    answer = await http.put("/documents/large", content=chunks())
    assert answer.status_code == 413
    assert "MiB" in answer.json()["error"]["message"]


async def test_the_body_of_a_search_may_have_one_mebibyte(http: httpx.AsyncClient) -> None:
    answer = await http.post("/search", content=b" " * MAX_SEARCH_BYTES + b"{}")
    assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (413, "body")
    assert "1 MiB" in answer.json()["error"]["message"]


async def test_a_large_body_is_read_in_a_thread(http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[int] = []
    convert = DocumentBatchRequest.to_documents

    def noting(given: DocumentBatchRequest) -> list[Document]:
        readers.append(threading.get_ident())
        return convert(given)

    monkeypatch.setattr(DocumentBatchRequest, "to_documents", noting)
    for size in (1, THREAD_BODY_BYTES):
        await fill(http, keys={"text": "Keys." + " " * size})
    here = threading.get_ident()
    assert [reader == here for reader in readers] == [True, False]


async def test_an_error_for_very_many_wrong_fields_only_counts_them(http: httpx.AsyncClient) -> None:
    unknown = {f"field-{n}": n for n in range(MAX_REPORTED_ERRORS + 1)}
    for path in ("/search", "/documents"):
        error = (await http.post(path, json=unknown)).json()["error"]
        assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", "body")
    wrong = [{"id": "x"}] * 1000
    error = (await http.post("/documents", json={"documents": wrong})).json()["error"]
    assert error["details"]["field"] == "documents.0.text"


@pytest.mark.req("D-12")
async def test_a_search_is_counted_once_before_its_body_is_read(http: httpx.AsyncClient) -> None:
    mine = {"Authorization": f"Bearer {token('acme', 'small')}"}
    response = [(await http.post("/search", json={"top_k": 1}, headers=mine)).status_code for _ in range(3)]
    response.append((await http.post("/search", content=b"{", headers=mine)).status_code)
    assert response == [200, 200, 200, 429]


@pytest.mark.req("D-05")
async def test_the_caller_is_identified_before_the_body_is_read(nobody: httpx.AsyncClient) -> None:
    for path, method in (("/search", "POST"), ("/documents", "POST"), ("/documents/x", "PUT")):
        answer = await nobody.request(method, path, content=b"{")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert (await nobody.get("/documents", params={"limit": "many"})).status_code == 401


@pytest.mark.req("D-04")
async def test_a_tenant_cannot_read_or_change_documents_of_another(http: httpx.AsyncClient) -> None:
    await fill(http, keys=KEYS)
    other = {"Authorization": f"Bearer {token('other')}"}
    assert (await http.post("/search", json={"query": "keys"}, headers=other)).json()["hits"] == []
    assert (await http.get("/documents", headers=other)).json()["documents"] == []
    assert (await http.get("/documents/keys", headers=other)).status_code == 404
    assert (await http.delete("/documents/keys", headers=other)).status_code == 404
    assert (await http.put("/documents/keys", json={"text": "Mine."}, headers=other)).status_code == 201
    assert (await http.get("/documents/keys")).json()["text"] == KEYS["text"]


@pytest.mark.req("D-12")
async def test_a_plan_limits_results_fields_and_requests(http: httpx.AsyncClient) -> None:
    await fill(http, keys={**KEYS, "metadata": {"year": 2024, "secret": "x"}})
    mine = {"Authorization": f"Bearer {token('acme', 'small')}"}
    refused = await http.post("/search", json={"query": "keys", "top_k": 3}, headers=mine)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert (await http.get("/documents/keys", headers=mine)).json()["metadata"] == {"year": 2024}
    assert (await http.get("/documents", headers=mine)).json()["documents"][0]["metadata"] == {"year": 2024}
    limited = await http.get("/documents", headers=mine)
    assert (limited.status_code, limited.json()["error"]["code"]) == (429, "RATE_LIMITED")
    assert int(limited.headers["retry-after"]) >= 1


# --- streaming ---


@pytest.mark.req("D-12")
async def test_a_stream_has_one_line_per_hit_and_then_the_rest(http: httpx.AsyncClient) -> None:
    await fill(http, **{f"d{n:02}": {"text": f"Keys and locks, volume {n}."} for n in range(50)})
    query_fields = {"query": "keys", "top_k": 45}
    async with http.stream("POST", "/search", json=query_fields, headers={"Accept": NDJSON}) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, NDJSON)
        lines = [json.loads(line) async for line in answer.aiter_lines()]
    whole = await search_ok(http, **query_fields)
    assert [line["hit"] for line in lines[:-1]] == whole["hits"]
    done = lines[-1]["done"]
    assert done.keys() == whole.keys() - {"hits"}
    assert (done["total"], done["total_relation"]) == (whole["total"], whole["total_relation"])
    assert done["next_page_token"]


@pytest.mark.req("D-11", "D-12")
async def test_an_error_before_the_first_line_is_an_ordinary_error(http: httpx.AsyncClient) -> None:
    wrong = await http.post("/search", json={"query": "x", "top_k": 0}, headers={"Accept": NDJSON})
    assert (wrong.status_code, wrong.headers["content-type"]) == (422, "application/json")
    refused = await http.post("/search", json={"query": "x"}, headers={"Accept": NDJSON, "Authorization": "Bearer x"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "UNAUTHORIZED")


@pytest.mark.req("D-11", "D-12")
@pytest.mark.parametrize(("fault", "code"), [(Unavailable("gone"), "UNAVAILABLE"), (OSError("?"), "INTERNAL_ERROR")])
async def test_a_later_error_is_the_last_line(fault: Exception, code: str) -> None:
    async def batches() -> AsyncIterator[list[DocumentHit]]:
        yield [DocumentHit("a", 1.0, {}, "A"), DocumentHit("b", 0.5, {}, "B")]
        raise fault

    page = DocumentPage("id", [], 2, "eq", None, SearchReport())
    response = b"".join([part async for part in stream_json_lines(DocumentStream(page, batches()))])
    lines = [json.loads(line) for line in response.splitlines()]
    assert [line["hit"]["doc_id"] for line in lines[:-1]] == ["a", "b"]
    assert lines[-1]["error"].keys() == {"code", "message", "details"}
    assert lines[-1]["error"]["code"] == code


# --- health ---


@pytest.mark.req("D-06")
async def test_health_needs_no_token(nobody: httpx.AsyncClient) -> None:
    well = await nobody.get("/search/health")
    assert (well.status_code, well.json()) == (200, {"status": "ok"})


@pytest.mark.req("D-06")
async def test_health_names_the_part_that_fails(nobody: httpx.AsyncClient, app: App) -> None:
    await app.stores.items.close()
    ill = await nobody.get("/search/health")
    assert ill.status_code == 503
    assert ill.json()["error"]["details"]["adapter"] == "store"
