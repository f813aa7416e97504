"""Callers that log in with OAuth: where they learn to, and what their access tokens allow over HTTP and MCP."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from tests.fixtures.serving import fill_searches, replace_parts
from tests.servers.published_keys import PublishedKeys, SigningKey, new_key
from toolscript.app.access import check_environment
from toolscript.app.app import App, local_token, open_app
from toolscript.domain.access import Scope
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import ROUTES, create_http_app
from toolscript.surfaces.http.dependencies import get_scope
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp.definitions import TOOL_SCOPES

pytestmark = pytest.mark.req("G-12", "X-04")

ISSUER, RESOURCE = "https://login.example.com", "https://tools.example.com/mcp"
METADATA = "/.well-known/oauth-protected-resource"
ACCEPT = {"Accept": "application/json, text/event-stream"}
SECRET = "a-secret-of-the-tests-that-is-long-enough"


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return new_key("ES256", "first")


@pytest.fixture(scope="module")
def keys(key: SigningKey) -> Iterator[PublishedKeys]:
    with PublishedKeys(key.public_jwk()) as published:
        yield published


@dataclass
class Gateway:
    """An application that callers log in to, a client of it, and the key of the authorization server."""

    app: App
    client: httpx.AsyncClient
    key: SigningKey

    def sign(self, *scopes: str, **claims: Any) -> str:
        """An access token as RFC 9068 describes it; None removes a claim."""
        now = int(time.time())
        given = {"iss": ISSUER, "aud": RESOURCE, "sub": "ada", "iat": now, "exp": now + 600, "scope": " ".join(scopes)}
        return self.key.sign({name: value for name, value in (given | claims).items() if value is not None})

    async def get(self, path: str, token: str | None = None) -> httpx.Response:
        return await self.client.get(path, headers={"Authorization": f"Bearer {token}"} if token else {})

    async def call(self, method: str, token: str | None, **params: object) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return await self.client.post("/mcp", json=body, headers=ACCEPT | headers)


@asynccontextmanager
async def serve_app(app: App, key: SigningKey, **settings: Any) -> AsyncIterator[Gateway]:
    app = replace_parts(app, settings=replace(app.settings, **settings))
    http = create_http_app(ServedApp(app.settings, app))
    transport = httpx.ASGITransport(http)
    async with (
        http.router.lifespan_context(http),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as c,
    ):
        yield Gateway(app, c, key)


@pytest.fixture(scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory, keys: PublishedKeys) -> AsyncIterator[App]:
    settings = load_settings(
        variables={},
        data_dir=tmp_path_factory.mktemp("oauth"),
        search_model="hashed-64",
        jwt_issuer=ISSUER,
        jwt_jwks=keys.url,
        jwt_secret=SECRET,
        oauth_resource=RESOURCE,
    )
    async with open_app(settings, serving=True) as opened:
        await opened.texts.ingest_documents.put("acme", [Document("report", "the tides of acme")])
        yield opened


@pytest.fixture
async def gateway(app: App, key: SigningKey) -> AsyncIterator[Gateway]:
    async with serve_app(app, key) as opened:
        yield opened


async def test_a_client_without_a_token_learns_where_to_log_in(gateway: Gateway) -> None:
    for refused in [await gateway.call("initialize", None), await gateway.get("/tools")]:
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == (
            'Bearer scope="search call documents knowledge", '
            'resource_metadata="https://tools.example.com/.well-known/oauth-protected-resource/mcp"'
        )
    for path in (METADATA, f"{METADATA}/mcp"):
        response = await gateway.get(path)
        assert response.json() == {
            "resource": RESOURCE,
            "authorization_servers": [ISSUER],
            "scopes_supported": ["search", "call", "documents", "knowledge"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Toolscript",
        }
    assert (await gateway.get(f"{METADATA}/other")).status_code == 404


async def test_where_callers_cannot_log_in_there_is_no_metadata(app: App, key: SigningKey) -> None:
    async with serve_app(app, key, oauth_resource=None) as gateway:
        response = await gateway.get(METADATA)
        assert response.status_code == 404
        assert "TOOLSCRIPT_OAUTH_RESOURCE" in response.json()["error"]["message"]


async def test_public_knowledge_over_mcp_needs_a_login_too_because_clients_log_in_only_when_refused(
    app: App, key: SigningKey
) -> None:
    async with serve_app(app, key, knowledge_public=True) as gateway:
        assert (await gateway.call("tools/list", None)).status_code == 401


async def test_every_route_takes_a_token_with_its_scope_and_no_other(gateway: Gateway) -> None:
    for route in ROUTES:
        scope = get_scope(route, gateway.app.settings)
        if scope is None or "{" in route.path:
            continue
        method = next(iter(route.methods or ()))
        others = gateway.sign(*(each for each in Scope if each is not scope), tenant_id="acme")
        refused = await gateway.client.request(method, route.path, headers={"Authorization": f"Bearer {others}"})
        assert refused.status_code == 403, route.path
        assert refused.json()["error"]["details"]["scope"] == scope
        challenge = refused.headers["www-authenticate"]
        assert challenge.startswith(f'Bearer error="insufficient_scope", scope="{scope}", resource_metadata="https://')
        own = {"Authorization": f"Bearer {gateway.sign(scope, tenant_id='acme')}"}
        assert (await gateway.client.request(method, route.path, headers=own)).status_code not in {401, 403}


async def test_over_mcp_a_token_lists_and_calls_the_tools_of_its_scopes(gateway: Gateway) -> None:
    await fill_searches(gateway.app, "other")
    for scope in sorted(set(TOOL_SCOPES.values())):
        listed = await gateway.call("tools/list", gateway.sign(f"toolscript:{scope}", tenant_id="acme"))
        names = {tool["name"] for tool in listed.json()["result"]["tools"]}
        of_scope = {name for name, needed in TOOL_SCOPES.items() if needed == scope}
        assert names == of_scope - {"read_skill", "run_code"}  # without agent skills, and off by default
    call = {"name": "search_documents", "arguments": {"query": "tides"}}
    found = await gateway.call("tools/call", gateway.sign("documents", tenant_id="acme"), **call)
    assert "tides of acme" in found.text
    refused = await gateway.call("tools/call", gateway.sign("search", tenant_id="acme"), **call)
    assert refused.status_code == 403, "with this status clients ask for the scope and try again"
    assert refused.headers["www-authenticate"].startswith('Bearer error="insufficient_scope", scope="documents", ')
    assert refused.json()["result"]["isError"] is True


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"scope": "openid search"}, 200),
        ({"scp": "search"}, 200),
        ({"scp": ["search"]}, 200),
        ({"scope": ["toolscript:search"]}, 200),
        ({"scope": "other:search research"}, 403),
        ({"scp": {"search": True}}, 403),
    ],
)
async def test_scopes_are_read_as_the_common_authorization_servers_write_them(
    gateway: Gateway, claims: dict[str, Any], status: int
) -> None:
    token = gateway.sign(**({"scope": None} | claims))
    assert (await gateway.get("/tools", token)).status_code == status


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"aud": "https://other.example.com/mcp"}, "audience"),
        ({"iss": "https://evil.example.com"}, "issuer"),
        ({"sub": None}, "names no user"),
        ({"sub": "a\nb"}, "names no user"),
    ],
)
async def test_a_token_for_somebody_else_or_of_somebody_else_is_refused(
    gateway: Gateway, claims: dict[str, Any], reason: str
) -> None:
    refused = await gateway.get("/tools", token := gateway.sign(*Scope, **claims))
    assert refused.status_code == 401
    assert reason in refused.json()["error"]["message"]
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    assert token not in refused.text


@pytest.mark.req("X-11")
async def test_documents_need_a_token_that_names_its_user_or_client_too(gateway: Gateway) -> None:
    nobody = await gateway.get("/documents", gateway.sign("documents", tenant_id="acme", sub=None))
    assert nobody.status_code == 401
    assert "names no user" in nobody.json()["error"]["message"]
    client = gateway.sign("documents", tenant_id="acme", sub=None, client_id="nightly")
    assert (await gateway.get("/documents", client)).status_code == 200


async def test_a_token_signed_with_another_key_or_with_the_secret_of_documents_opens_no_tools(gateway: Gateway) -> None:
    forged = replace(gateway, key=new_key("ES256", "first")).sign(*Scope)
    assert "signature" in (await gateway.get("/tools", forged)).json()["error"]["message"]
    symmetric = replace(gateway, key=SigningKey(SECRET, "HS256")).sign(*Scope, tenant_id="acme")
    refused = await gateway.get("/tools", symmetric)
    assert refused.status_code == 401
    assert "not an access token" in refused.json()["error"]["message"]
    assert (await gateway.get("/documents", symmetric)).status_code == 200


async def test_an_audience_of_the_settings_counts_instead_of_the_resource(
    app: App, key: SigningKey, keys: PublishedKeys
) -> None:
    settings = replace(app.settings, jwt_audience="api://tools", store="sqlite://", index="memory:")
    async with open_app(settings, serving=True) as other, serve_app(other, key) as gateway:
        assert (await gateway.get("/tools", gateway.sign("search", aud="api://tools"))).status_code == 200
        assert (await gateway.get("/tools", gateway.sign("search"))).status_code == 401


async def test_keys_and_the_owner_of_the_data_folder_need_no_login(gateway: Gateway) -> None:
    _, secret = await gateway.app.access.keys.create("ci", [Scope.SEARCH])
    assert (await gateway.get("/tools", secret)).status_code == 200
    assert (await gateway.get("/tools", local_token(gateway.app.access.local_key, "acme"))).status_code == 200


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"oauth_resource": "tools.example.com"}, "TOOLSCRIPT_OAUTH_RESOURCE"),
        ({"oauth_resource": "https://tools.example.com/mcp#x"}, "TOOLSCRIPT_OAUTH_RESOURCE"),
        ({"oauth_resource": RESOURCE, "jwt_issuer": ISSUER}, "TOOLSCRIPT_JWT_JWKS"),
        ({"oauth_resource": RESOURCE, "jwt_jwks": "https://login.example.com/keys"}, "TOOLSCRIPT_JWT_ISSUER"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_opened(settings: dict[str, str], named: str) -> None:
    with pytest.raises(Invalid, match=named):
        check_environment(load_settings(variables={}, **settings))
