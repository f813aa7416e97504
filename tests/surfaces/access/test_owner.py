"""The owner of a machine uses its gateway without a key, also after keys were created; others do not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.serving import replace_parts
from toolscript.app.access import create_sign_in_code
from toolscript.app.app import App, open_app
from toolscript.domain.access import Scope
from toolscript.domain.documents import Document
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.owner import PROXY_HEADERS

pytestmark = [pytest.mark.req("X-04", "G-19"), pytest.mark.usefixtures("read_keys_every_time")]

OWN = ("127.0.0.1", 50_000)
ROUTES: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/search?q=x", {}),
    ("GET", "/servers", {}),
    ("GET", "/documents/report", {}),
    ("POST", "/search", {"json": {"query": "tides"}}),
    ("POST", "/search_knowledge", {"json": {"query": "tides"}}),
    ("POST", "/mcp", {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}),
]


@pytest.fixture(scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """An application with a key, and with a document of the tenant of the settings."""
    settings = load_settings(variables={}, data_dir=tmp_path_factory.mktemp("owner"), search_model="hashed-64")
    async with open_app(settings, serving=True) as opened:
        await opened.texts.ingest_documents.put(settings.tenant, [Document("report", "the tides of this machine")])
        await opened.access.keys.create("me", [Scope.DOCUMENTS], tenant="acme")
        yield opened


@asynccontextmanager
async def connect(app: App, client: tuple[str, int] = OWN, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = replace_parts(app, settings=replace(app.settings, **settings))
    http = create_http_app(ServedApp(app.settings, app))
    transport = httpx.ASGITransport(http, client=client)
    async with (
        http.router.lifespan_context(http),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as opened,
    ):
        yield opened


async def list_statuses(http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> set[int]:
    accepted = {"Accept": "application/json, text/event-stream"} | dict(headers or {})
    return {(await http.request(method, path, headers=accepted, **body)).status_code for method, path, body in ROUTES}


@pytest.mark.req("D-01", "K-01")
async def test_on_loopback_the_owner_stays_in_after_a_key_was_created(app: App) -> None:
    async with connect(app) as http:
        assert await list_statuses(http) == {200}
        found = (await http.post("/search", json={"query": "tides"})).json()
        assert [hit["doc_id"] for hit in found["hits"]] == ["report"]
        page = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
        assert await list_statuses(http, page) == {200}


async def test_a_key_of_another_tenant_is_answered_with_its_documents_alone(app: App) -> None:
    _, secret = await app.access.keys.create("app", [Scope.DOCUMENTS], tenant="acme")
    async with connect(app) as http:
        assert (await http.get("/documents/report", headers={"X-API-Key": secret})).status_code == 404
        assert (await http.get("/search?q=x", headers={"X-API-Key": secret})).status_code == 403
        for headers in ({"X-API-Key": "tsk_wrong"}, {"Authorization": "Bearer tsk_wrong"}):
            assert await list_statuses(http, headers) == {401}


@pytest.mark.parametrize(
    "headers",
    [
        *({name: "192.0.2.1"} for name in ["x-forwarded-for", *sorted(PROXY_HEADERS)]),
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
async def test_what_a_proxy_passes_on_or_another_page_sends_is_not_the_owners(
    app: App, headers: dict[str, str]
) -> None:
    async with connect(app) as http:
        assert await list_statuses(http, headers) == {401}


@pytest.mark.parametrize(
    "settings",
    [
        {"require_key": True},
        {"api_key": "k" * 32},
        {"jwt_secret": "s" * 32},
        {"allowed_hosts": ("gateway.example",)},
        {"environment": "production"},
        {"host": "0.0.0.0"},
    ],
    ids=str,
)
async def test_where_settings_ask_for_credentials_or_name_others_the_owner_needs_a_key(
    app: App, settings: dict[str, Any]
) -> None:
    async with connect(app, **settings) as http:
        assert await list_statuses(http) == {401}


async def test_another_machine_needs_a_key(app: App) -> None:
    async with connect(app, ("192.0.2.1", 50_000)) as http:
        assert await list_statuses(http) == {401}


async def test_a_proxy_that_names_itself_nowhere_is_known_by_its_version_of_http(app: App) -> None:
    class Nginx(httpx.ASGITransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            served = self.app

            async def answer(scope: Any, receive: Any, send: Any) -> None:
                await served({**scope, "http_version": "1.0"}, receive, send)

            return await httpx.ASGITransport(answer, client=OWN).handle_async_request(request)

    transport = Nginx(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        assert await list_statuses(http) == {401}


async def test_keys_can_be_required_before_any_was_created(tmp_path: Path) -> None:
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64")
    async with open_app(settings) as app, connect(app, require_key=True) as http:
        assert await list_statuses(http) == {401}


@pytest.mark.req("W-02")
async def test_a_link_signs_the_owner_in_once(app: App) -> None:
    code = create_sign_in_code(app.access.local_key)
    async with connect(app, require_key=True) as http:
        assert (await http.get("/search?q=x", headers={"Authorization": f"Bearer {code}"})).status_code == 401
        answer = (await http.post("/api/v1/sign-in", json={"code": code})).json()
        assert await list_statuses(http, {"Authorization": f"Bearer {answer['token']}"}) == {200}
        strange = create_sign_in_code("another key of at least thirty-two bytes")
        for refused in (code, strange, answer["token"], "x"):
            response = await http.post("/api/v1/sign-in", json={"code": refused})
            assert response.status_code == 403
            assert "toolscript open" in response.json()["error"]["message"]
