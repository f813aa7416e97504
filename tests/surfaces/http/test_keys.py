"""Named keys over HTTP: each opens the routes of its scopes and no other."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from tests.fixtures.limits import set_limits
from tests.fixtures.serving import replace_parts
from toolscript.app.app import App, local_token, open_app
from toolscript.domain.access import Scope
from toolscript.domain.documents import Document
from toolscript.services.access.keys import Keys
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import ROUTES, create_http_app
from toolscript.surfaces.http.dependencies import get_scope
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = [pytest.mark.req("X-04", "G-19"), pytest.mark.usefixtures("read_keys_every_time")]

SECRET = "a-secret-of-the-tests-that-is-long-enough"
API_KEY = "the-key-of-the-operator-of-this-gateway"


@dataclass
class Gateway:
    """An application, a client of it, and a key for each scope."""

    app: App
    client: httpx.AsyncClient
    secrets: dict[Scope, str] = field(default_factory=dict)

    async def send(self, method: str, path: str, key: str | None = None, **request: Any) -> httpx.Response:
        headers = {"X-API-Key": key} if key else {}
        return await self.client.request(method, path, headers=headers | request.pop("headers", {}), **request)


@asynccontextmanager
async def serve_app(app: App, **settings: Any) -> AsyncIterator[Gateway]:
    """A gateway with the application and other settings."""
    app = replace_parts(app, settings=replace(app.settings, **settings))
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield Gateway(app, client)


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    folder = tmp_path_factory.mktemp("keys")
    settings = load_settings(variables={}, data_dir=folder, search_model="hashed-64", jwt_secret=SECRET)
    async with open_app(settings, serving=True) as app:
        await app.texts.ingest_documents.put("acme", [Document("report", "a report of acme")])
        await app.texts.ingest_documents.put("other", [Document("report", "a report of another tenant")])
        secrets = {scope: (await app.access.keys.create(scope.value, [scope], tenant="acme"))[1] for scope in Scope}
        async with serve_app(app) as opened:
            opened.secrets = secrets
            yield opened


async def test_every_route_takes_the_key_of_its_scope_and_no_other(gateway: Gateway) -> None:
    async with serve_app(gateway.app) as opened:
        for route, method, scope in product(ROUTES, ("GET", "POST", "PUT", "DELETE"), Scope):
            needed = get_scope(route, opened.app.settings)
            if needed is None or method not in (route.methods or ()) or route.path == "/api/v1/sync":
                continue
            path = re.sub(r"\{\w+\}", "1", route.path_format)
            response = await opened.send(method, path, gateway.secrets[scope], content=b"not json")
            if scope is needed:
                assert response.status_code not in {401, 403, 500}, (method, path, response.text)
                continue
            error = response.json()["error"]
            assert (response.status_code, error["code"]) == (403, "FORBIDDEN"), (method, path, scope)
            assert error["details"] == {"scope": needed.value}
            assert f"lacks the scope {needed}" in error["message"]


def test_no_other_route_creates_or_lists_keys() -> None:
    found = {route.path for route in ROUTES if "key" in f"{route.path} {route.name}".lower()}
    assert found == {"/api/v1/keys", "/api/v1/keys/{name}/revoke"}


async def test_once_a_key_exists_requests_need_one(gateway: Gateway, tmp_path: Path) -> None:
    for path in ("/search?q=x", "/tools", "/servers", "/metrics", "/openapi.json"):
        assert (await gateway.send("GET", path)).status_code == 401, path
    for path in ("/health", "/ready", "/search/health"):
        assert (await gateway.send("GET", path)).status_code == 200, path
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64")
    async with open_app(settings) as app, serve_app(app) as opened:
        assert (await opened.send("GET", "/search?q=x")).status_code == 200


async def test_unknown_expired_and_revoked_keys_get_the_same_answer(gateway: Gateway) -> None:
    keys = gateway.app.access.keys
    past = Keys(gateway.app.stores.keys, clock=lambda: time.time() - 60)
    _, expired = await past.create("expired", [Scope.SEARCH, Scope.DOCUMENTS], tenant="acme", expires_in=30)
    _, revoked = await keys.create("revoked", [Scope.SEARCH, Scope.DOCUMENTS], tenant="acme")
    assert (await gateway.send("GET", "/search?q=x", revoked)).status_code == 200
    assert (await gateway.send("GET", "/documents", revoked)).status_code == 200
    await keys.revoke("revoked")
    for path in ("/search?q=x", "/documents"):
        for how in ("X-API-Key", "Authorization"):
            answers = set()
            for secret in (expired, revoked, "tsk_" + "x" * 43):
                value = f"Bearer {secret}" if how == "Authorization" else secret
                response = await gateway.send("GET", path, headers={how: value})
                assert response.headers["WWW-Authenticate"] == "Bearer"
                answers.add((response.status_code, response.text))
            assert [status for status, _ in answers] == [401], (path, how)


async def test_a_key_works_in_both_headers_and_in_no_other_place(gateway: Gateway) -> None:
    key = gateway.secrets[Scope.SEARCH]
    assert (await gateway.send("GET", "/search?q=x", headers={"X-API-Key": key})).status_code == 200
    assert (await gateway.send("GET", "/search?q=x", headers={"Authorization": f"bearer {key}"})).status_code == 200
    for headers in ({"Authorization": key}, {"Authorization": f"Basic {key}"}, {"Cookie": f"key={key}"}):
        assert (await gateway.send("GET", "/search?q=x", headers=headers)).status_code == 401
    assert (await gateway.send("GET", f"/search?q=x&key={key}&api_key={key}")).status_code == 401


async def test_the_operators_key_has_every_scope_beside_named_keys(gateway: Gateway) -> None:
    async with serve_app(gateway.app, api_key=API_KEY) as opened:
        for path in ("/search?q=x", "/servers", "/metrics", "/api/v1/skills/suggestions", "/openapi.json"):
            assert (await opened.send("GET", path, API_KEY)).status_code == 200, path
        assert (await opened.send("POST", "/tools/none__such", API_KEY)).status_code == 404
        assert (await opened.send("GET", "/search?q=x", gateway.secrets[Scope.SEARCH])).status_code == 200
        assert (await opened.send("GET", "/documents", API_KEY)).status_code == 401


@pytest.mark.req("D-10")
async def test_probes_and_metrics_can_be_had_without_the_right_to_call_tools(gateway: Gateway) -> None:
    key = gateway.secrets[Scope.METRICS]
    assert (await gateway.send("GET", "/metrics", key)).status_code == 200
    assert (await gateway.send("GET", "/ready", key)).status_code == 200
    for method, path in (("POST", "/tools/none__such"), ("GET", "/tools"), ("GET", "/servers"), ("GET", "/documents")):
        assert (await gateway.send(method, path, key)).status_code == 403, path


@pytest.mark.req("D-04", "D-05")
async def test_a_key_for_documents_opens_those_of_its_tenant(gateway: Gateway) -> None:
    key = gateway.secrets[Scope.DOCUMENTS]
    for headers in ({"X-API-Key": key}, {"Authorization": f"Bearer {key}"}):
        headers |= {"X-Tenant": "other"}
        response = await gateway.send("GET", "/documents/report", headers=headers)
        assert response.json()["text"] == "a report of acme"
    token = jwt.encode({"tenant_id": "other", "exp": time.time() + 600}, SECRET, algorithm="HS256")
    both = {"X-API-Key": key, "Authorization": f"Bearer {token}"}
    response = await gateway.send("GET", "/documents/report", headers=both)
    assert response.json()["text"] == "a report of another tenant"


@pytest.mark.req("D-12")
async def test_the_plan_of_a_key_limits_its_requests(tmp_path: Path) -> None:
    plans = tmp_path / "plans.toml"
    plans.write_text("[plans.slow]\nrequests_per_minute = 2\n")
    settings = load_settings(variables={}, data_dir=tmp_path / "data", search_model="hashed-64", plans=plans)
    async with open_app(settings) as app, serve_app(app) as opened:
        _, secret = await app.access.keys.create("slow", [Scope.DOCUMENTS], tenant="acme", plan="slow")
        statuses = [(await opened.send("GET", "/documents", secret)).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


@pytest.mark.req("K-03")
async def test_knowledge_needs_a_key_once_one_exists_unless_the_settings_make_it_public(
    gateway: Gateway, tmp_path: Path
) -> None:
    query = {"query": "tides"}
    async with serve_app(gateway.app, knowledge_public=True) as public:
        assert (await public.send("POST", "/search_knowledge", json=query)).status_code == 200
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64")
    async with open_app(settings) as app, serve_app(app) as without_keys:
        assert (await without_keys.send("POST", "/search_knowledge", json=query)).status_code == 200
    async with serve_app(gateway.app) as closed:
        assert (await closed.send("POST", "/search_knowledge", json=query)).status_code == 401
        refused = await closed.send("POST", "/search_knowledge", gateway.secrets[Scope.CALL], json=query)
        assert (refused.status_code, refused.json()["error"]["details"]) == (403, {"scope": "knowledge"})
        assert (await closed.send("POST", "/search_knowledge", gateway.secrets[Scope.KNOWLEDGE], json=query)).is_success
        owner = {"Authorization": f"Bearer {local_token(closed.app.access.local_key, 'acme')}"}
        assert (await closed.send("POST", "/search_knowledge", headers=owner, json=query)).status_code == 200
        document = (await closed.send("GET", "/openapi.json", gateway.secrets[Scope.METRICS])).json()
    assert document["paths"]["/search_knowledge"]["post"]["security"] == [{"key": ["knowledge"]}, {}]


async def test_logs_and_events_have_the_name_of_the_key_and_never_the_key(lines: io.StringIO, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    settings = load_settings(
        variables={}, data_dir=tmp_path / "data", search_model="hashed-64", api_key=API_KEY, events=str(file)
    )
    async with open_app(settings) as app, serve_app(app) as opened:
        _, search = await app.access.keys.create("reader", [Scope.SEARCH])
        _, documents = await app.access.keys.create("app", [Scope.DOCUMENTS], tenant="acme")
        await opened.send("GET", "/search?q=x", search)
        await opened.send("POST", "/tools/none__such", search)
        await opened.send("GET", "/servers", API_KEY)
        await opened.send("GET", "/servers", f"{search}x")
        await opened.send("POST", "/search", documents, json={"query": "x", "search_type": "keyword"})
    written = lines.getvalue()
    requests = [line for line in map(json.loads, written.splitlines()) if line["event"] == "request"]
    names = [(line["route"], line["status"], line.get("caller")) for line in requests]
    assert names == [
        ("/search", 200, "reader"),
        ("/tools/{tool_id}", 403, "reader"),
        ("/servers", 200, "TOOLSCRIPT_API_KEY"),
        ("/servers", 401, None),
        ("/search", 200, "app"),
    ]
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(event["type"], event["caller"]) for event in events] == [
        ("tools.search", "reader"),
        ("access.refused", "reader"),
        ("access.refused", "127.0.0.1"),
        ("documents.search", "app"),
    ]
    for secret in (search, documents, API_KEY):
        assert secret not in written + file.read_text()


async def test_while_the_gateway_starts_a_named_key_is_neither_accepted_nor_refused(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, open_app=0.01)
    served = ServedApp(gateway.app.settings)
    transport = httpx.ASGITransport(create_http_app(served))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        key = {"X-API-Key": gateway.secrets[Scope.SEARCH]}
        assert (await http.get("/search?q=x", headers=key)).status_code == 503
        assert (await http.get("/health")).status_code == 200


async def test_a_request_without_a_key_that_ends_after_the_start_of_the_gateway_is_not_carried_out(
    gateway: Gateway,
) -> None:
    served = ServedApp(gateway.app.settings)

    async def send_body() -> AsyncIterator[bytes]:
        served.current = gateway.app
        yield b"{}"

    transport = httpx.ASGITransport(create_http_app(served))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        assert (await http.post("/api/v1/skills", content=send_body())).status_code == 503
