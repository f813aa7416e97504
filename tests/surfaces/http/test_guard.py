"""The guard: Host, Origin, and the gateway's key."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from starlette.responses import PlainTextResponse
from starlette.types import Message, Scope

from tests.servers import make_scripted_spec, serving_http
from tests.servers.gateway import run_gateway
from tests.servers.preloaded import toolscript_command
from toolscript.app.app import App
from toolscript.domain.errors import Invalid
from toolscript.domain.requests import NAMED_BY_SERVER_HEADER
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli.main import run
from toolscript.surfaces.http.app import ROUTES, create_http_app
from toolscript.surfaces.http.guard import Guard
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.http.server import HttpServer
from toolscript.surfaces.owner import is_loopback

KEY = "a-key-of-the-tests"
LOOPBACK = ["127.0.0.1", "127.0.0.1:3780", "127.9.9.9", "localhost", "localhost:80", "LocalHost", "[::1]", "[::1]:3780"]
STRANGE = [
    "evil.example",
    "evil.example:3780",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1@evil.example",
    "evil.example#localhost",
    "evil.example/localhost",
    "localhosts",
    "2130706433",
    "",
    ":3780",
]
ADDRESSES = ["192.168.1.7", "192.168.1.7:3780", "8.8.8.8", "[2001:db8::1]:3780", "[fe80::1]"]
MALFORMED = ["[::1", "[", "::1]", "[evil]", "\u2100", "a b", "\xff\xfe"]


async def answer(
    guard: Guard, headers: Mapping[str, str], path: str = "/health", method: str = "GET"
) -> tuple[int, dict[str, Any]]:
    """The status of the response, and the details of the error if it is one."""
    raw = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    scope: Scope = {"type": "http", "method": method, "path": path, "headers": raw, "query_string": b""}
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    await guard(scope, receive, send)
    body = b"".join(m.get("body", b"") for m in sent[1:])
    response = {} if body == b"let in" else json.loads(body)["error"]
    return sent[0]["status"], response


def guard(bound_to: str = "127.0.0.1", *allowed: str, origins: str = "", key: str | None = None) -> Guard:
    names = ",".join(allowed)
    settings = load_settings(variables={}, host=bound_to, allowed_hosts=names, allowed_origins=origins, api_key=key)
    return Guard(PlainTextResponse("let in"), ServedApp(settings), ROUTES)


# --- Host ---


@pytest.mark.req("X-04")
@pytest.mark.parametrize("bound_to", ["127.0.0.1", "localhost", "::1", "0.0.0.0", "192.168.1.7"])
@pytest.mark.parametrize("host", LOOPBACK)
async def test_a_name_of_this_machine_is_allowed_with_any_port(bound_to: str, host: str) -> None:
    assert await answer(guard(bound_to), {"Host": host}) == (200, {})


@pytest.mark.req("X-04")
@pytest.mark.parametrize("bound_to", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("host", STRANGE)
async def test_any_other_name_is_refused_in_every_spelling(bound_to: str, host: str) -> None:
    status, error = await answer(guard(bound_to), {"Host": host})
    assert (status, error["code"], error["details"]) == (403, "FORBIDDEN", {"field": "Host"})
    assert "TOOLSCRIPT_ALLOWED_HOSTS" in error["message"]


@pytest.mark.req("X-04")
@pytest.mark.parametrize("bound_to", ["127.0.0.1", "0.0.0.0"])
async def test_a_request_without_a_host_is_refused(bound_to: str) -> None:
    status, error = await answer(guard(bound_to), {})
    assert (status, error["details"]) == (403, {"field": "Host"})


@pytest.mark.req("X-04", "X-03")
@pytest.mark.parametrize("host", MALFORMED)
async def test_a_host_that_cannot_be_parsed_is_refused(host: str) -> None:
    status, error = await answer(guard(), {"Host": host})
    assert (status, error["details"]) == (403, {"field": "Host"})


@pytest.mark.req("X-04")
@pytest.mark.parametrize("host", ADDRESSES)
async def test_on_loopback_other_addresses_are_refused(host: str) -> None:
    assert (await answer(guard("127.0.0.1"), {"Host": host}))[0] == 403
    assert (await answer(guard("::1"), {"Host": host}))[0] == 403


@pytest.mark.req("X-04")
@pytest.mark.parametrize("host", ADDRESSES)
async def test_off_loopback_every_address_is_allowed(host: str) -> None:
    assert await answer(guard("0.0.0.0"), {"Host": host}) == (200, {})
    assert await answer(guard("::"), {"Host": host}) == (200, {})


@pytest.mark.req("X-11")
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/api/v1/servers/victim/stop"), ("POST", "/tools/victim__echo"), ("GET", "/health")]
)
async def test_a_request_that_a_server_made_a_gateway_send_is_refused_with_any_key(method: str, path: str) -> None:
    headers = {"Host": "127.0.0.1", NAMED_BY_SERVER_HEADER: "1", "X-API-Key": KEY}
    status, error = await answer(guard(key=KEY), headers, path, method)
    assert (status, error["details"]) == (403, {"field": NAMED_BY_SERVER_HEADER})


@pytest.mark.req("X-11")
async def test_a_gateway_that_wants_a_login_of_another_gateway_describes_it() -> None:
    headers = {"Host": "127.0.0.1", NAMED_BY_SERVER_HEADER: "1"}
    assert (await answer(guard(), headers, "/.well-known/oauth-protected-resource/mcp"))[0] == 200


@pytest.mark.req("X-04", "G-12")
async def test_pages_of_any_origin_may_read_where_to_log_in_except_on_loopback() -> None:
    headers, path = {"Host": "127.0.0.1", "Origin": "https://page.example"}, "/.well-known/oauth-protected-resource"
    assert (await answer(guard("0.0.0.0", key=KEY), headers, path))[0] == 200
    assert (await answer(guard("0.0.0.0", key=KEY), headers, "/health"))[0] == 403
    assert (await answer(guard(), headers, path))[0] == 403


@pytest.mark.req("X-04")
async def test_more_names_can_be_allowed_in_any_case() -> None:
    for bound_to in ("127.0.0.1", "0.0.0.0"):
        allowing = guard(bound_to, "Gateway.example", "other.example")
        for host in ("gateway.example", "gateway.example:8443", "GATEWAY.EXAMPLE", "other.example"):
            assert await answer(allowing, {"Host": host}) == (200, {}), host
        for host in ("example", "x.gateway.example", "gateway.example.evil"):
            assert (await answer(allowing, {"Host": host}))[0] == 403, host


@pytest.mark.req("X-04")
def test_loopback_names_and_addresses_are_recognized() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.1.2.3", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.example"]))


# --- Origin ---


@pytest.mark.req("X-04")
@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:3780", "http://127.0.0.1:3780"),
        ("LocalHost:3780", "http://localhost:3780"),
        ("localhost", "http://LOCALHOST"),
        ("localhost", "http://localhost:80"),
        ("[::1]:3780", "http://[::1]:3780"),
        ("localhost", "https://localhost"),  # a proxy speaks TLS
    ],
)
async def test_pages_of_the_gateway_itself_are_allowed(host: str, origin: str) -> None:
    assert await answer(guard(), {"Host": host, "Origin": origin}) == (200, {})


@pytest.mark.req("X-04")
@pytest.mark.parametrize("bound_to", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    "origin",
    ["http://localhost:5173", "http://127.0.0.1:80", "http://[::1]:3781", "http://127.0.0.1", "http://8.8.8.8"],
)
async def test_a_page_of_another_port_is_refused_unless_the_settings_allow_it(bound_to: str, origin: str) -> None:
    headers = {"Host": "127.0.0.1:3780", "Origin": origin}
    status, error = await answer(guard(bound_to), headers)
    assert (status, error["details"]) == (403, {"field": "Origin"})
    assert "TOOLSCRIPT_ALLOWED_ORIGINS" in error["message"]
    assert await answer(guard(bound_to, origins=origin.upper() + "/"), headers) == (200, {})
    assert (await answer(guard(bound_to, origins="http://localhost:1"), headers))[0] == 403


@pytest.mark.req("X-04", "X-03")
@pytest.mark.parametrize("text", ["localhost:5173", "*", "http://", "ftp://a", "http://a/b", "http://*.a", "null"])
def test_a_setting_that_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_ALLOWED_ORIGINS"):
        guard(origins=text)


@pytest.mark.req("X-04")
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "https://evil.example",
        "http://localhost.evil.example",
        "http://localhost@evil.example",
        "http://192.168.1.7",
        "file://",
        "chrome-extension://abcdef",
        "localhost",
    ],
)
async def test_pages_of_other_machines_are_refused(origin: str) -> None:
    status, error = await answer(guard(), {"Host": "127.0.0.1", "Origin": origin})
    assert (status, error["code"], error["details"]) == (403, "FORBIDDEN", {"field": "Origin"})


@pytest.mark.req("X-04", "X-03")
@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://\u2100", "\xff"])
async def test_an_origin_that_cannot_be_parsed_is_refused(origin: str) -> None:
    status, error = await answer(guard(), {"Host": "127.0.0.1", "Origin": origin})
    assert (status, error["details"]) == (403, {"field": "Origin"})


@pytest.mark.req("X-04")
async def test_pages_of_allowed_names_are_allowed() -> None:
    allowing = guard("127.0.0.1", "app.example")
    assert await answer(allowing, {"Host": "127.0.0.1", "Origin": "https://app.example:8443"}) == (200, {})
    assert (await answer(allowing, {"Host": "127.0.0.1", "Origin": "https://app.example.evil"}))[0] == 403


# --- the key ---


@pytest.mark.req("X-04")
@pytest.mark.parametrize("sent", [f"Bearer {KEY}", f"bearer {KEY}", f"BEARER  {KEY} "])
async def test_a_request_with_the_key_is_allowed(sent: str) -> None:
    assert await answer(guard(key=KEY), {"Host": "localhost", "Authorization": sent}, "/servers") == (200, {})


@pytest.mark.req("X-04")
@pytest.mark.parametrize(
    "sent",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        KEY,
        f"Basic {KEY}",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY.upper()}",
        "Bearer \xe9",
    ],
)
async def test_a_request_without_the_key_gets_an_error_that_says_how_to_send_it(sent: str | None) -> None:
    headers = {"Host": "localhost"} | ({} if sent is None else {"Authorization": sent})
    status, error = await answer(guard(key=KEY), headers, "/search")
    assert (status, error["code"], error["details"]) == (401, "UNAUTHORIZED", {"field": "Authorization"})
    assert "Authorization: Bearer KEY" in error["message"]
    assert KEY not in json.dumps(error)


@pytest.mark.req("X-04")
async def test_the_key_does_not_allow_other_names_or_pages() -> None:
    headers = {"Host": "localhost", "Authorization": f"Bearer {KEY}"}
    assert (await answer(guard(key=KEY), headers | {"Host": "evil.example"}))[0] == 403
    assert (await answer(guard(key=KEY), headers | {"Origin": "https://evil.example"}))[0] == 403


@pytest.mark.req("X-04", "G-04", "D-06")
async def test_only_public_routes_need_no_key() -> None:
    for path in ("/health", "/ready", "/search/health"):
        assert await answer(guard(key=KEY), {"Host": "localhost"}, path) == (200, {})
        assert (await answer(guard(key=KEY), {"Host": "evil.example"}, path))[0] == 403
    closed = ("/", "/servers", "/metrics", "/openapi.json", "/search", "/search/stats", "/documentsx")
    for path in (*closed, "/health/", "/health/x", "//health", "/HEALTH", "/search/health/", "//documents"):
        assert (await answer(guard(key=KEY), {"Host": "localhost"}, path))[0] == 401, path
    assert (await answer(guard(key=KEY), {"Host": "localhost"}, "/search", "PATCH"))[0] == 401


@pytest.mark.req("X-04", "D-05")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/search"),
        ("GET", "/documents"),
        ("POST", "/documents"),
        ("PUT", "/documents/x"),
        ("GET", "/documents/"),
        ("PATCH", "/documents/x"),
    ],
)
async def test_routes_with_another_access_do_not_require_the_key(method: str, path: str) -> None:
    assert await answer(guard(key=KEY), {"Host": "localhost"}, path, method) == (200, {})
    assert (await answer(guard(key=KEY), {"Host": "evil.example"}, path, method))[0] == 403
    strange = {"Host": "localhost", "Origin": "https://evil.example"}
    assert (await answer(guard(key=KEY), strange, path, method))[0] == 403


@pytest.mark.req("X-04", "D-05")
@pytest.mark.parametrize("authorization", [None, "Bearer a.token.of-a-tenant", f"Bearer {KEY}"])
async def test_the_key_may_be_sent_with_a_token(authorization: str | None) -> None:
    headers = {"Host": "localhost", "X-API-Key": KEY}
    headers |= {} if authorization is None else {"Authorization": authorization}
    assert await answer(guard(key=KEY), headers, "/mcp", "POST") == (200, {})


@pytest.mark.req("X-04")
@pytest.mark.parametrize("sent", ["", KEY[:-1], f"{KEY}x", f"Bearer {KEY}", KEY.upper(), "\xe9"])
async def test_a_wrong_key_with_a_token_is_refused(sent: str) -> None:
    headers = {"Host": "localhost", "X-API-Key": sent, "Authorization": "Bearer a.token.of-a-tenant"}
    status, error = await answer(guard(key=KEY), headers, "/mcp", "POST")
    assert (status, error["code"]) == (401, "UNAUTHORIZED")
    assert "X-API-Key: KEY" in error["message"]


# --- the real application ---


@asynccontextmanager
async def open_client(settings: Settings, app: App, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_http_app(ServedApp(settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        yield client


@pytest.mark.req("X-04", "D-11")
@pytest.mark.parametrize("header", ["Host", "Origin"])
async def test_a_malformed_header_is_a_403_with_the_envelope(app: App, header: str) -> None:
    async with open_client(app.settings, app, **{header: "http://[::1" if header == "Origin" else "[::1"}) as http:
        refused = await http.get("/search?q=x")
        assert (refused.status_code, refused.json()["error"]["details"]) == (403, {"field": header})


@pytest.mark.req("X-04")
async def test_a_missing_key_is_a_401_with_www_authenticate(app: App) -> None:
    async with open_client(replace(app.settings, api_key=KEY), app) as http:
        assert (await http.get("/servers")).headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.req("X-04")
async def test_the_settings_allow_more_names(app: App) -> None:
    async with open_client(replace(app.settings, allowed_hosts=("gateway.example",)), app) as http:
        assert (await http.get("/health", headers={"Host": "gateway.example:3780"})).status_code == 200
        assert (await http.get("/health", headers={"Origin": "https://gateway.example"})).status_code == 200
        assert (await http.get("/health", headers={"Host": "other.example"})).status_code == 403


@pytest.mark.req("X-04")
async def test_a_page_of_an_allowed_origin_may_read_responses(app: App) -> None:
    settings = replace(app.settings, allowed_origins=("http://localhost:5173",), api_key=KEY)
    origin = {"Origin": "http://localhost:5173"}
    preflight = origin | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}
    async with open_client(settings, app) as http:
        first = await http.options("/tools/x", headers=preflight)
        assert (first.status_code, first.headers["access-control-allow-headers"]) == (200, "x-api-key")
        found = await http.get("/servers", headers=origin | {"X-API-Key": KEY})
        assert (found.status_code, found.headers["access-control-allow-origin"]) == (200, "http://localhost:5173")
        assert (await http.get("/servers", headers=origin)).status_code == 401
        stranger = await http.get("/servers", headers={"Origin": "http://localhost:5174", "X-API-Key": KEY})
        assert (stranger.status_code, "access-control-allow-origin" in stranger.headers) == (403, False)


@pytest.mark.req("X-04")
async def test_a_request_with_two_hosts_is_a_400(app: App) -> None:
    async with open_client(app.settings, app) as http:
        answer = await http.get("/health", headers=[("Host", "127.0.0.1"), ("Host", "127.0.0.1")])
        assert (answer.status_code, answer.json()["error"]["details"]) == (400, {"field": "Host"})


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.mark.req("X-04", "G-08")
async def test_mcp_on_a_real_port_requires_the_key_and_an_allowed_host(app: App) -> None:
    server = HttpServer(replace(app.settings, api_key=KEY, port=0))
    server.served.current = app
    serving = asyncio.create_task(server.run())
    headers = {"Accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers) as http:
        right = {"Authorization": f"Bearer {KEY}"}
        assert (await http.post("/mcp", json=PING)).status_code == 401
        assert (await http.post("/mcp", json=PING, headers={"Authorization": "Bearer wrong"})).status_code == 401
        assert (await http.post("/mcp", json=PING, headers=right)).json()["result"] == {}
        for stranger in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            assert (await http.post("/mcp", json=PING, headers=right | stranger)).status_code == 403
    server.stop()
    await serving


# --- the command ---


@pytest.mark.req("X-04", "X-03")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "gateway.example"])
def test_a_public_address_is_refused_without_a_key(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["toolscript"])
    result = CliRunner().invoke(run, ["gateway", "start", "--host", host, "--data-dir", str(tmp_path / "data")])
    assert result.exit_code == 2
    assert f"--host {host}" in result.stderr
    assert "TOOLSCRIPT_API_KEY" in result.stderr
    assert not (tmp_path / "data").exists()


def toolscript(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [*toolscript_command(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | variables)


@pytest.mark.extended
@pytest.mark.req("X-04", "X-05")
def test_with_a_key_the_gateway_listens_everywhere_and_does_not_leak_the_key(tmp_path: Path) -> None:
    with serving_http() as web:
        servers = {"good": make_scripted_spec(), "web": {"type": "http", "url": web.http}}
        configuration, data = tmp_path / "servers.json", tmp_path / "data"
        configuration.write_text(json.dumps({"mcpServers": servers}))
        arguments = ("--host", "0.0.0.0", "--config", str(configuration), "--data-dir", str(data))
        with (
            run_gateway(tmp_path, *arguments, API_KEY=KEY, LOG_LEVEL="debug") as gateway,
            httpx.Client(base_url=gateway.url, timeout=30) as http,
        ):
            assert gateway.url.startswith("http://127.0.0.1:")
            assert "Knowledge needs a key with the scope knowledge" in gateway.output
            assert http.post("/search_knowledge", json={"query": "tides"}).status_code == 401
            assert http.get("/health").status_code == 200
            assert http.get("/servers").status_code == 401
            assert http.get("/servers", headers={"Authorization": "Bearer wrong"}).status_code == 401
            http.headers["Authorization"] = f"bearer {KEY}"
            assert {s["state"] for s in http.get("/servers").json()["servers"]} == {"ready"}
            # Servers behind the gateway get neither the key nor the caller's token.
            seen = http.post("/tools/good__env", json={"name": "TOOLSCRIPT_API_KEY"})
            assert seen.json() == {"value": None}
            assert http.post("/tools/web__authorization").json() == {"value": None}
            # Commands send the key if they have it. Without it they may use the gateway of their own folder alone.
            list_command, elsewhere = ("list-tools", "good__echo"), ("--data-dir", str(tmp_path / "elsewhere"))
            assert "echo(text: string" in toolscript(*list_command, "--data-dir", str(data)).stdout
            far_command = (*list_command, "--gateway", gateway.url, *elsewhere)
            assert "echo(text: string" in toolscript(*far_command, TOOLSCRIPT_API_KEY=KEY).stdout
            refused = toolscript(*far_command)
            assert (refused.returncode, refused.stdout) == (6, "")
            assert "set TOOLSCRIPT_API_KEY" in refused.stderr
        assert KEY not in gateway.log.read_text() + gateway.output
        assert KEY not in "".join(f.read_text(errors="replace") for f in data.glob("*.json"))
