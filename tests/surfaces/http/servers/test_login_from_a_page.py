"""A login that a page begins and a redirect finishes, over HTTP, at a real authorization server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import make_scripted_server
from tests.servers.logins import (
    Authorization,
    ProtectedServer,
    follow_redirects,
    serving_authorization,
    serving_protected,
)
from toolscript.app.app import App, open_app
from toolscript.domain.access import Scope
from toolscript.domain.servers import OAuthSpec
from toolscript.services.access import keys
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("G-11", "X-04")

TIMEOUT_SECONDS = 60.0
PATH = "/api/v1/servers/web/login"
OWN = {"Origin": "http://127.0.0.1:3780"}


@pytest.fixture(scope="module")
def authorization() -> Iterator[Authorization]:
    with serving_authorization(ttl=3600) as server:
        yield server


@pytest.fixture(scope="module")
def web(authorization: Authorization) -> Iterator[ProtectedServer]:
    with serving_protected(authorization.issuer) as server:
        yield server


@pytest.fixture
async def app(tmp_path: Path, web: ProtectedServer) -> AsyncIterator[App]:
    settings = load_settings(
        variables={}, data_dir=tmp_path / "data", search_model="hashed-64", allowed_hosts="tools.example.com"
    )
    registered = replace(web.make_spec(name="registered"), oauth=OAuthSpec(client_id="own", redirect_port=33418))
    async with open_app(settings, serving=True) as app:
        shared = web.make_spec(name="shared", per_user=True)
        await app.gateway.apply([web.make_spec(), registered, shared, make_scripted_server("local")])
        await app.gateway.settle(TIMEOUT_SECONDS)
        yield app


def connect(app: App, url: str = "http://127.0.0.1:3780", **options: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    return httpx.AsyncClient(transport=transport, base_url=url, timeout=TIMEOUT_SECONDS, **options)


async def test_a_login_is_begun_and_finished_in_one_browser_and_the_server_connects(app: App) -> None:
    async with connect(app) as browser, connect(app) as other:
        begun = await browser.post(PATH, headers=OWN)
        assert begun.status_code == 200, begun.text
        cookie = begun.headers["set-cookie"]
        for part in ("HttpOnly", "SameSite=lax", "Path=/callback", "Max-Age=600"):
            assert part in cookie
        assert "Secure" not in cookie
        back = await asyncio.to_thread(follow_redirects, begun.json()["url"])
        assert back.startswith("http://127.0.0.1:3780/callback?")
        stolen = await other.get(back)
        assert (stolen.status_code, "begun in another browser" in stolen.text) == (403, True)
        done = await browser.get(back)
        assert (done.status_code, "logged in at web" in done.text) == (200, True)
        assert done.headers["referrer-policy"] == "no-referrer"
        assert done.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in done.headers["content-security-policy"]
        again = await browser.get(back)
        assert again.status_code == 404
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not any(s.name == "web" and s.state == "ready" for s in app.gateway.statuses):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        called = await browser.post("/tools/web__echo", json={"text": "x"})
        assert called.status_code == 200


async def test_what_comes_with_the_redirect_is_text(app: App) -> None:
    async with connect(app) as browser:
        answer = await browser.get("/callback", params={"state": "<script>alert(1)</script>", "error": "<b>"})
        assert (answer.status_code, "<b>" in answer.text) == (404, False)
        assert "alert(1)" not in answer.text


@pytest.mark.parametrize(
    ("origin", "url", "status"),
    [
        (None, "http://127.0.0.1:3780", 403),
        ("https://evil.example", "http://127.0.0.1:3780", 403),
        ("http://127.0.0.1:9999", "http://127.0.0.1:3780", 403),
        ("http://tools.example.com", "http://tools.example.com", 400),
    ],
    ids=["a program", "another page", "another port", "no encryption"],
)
async def test_only_the_gateways_own_page_begins_a_login(app: App, origin: str | None, url: str, status: int) -> None:
    async with connect(app, url) as http:
        refused = await http.post(PATH, headers={"Origin": origin} if origin else {})
        assert refused.status_code == status, refused.text
        assert "toolscript login" in refused.text or origin == "https://evil.example" or "may not call" in refused.text


async def test_over_https_the_cookie_is_secure_and_the_address_is_that_of_the_page(app: App) -> None:
    async with connect(app, "https://tools.example.com") as http:
        begun = await http.post(PATH, headers={"Origin": "https://tools.example.com"})
        assert begun.status_code == 200, begun.text
        assert "Secure" in begun.headers["set-cookie"]
        assert "redirect_uri=https%3A%2F%2Ftools.example.com%2Fcallback" in begun.json()["url"]


async def test_a_server_that_waits_for_a_login_can_be_stopped(app: App) -> None:
    async with connect(app) as http:
        assert (await http.get("/ready")).json()["servers"]["needs_login"] >= 1
        stopped = (await http.post("/api/v1/servers/web/stop")).json()
        assert (stopped["state"], stopped["needsLogin"]) == ("stopped", False)
        assert (await http.get("/ready")).json()["servers"]["stopped"] == 1


async def test_servers_that_cannot_be_logged_in_at_from_here_say_why(app: App) -> None:
    async with connect(app) as http:
        local = await http.post("/api/v1/servers/local/login", headers=OWN)
        assert (local.status_code, "needs no login" in local.text) == (400, True)
        fixed = await http.post("/api/v1/servers/registered/login", headers=OWN)
        assert (fixed.status_code, "http://127.0.0.1:33418/callback" in fixed.text) == (400, True)
        assert (await http.post("/api/v1/servers/nobody/login", headers=OWN)).status_code == 404


@pytest.fixture
def _read_keys_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"READ_SECONDS": 60.0, "MAX_AGE_SECONDS": 0.0, "MAX_AGE_FOR_UNKNOWN_SECONDS": 0.0}.items():
        monkeypatch.setattr(keys, name, seconds)


@pytest.mark.usefixtures("_read_keys_every_time")
async def test_a_user_logs_in_for_calls_with_the_own_key(app: App) -> None:
    path = "/api/v1/servers/shared/login"
    async with connect(app) as http:
        refused = await http.post(path, params={"own": True}, headers=OWN)
        assert (refused.status_code, "without a named key" in refused.text) == (400, True)
        _, ann = await app.keys.create("ann", [Scope.ADMIN, Scope.CALL, Scope.SEARCH])
        http.headers["X-API-Key"] = ann
        assert (await http.post(PATH, params={"own": True}, headers=OWN)).status_code == 400
        for own in (False, True):
            begun = await http.post(path, params={"own": own}, headers=OWN)
            assert (await http.get(await asyncio.to_thread(follow_redirects, begun.json()["url"]))).status_code == 200
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not any(s.name == "shared" and s.state == "ready" for s in app.gateway.statuses):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            called = await http.post("/tools/shared__echo", json={"text": "x"})
            assert called.status_code == (200 if own else 503), called.text


@pytest.mark.usefixtures("_read_keys_every_time")
async def test_beginning_a_login_needs_the_scope_admin(app: App) -> None:
    _, weak = await app.keys.create("weak", [Scope.SEARCH, Scope.CALL])
    _, strong = await app.keys.create("strong", [Scope.ADMIN])
    async with connect(app) as http:
        assert (await http.post(PATH, headers=OWN)).status_code == 401
        assert (await http.post(PATH, headers=OWN | {"X-API-Key": weak})).status_code == 403
        assert (await http.post(PATH, headers=OWN | {"X-API-Key": strong})).status_code == 200
