"""Keys are created and revoked over HTTP by the signed-in owner and by administrators, and by nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.fixtures.serving import replace_parts
from toolscript.app.access import create_sign_in_code
from toolscript.app.app import App, open_app
from toolscript.domain.access import Scope
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = [pytest.mark.req("X-04", "G-19"), pytest.mark.usefixtures("read_keys_every_time")]

API_KEY = "the-key-of-the-operator-of-this-gateway"
PATH = "/api/v1/keys"
Headers = dict[str, str]


@pytest.fixture
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    settings = load_settings(variables={}, data_dir=tmp_path_factory.mktemp("keys"), search_model="hashed-64")
    async with open_app(settings, serving=True) as opened:
        yield opened


@asynccontextmanager
async def connect(app: App, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client on the gateway's own machine."""
    app = replace_parts(app, settings=replace(app.settings, **settings))
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)), client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


def sign_in(app: App) -> Headers:
    """What a page sends that `toolscript open` has signed in."""
    return {"Authorization": f"Bearer {app.access.sign_ins.redeem(create_sign_in_code(app.access.local_key))}"}


async def create(client: httpx.AsyncClient, headers: Headers, name: str, *scopes: str, **more: Any) -> httpx.Response:
    return await client.post(PATH, json={"name": name, "scopes": scopes, **more}, headers=headers)


async def test_the_signed_in_owner_creates_lists_and_revokes_a_key(app: App) -> None:
    async with connect(app) as client:
        owner = sign_in(app)
        created = await create(client, owner, "ci", "search", "documents", tenant="acme", expires_in_seconds=3600)
        assert created.status_code == 200, created.text
        secret = created.json()["key"]
        assert (await client.get("/search?q=x", headers={"X-API-Key": secret})).status_code == 200
        assert (await client.get("/documents", headers={"X-API-Key": secret})).status_code == 200
        listed = await client.get(PATH, headers=owner)
        (key,) = listed.json()["keys"]
        assert key.items() >= {"name": "ci", "state": "active", "tenant": "acme"}.items()
        assert key["expires_at"] > key["created_at"]
        assert secret.removeprefix("tsk_") not in listed.text
        assert (await create(client, owner, "ci", "search")).status_code == 409
        revoked = await client.post(f"{PATH}/ci/revoke", headers=owner)
        assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")
        assert (await client.get("/search?q=x", headers={"X-API-Key": secret})).status_code == 401
        assert (await client.post(f"{PATH}/nobody/revoke", headers=owner)).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a b", "scopes": ["search"]},
        {"name": "x", "scopes": ["everything"]},
        {"name": "x", "scopes": ["search"], "expires_in_seconds": 1},
        {"name": "x", "scopes": ["search"], "admin": True},
    ],
    ids=str,
)
async def test_bad_requests_create_no_key(app: App, body: dict[str, Any]) -> None:
    async with connect(app) as client:
        assert (await client.post(PATH, json=body, headers=sign_in(app))).status_code in {400, 422}
    assert await app.access.keys.list_all() == []


async def test_callers_without_credentials_and_ordinary_keys_manage_no_keys(app: App) -> None:
    async with connect(app) as client:
        page = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
        for headers in ({}, page):
            assert (await create(client, headers, "mine", "search")).status_code == 403
        others = [scope for scope in Scope if scope is not Scope.ADMIN]
        _, ordinary = await app.access.keys.create("ordinary", others, tenant="acme")
        for headers in ({}, page, {"X-API-Key": ordinary}):
            assert (await create(client, headers, "mine", "search")).status_code == 403
            assert (await client.get(PATH, headers=headers)).status_code == 403
            assert (await client.post(f"{PATH}/ordinary/revoke", headers=headers)).status_code == 403
    assert [(key.name, key.revoked_at) for key in await app.access.keys.list_all()] == [("ordinary", None)]


async def test_an_administrators_key_gives_no_scope_that_it_lacks_and_no_documents(app: App) -> None:
    _, secret = await app.access.keys.create("admin", [Scope.ADMIN, Scope.SEARCH, Scope.DOCUMENTS], tenant="acme")
    admin = {"X-API-Key": secret}
    async with connect(app) as client:
        for scope in ("call", "knowledge", "metrics", "documents"):
            refused = await create(client, admin, "more", "search", scope, tenant="other")
            assert refused.status_code == 403, scope
            assert refused.json()["error"]["details"] == {"scopes": [scope]}
        assert (await create(client, admin, "helper", "search", "admin")).status_code == 200
        assert (await client.post(f"{PATH}/helper/revoke", headers=admin)).status_code == 200
    async with connect(app, api_key=API_KEY) as client:
        operator = {"X-API-Key": API_KEY}
        assert (await create(client, operator, "app", "documents", tenant="acme")).status_code == 200
