"""What a server may name for its login: no address further inside than its own, no redirect there, and no answer
without end."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.fixtures.http_services import HttpDouble
from tests.fixtures.limits import set_limits
from tests.servers.logins import UserWithBrowser, recording_requests
from toolscript.adapters.mcp.oauth.servers import OAuthServers
from toolscript.adapters.outgoing import addresses
from toolscript.domain.errors import LoginDeclined, ToolscriptError, Unavailable, UpstreamFailed
from toolscript.domain.logins import Login
from toolscript.domain.requests import NAMED_BY_SERVER_HEADER
from toolscript.domain.servers import ServerSpec, Transport

pytestmark = pytest.mark.req("X-11")

# An address of this machine that stands for one on the internet.
OUTSIDE, INTERNET = "127.0.0.2", ipaddress.ip_address("8.8.8.8")
PATH = "/api/v1/servers/victim/stop"


class HostileServer(HttpDouble):
    """A server, and its authorization server, which name whatever address a test sets for a `role`."""

    def __init__(self, host: str = OUTSIDE) -> None:
        super().__init__(host)
        self.named: dict[str, str] = {}
        self.redirect: str | None = None

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        if request.path == "/mcp":
            metadata = self.named.get("resource_metadata", f"{self.root}/.well-known/oauth-protected-resource/mcp")
            self.send(request, 401, b"{}", {"WWW-Authenticate": f'Bearer resource_metadata="{metadata}"'})
        elif self.redirect:
            self.send(request, 307, b"x" * 100, {"Location": self.redirect, "Content-Length": "100"})
        elif "oauth-protected-resource" in request.path:
            listed = self.named.get("authorization_servers", self.root)
            answer = {"resource": f"{self.root}/mcp", "authorization_servers": [listed]}
            self.send(request, 200, json.dumps(answer).encode())
        elif "oauth-authorization-server" in request.path:
            self.send(request, 200, json.dumps(self._describe()).encode())
        elif request.path == "/register":
            client = {**json.loads(body), "client_id": "toolscript"}
            self.send(request, 201, json.dumps(client).encode())
        else:
            self.send(request, 404, b"{}")

    def _describe(self) -> dict[str, Any]:
        endpoints = {
            "authorization_endpoint": f"{self.root}/authorize",
            "token_endpoint": f"{self.root}/token",
            "registration_endpoint": f"{self.root}/register",
        }
        about = {"response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}
        return {"issuer": self.root, **about, **endpoints, **self.named}


class UserAtOnce(UserWithBrowser):
    """Comes back with a code without a visit."""

    async def visit(self, url: str) -> str:
        state = dict(part.split("=") for part in url.partition("?")[2].split("&"))["state"]
        return f"{self.redirect_uri}?code=1&state={state}"


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileServer]:
    original = addresses._unwrap
    monkeypatch.setattr(addresses, "_unwrap", lambda ip: INTERNET if str(ip) == OUTSIDE else original(ip))
    with HostileServer() as server:
        yield server


class UserWhoLooks(UserAtOnce):
    """Keeps the address that it is sent to."""

    address = ""

    async def visit(self, url: str) -> str:
        self.address = url
        raise LoginDeclined("seen enough")


async def test_a_server_cannot_name_an_address_with_parameters_of_ours_or_a_fragment_that_hides_them(
    hostile: HostileServer,
) -> None:
    theirs = "tenant=a&empty=&state=theirs&client_id=theirs&redirect_uri=http://127.0.0.9/"
    hostile.named = {"authorization_endpoint": f"{hostile.root}/authorize?{theirs}#?state=theirs"}
    user = UserWhoLooks()
    with pytest.raises(LoginDeclined):
        await _log_in(hostile, user)
    parts = urlsplit(user.address)
    assert parts.fragment == ""
    given = parse_qs(parts.query, keep_blank_values=True)
    assert given["tenant"] == ["a"]
    assert given["empty"] == [""]
    assert given["client_id"] == ["toolscript"]
    assert given["redirect_uri"] == [user.redirect_uri]
    assert [len(value) for value in given["state"]] == [43]


@pytest.mark.parametrize(
    "role",
    [
        "resource_metadata",
        "authorization_servers",
        "authorization_endpoint",
        "registration_endpoint",
        "token_endpoint",
        "revocation_endpoint",
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_a_server_elsewhere_cannot_name_an_address_of_this_machine(
    hostile: HostileServer, role: str, host: str
) -> None:
    with recording_requests(body=b"{}") as (inside, requests):
        hostile.named = {role: inside.replace("127.0.0.1", host) + PATH}
        with pytest.raises(UpstreamFailed, match="on this machine, and a server may name such an address only if"):
            await _log_in(hostile)
    assert requests == []


@pytest.mark.parametrize("address", ["http://10.0.0.1", "https://[fd00::1]", "https://169.254.169.254"])
async def test_a_server_on_the_internet_cannot_name_a_private_address(hostile: HostileServer, address: str) -> None:
    hostile.named = {"registration_endpoint": address}
    with pytest.raises(UpstreamFailed, match=r"in a private network|link-local"):
        await _log_in(hostile)


async def test_a_name_that_leads_to_this_machine_is_refused_when_it_is_connected_to(
    hostile: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    original = loop.getaddrinfo

    async def getaddrinfo(host: Any, port: Any, **options: Any) -> Any:
        found = "127.0.0.1" if host == "login.example" else host
        return await original(found, port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    with socket.create_server(("127.0.0.1", 0)) as inside:
        inside.setblocking(False)
        hostile.named = {"registration_endpoint": f"https://login.example:{inside.getsockname()[1]}{PATH}"}
        with pytest.raises(UpstreamFailed, match=r"login\.example is on this machine"):
            await _log_in(hostile)
        with pytest.raises(BlockingIOError):
            inside.accept()


async def test_a_redirect_to_this_machine_is_not_followed(hostile: HostileServer) -> None:
    with recording_requests(body=b"{}") as (inside, requests):
        hostile.redirect = f"{inside}{PATH}"
        with pytest.raises(ToolscriptError):
            await _log_in(hostile)
    assert requests == []


async def test_redirects_within_a_server_are_bounded(hostile: HostileServer) -> None:
    hostile.redirect = f"{hostile.root}/again"
    with pytest.raises(ToolscriptError):
        await _log_in(hostile)
    assert hostile.requests.count("GET /again") <= 20


async def test_a_server_of_this_machine_may_name_addresses_of_it() -> None:
    with HostileServer("127.0.0.1") as server:
        with pytest.raises(ToolscriptError, match="issued no token: HTTP status 404"):
            await _log_in(server)
        assert "POST /register" in server.requests


async def test_a_request_to_an_address_that_a_server_named_is_marked() -> None:
    with recording_requests(body=b"{}") as (address, requests), pytest.raises(Unavailable):
        await OAuthServers().refresh(_make_login(f"{address}/token"))
    assert [request[NAMED_BY_SERVER_HEADER] for request in requests] == ["1"]


async def test_a_renewal_goes_no_further_inside_than_the_server() -> None:
    with recording_requests(body=b"{}") as (address, requests):
        login = Login("1", "https://a.example", "https://8.8.8.8/mcp", "me", f"{address}/token", "", "refresh")
        with pytest.raises(UpstreamFailed, match="on this machine"):
            await OAuthServers().refresh(login)
    assert requests == []


@pytest.mark.parametrize("part", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
async def test_an_answer_that_comes_byte_by_byte_ends_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, part: bytes
) -> None:
    set_limits(monkeypatch, oauth_request=0.3)
    with (
        DrippingServer(part) as address,
        pytest.raises(Unavailable, match=r"no complete answer from \S+ within 0\.3 s"),
    ):
        async with asyncio.timeout(30):
            await OAuthServers().refresh(_make_login(f"{address}/token"))


class DrippingServer:
    """A server that sends the beginning of an answer, and then a letter from time to time until it is closed."""

    def __init__(self, beginning: bytes) -> None:
        self._beginning = beginning
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._drip)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._listening.close()
        self._thread.join()

    def _drip(self) -> None:
        connection, _ = self._listening.accept()
        with connection:
            connection.sendall(self._beginning)
            while not self._is_over.wait(0.02):
                try:
                    connection.sendall(b"a")
                except ConnectionError:
                    return


async def _log_in(server: HostileServer, user: UserAtOnce | None = None) -> Login:
    spec = ServerSpec("web", Transport.HTTP, url=f"{server.root}/mcp")
    return await OAuthServers().authorize(spec, user or UserAtOnce(), ())


def _make_login(token_endpoint: str) -> Login:
    return Login("1", "https://a.example", "http://127.0.0.1/mcp", "me", token_endpoint, "access", "refresh")
