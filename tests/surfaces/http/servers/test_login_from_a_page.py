"""A login that a page begins and a redirect finishes, over HTTP, at a real authorization server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.fixtures.limits import set_limits
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
from toolscript.domain.profiles import ItemRules, Profile
from toolscript.domain.servers import OAuthSpec
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("G-11", "X-04")

TIMEOUT_SECONDS = 60.0
PATH = "/api/v1/servers/web/login"
OWN_PATH = "/api/v1/own-logins/shared"
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
    async with open_gateway(tmp_path / "data", web) as opened:
        yield opened


@pytest.fixture(scope="module")
async def shared_app(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory, web: ProtectedServer
) -> AsyncIterator[App]:
    """For tests that finish no login, create no key and change no server."""
    async with open_gateway(tmp_path_factory.mktemp("data"), web) as opened:
        yield opened


@asynccontextmanager
async def open_gateway(folder: Path, web: ProtectedServer) -> AsyncIterator[App]:
    settings = load_settings(variables={}, data_dir=folder, search_model="hashed-64", allowed_hosts="tools.example.com")
    registered = replace(web.make_spec(name="registered"), oauth=OAuthSpec(client_id="own", redirect_port=33418))
    async with open_app(settings, serving=True) as app:
        shared = web.make_spec(name="shared", per_user=True)
        await app.servers.gateway.apply([web.make_spec(), registered, shared, make_scripted_server("local")])
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
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
            while not any(s.name == "web" and s.state == "ready" for s in app.servers.gateway.statuses):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        called = await browser.post("/tools/web__echo", json={"text": "x"})
        assert called.status_code == 200


async def test_what_comes_with_the_redirect_is_text(shared_app: App) -> None:
    async with connect(shared_app) as browser:
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
async def test_only_the_gateways_own_page_begins_a_login(
    shared_app: App, origin: str | None, url: str, status: int
) -> None:
    async with connect(shared_app, url) as http:
        refused = await http.post(PATH, headers={"Origin": origin} if origin else {})
        assert refused.status_code == status, refused.text
        assert "toolscript login" in refused.text or origin == "https://evil.example" or "may not call" in refused.text


async def test_over_https_the_cookie_is_secure_and_the_address_is_that_of_the_page(shared_app: App) -> None:
    async with connect(shared_app, "https://tools.example.com") as http:
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


async def test_servers_that_cannot_be_logged_in_at_from_here_say_why(shared_app: App) -> None:
    async with connect(shared_app) as http:
        local = await http.post("/api/v1/servers/local/login", headers=OWN)
        assert (local.status_code, "needs no login" in local.text) == (400, True)
        fixed = await http.post("/api/v1/servers/registered/login", headers=OWN)
        assert (fixed.status_code, "http://127.0.0.1:33418/callback" in fixed.text) == (400, True)
        assert (await http.post("/api/v1/servers/nobody/login", headers=OWN)).status_code == 404


@pytest.fixture
def _read_keys_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, keys_read=60.0, keys_max_age=0.0)


async def log_in(http: httpx.AsyncClient, path: str) -> httpx.Response:
    """Begins a login and finishes it in the same browser; returns the page that it ends with."""
    begun = await http.post(path, headers=OWN)
    assert begun.status_code == 200, begun.text
    return await http.get(await asyncio.to_thread(follow_redirects, begun.json()["url"]))


async def wait_until_ready(app: App, name: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not any(s.name == name and s.state == "ready" for s in app.servers.gateway.statuses):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.usefixtures("_read_keys_every_time")
async def test_users_make_see_and_remove_their_own_logins_and_no_others(app: App) -> None:
    keys = {name: (await app.access.keys.create(name, [Scope.CALL]))[1] for name in ("ann", "bob")}
    _, admin = await app.access.keys.create("admin", [Scope.ADMIN])
    async with connect(app) as http, connect(app) as ann, connect(app) as bob:
        http.headers["X-API-Key"], ann.headers["X-API-Key"], bob.headers["X-API-Key"] = admin, keys["ann"], keys["bob"]
        assert (await log_in(http, "/api/v1/servers/shared/login")).status_code == 200
        await wait_until_ready(app, "shared")
        refused = await ann.post("/tools/shared__echo", json={"text": "x"})
        assert (refused.status_code, "toolscript login shared --user ann" in refused.text) == (503, True)
        assert (await log_in(ann, OWN_PATH)).status_code == 200
        assert (await ann.post("/tools/shared__echo", json={"text": "x"})).status_code == 200
        (mine,) = (await ann.get("/api/v1/own-logins")).json()["servers"]
        assert (mine["server"], mine["loggedIn"], mine["problem"]) == ("shared", True, None)
        assert mine["issuer"].startswith("http")
        others = (await bob.get("/api/v1/own-logins")).json()
        assert (others["user"], others["servers"][0]["loggedIn"]) == ("bob", False)
        assert (await bob.delete(OWN_PATH)).status_code == 404
        assert (await bob.post("/tools/shared__echo", json={"text": "x"})).status_code == 503
        gone = await ann.delete(OWN_PATH)
        assert (gone.status_code, gone.json()) == (200, {"server": "shared", "revoked": True})
        assert not (await ann.get("/api/v1/own-logins")).json()["servers"][0]["loggedIn"]
        assert (await ann.post("/tools/shared__echo", json={"text": "x"})).status_code == 503
        assert (await http.get("/api/v1/servers/shared/login")).json()["loggedIn"]


@pytest.mark.usefixtures("_read_keys_every_time")
async def test_own_logins_need_the_scope_call_and_that_of_the_installation_admin(app: App) -> None:
    paths = ((OWN_PATH, Scope.CALL), ("/api/v1/servers/shared/login", Scope.ADMIN))
    async with connect(app) as http:
        for scope, (path, needed) in product(Scope, paths):
            _, key = await app.access.keys.create(f"{scope.value}-{needed.value}", [scope], tenant="acme")
            state = "/api/v1/own-logins" if needed is Scope.CALL else path
            statuses = [
                (await http.request(method, url, headers=OWN | {"X-API-Key": sent})).status_code
                for sent in (key, "")
                for method, url in (("GET", state), ("POST", path), ("DELETE", path))
            ]
            allowed = [200, 200, 404]  # nobody is logged in yet
            assert statuses == [*(allowed if scope is needed else [403] * 3), 401, 401, 401], (path, scope)


async def test_without_a_name_there_is_no_own_login(shared_app: App) -> None:
    async with connect(shared_app) as http:
        assert (await http.get("/api/v1/own-logins")).json() == {"user": None, "servers": []}
        for method in ("POST", "DELETE"):
            refused = await http.request(method, OWN_PATH, headers=OWN)
            assert (refused.status_code, "without a named key" in refused.text) == (400, True)
            shared = await http.request(method, "/api/v1/own-logins/web", headers=OWN)
            assert (shared.status_code, "has one login for all" in shared.text) == (400, True)


@pytest.mark.extended
@pytest.mark.req("G-19")
@pytest.mark.usefixtures("_read_keys_every_time")
async def test_a_server_that_a_profile_hides_has_no_own_login_and_is_not_suggested(app: App) -> None:
    _, ann = await app.access.keys.create("ann", [Scope.CALL])
    app.access.profiles.replace([Profile("few", allow=ItemRules(servers=("local",)), keys=frozenset({"ann"}))])
    async with connect(app, headers={"X-API-Key": ann}) as http:
        assert (await http.get("/api/v1/own-logins")).json()["servers"] == []
        for name in ("shared", "share", "nobody"):
            refused = await http.post(f"/api/v1/own-logins/{name}", headers=OWN)
            assert (refused.status_code, refused.json()["error"]["message"]) == (404, f"no such server: {name!r}")


@pytest.mark.extended
async def test_the_installation_logs_out_and_the_server_needs_a_login_again(app: App) -> None:
    async with connect(app) as http:
        assert not (await http.get(PATH)).json()["loggedIn"]
        assert (await log_in(http, PATH)).status_code == 200
        await wait_until_ready(app, "web")
        assert (await http.get(PATH)).json()["loggedIn"]
        assert (await http.delete(PATH)).json() == {"server": "web", "revoked": True}
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not any(s.name == "web" and s.needs_login for s in app.servers.gateway.statuses):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        again = await http.delete(PATH)
        assert (again.status_code, "there is no login" in again.text) == (404, True)
        assert (await http.get("/api/v1/servers/local/login")).json()["loggedIn"] is False


@pytest.mark.extended
async def test_a_login_that_does_not_succeed_ends_with_a_page_that_says_why(
    app: App, authorization: Authorization, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(app) as browser:

        async def begin() -> str:
            begun = await browser.post(PATH, headers=OWN)
            return parse_qs(urlsplit(str(begun.json()["url"])).query)["state"][0]

        def check(page: httpx.Response, status: int, title: str, text: str) -> None:
            assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
            assert (f"<h1>{title}</h1>" in page.text, text in page.text) == (True, True), page.text

        declined = {"state": await begin(), "error": "access_denied", "iss": authorization.issuer}
        check(await browser.get("/callback", params=declined), 401, "Login cancelled", "nothing has changed")
        check(await browser.get("/callback", params=declined), 404, "This login has ended", "Begin again")
        failed = declined | {"state": await begin(), "error": "server_error"}
        check(await browser.get("/callback", params=failed), 401, "Not logged in", "refused the login: server_error")
        check(await browser.get("/callback"), 404, "This login has ended", "Begin again")
        set_limits(monkeypatch, login=0.0)
        late = await begin()
        page = await browser.get("/callback", params={"state": late, "code": "x"})
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while page.status_code != 404:
                page = await browser.get("/callback", params={"state": late, "code": "x"})
        check(page, 404, "This login has ended", "took too long")


async def test_while_the_gateway_starts_the_redirect_ends_with_a_page(shared_app: App) -> None:
    transport = httpx.ASGITransport(create_http_app(ServedApp(shared_app.settings)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3780") as browser:
        page = await browser.get("/callback", params={"state": "x", "code": "y"})
        assert (page.status_code, "<h1>Not logged in</h1>" in page.text) == (503, True)
