"""Limits of a profile: each of its callers has its own, also users who log in with OAuth."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import make_scripted_server
from tests.servers.published_keys import PublishedKeys, new_key
from toolscript.app.app import App, open_app
from toolscript.domain.access import CallLimit, Scope
from toolscript.domain.profiles import DEFAULT_PROFILE, Profile
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("G-12", "G-13", "G-19")

ISSUER, RESOURCE = "https://login.example.com", "https://tools.example.com/mcp"
MCP_HEADERS = {"Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def open_client(folder: Path, **settings: Any) -> AsyncIterator[tuple[App, httpx.AsyncClient]]:
    chosen = load_settings(variables={}, data_dir=folder, search_model="hashed-64", **settings)
    async with open_app(chosen, serving=True) as app:
        await app.servers.gateway.apply([make_scripted_server()])
        await app.servers.gateway.settle(60)
        http = create_http_app(served := ServedApp(chosen, app))
        served.mark_ready()
        async with (
            http.router.lifespan_context(http),
            httpx.AsyncClient(transport=httpx.ASGITransport(http), base_url="http://127.0.0.1") as client,
        ):
            yield app, client


async def call(client: httpx.AsyncClient, token: str) -> httpx.Response:
    return await client.post("/tools/scripted__echo", json={"text": "a"}, headers={"Authorization": f"Bearer {token}"})


async def call_over_mcp(client: httpx.AsyncClient, token: str, path: str = "/mcp") -> str:
    arguments = {"tool_id": "scripted__echo", "arguments": {"text": "a"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "call_tool", "arguments": arguments}}
    answer = await client.post(path, json=body, headers=MCP_HEADERS | {"Authorization": f"Bearer {token}"})
    return str(answer.json()["result"]["content"][0]["text"])


async def test_each_user_who_logged_in_has_a_limit_whichever_token_surface_or_profile_is_used(tmp_path: Path) -> None:
    key = new_key("ES256", "first")

    def sign(subject: str, **claims: Any) -> str:
        now = int(time.time())
        given = {"iss": ISSUER, "aud": RESOURCE, "sub": subject, "iat": now, "exp": now + 600, "scope": "call search"}
        return key.sign(given | claims)

    with PublishedKeys(key.public_jwk()) as keys:
        login = {"jwt_issuer": ISSUER, "jwt_jwks": keys.url, "oauth_resource": RESOURCE}
        async with open_client(tmp_path, **login) as (app, client):
            staff = Profile("staff", claims=(("groups", frozenset({"staff"})),))
            twice = CallLimit(per_minute=2)
            app.access.profiles.replace([Profile(DEFAULT_PROFILE, limit=twice), Profile("other", limit=twice), staff])
            assert (await call(client, sign("ada"))).status_code == 200
            another = await call_over_mcp(client, sign("ada", jti="another token"), "/mcp/other")
            assert another == '{"text": "a"}'
            refused = await call(client, sign("ada", jti="a third one"))
            assert refused.status_code == 429
            sentence = "calls of oauth:ada are limited to 2 a minute: try again in "
            assert refused.json()["error"]["message"].startswith(sentence)
            assert (await call_over_mcp(client, sign("ada"))).startswith(sentence)
            assert (await call_over_mcp(client, sign("ada"), "/mcp/other")).startswith(sentence)
            assert (await call(client, sign("ben"))).status_code == 200
            members = [await call(client, sign("eve", groups=["staff"])) for _ in range(5)]
            assert [each.status_code for each in members] == [200] * 5


async def test_each_key_of_a_profile_has_a_limit_beside_its_own(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (app, client):
        _, one = await app.access.keys.create("one", [Scope.CALL])
        _, two = await app.access.keys.create("two", [Scope.CALL], limit=CallLimit(per_minute=1))
        app.access.profiles.replace([Profile("p", limit=CallLimit(per_minute=2), keys=frozenset({"one", "two"}))])
        assert [(await call(client, one)).status_code for _ in range(3)] == [200, 200, 429]
        assert [(await call(client, two)).status_code for _ in range(2)] == [200, 429]
        assert "with the key two are limited to 1 a minute" in (await call(client, two)).text
