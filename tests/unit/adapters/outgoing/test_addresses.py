"""Where addresses are, in every spelling, and that a connection goes to the address that was checked."""

from __future__ import annotations

import asyncio
import socket
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx2
import pytest

from tests.fixtures.http_services import HttpDouble
from toolscript.adapters.outgoing.addresses import (
    AddressRefused,
    CheckedTransport,
    Reach,
    find_reach,
    find_resolved_reach,
    find_written_reach,
)

pytestmark = pytest.mark.req("X-11")


class Inside(HttpDouble):
    """A service of this machine."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: list[str | None] = []

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.hosts.append(request.headers.get("host"))
        self.send(request, 200, b"{}")


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("127.0.0.1", Reach.MACHINE),
        ("127.8.9.10", Reach.MACHINE),
        ("0.0.0.0", Reach.MACHINE),
        ("::1", Reach.MACHINE),
        ("::", Reach.MACHINE),
        ("::ffff:127.0.0.1", Reach.MACHINE),
        ("::127.0.0.1", Reach.MACHINE),
        ("64:ff9b::7f00:1", Reach.MACHINE),
        ("2002:7f00:1::", Reach.MACHINE),
        ("169.254.169.254", Reach.LINK),
        ("::ffff:169.254.169.254", Reach.LINK),
        ("fe80::1", Reach.LINK),
        ("224.0.0.1", Reach.LINK),
        ("10.1.2.3", Reach.PRIVATE),
        ("172.16.0.1", Reach.PRIVATE),
        ("192.168.1.1", Reach.PRIVATE),
        ("100.64.0.1", Reach.PRIVATE),
        ("fc00::1", Reach.PRIVATE),
        ("fec0::1", Reach.PRIVATE),
        ("64:ff9b:1::a00:1", Reach.PRIVATE),
        ("::ffff:10.1.2.3", Reach.PRIVATE),
        ("203.0.113.1", Reach.PRIVATE),
        ("8.8.8.8", Reach.INTERNET),
        ("2606:4700::1111", Reach.INTERNET),
    ],
)
def test_an_address_is_found_inside_in_every_spelling(address: str, reach: Reach) -> None:
    assert find_reach(address) is reach
    assert find_written_reach(address) is reach


async def test_names_are_looked_up_unless_they_always_mean_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_written_reach("localhost") is find_written_reach("a.localhost") is Reach.MACHINE
    assert find_written_reach("login.example") is None
    _resolve(monkeypatch, [["8.8.8.8", "10.0.0.1"]])
    assert await find_resolved_reach("https://login.example/mcp") is Reach.PRIVATE


async def test_a_name_of_an_address_inside_is_refused_and_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with Inside() as service:
        _resolve(monkeypatch, [["127.0.0.1"]])
        with pytest.raises(AddressRefused, match=r"login\.example is on this machine"):
            await _get(service, Reach.PRIVATE)
        assert service.requests == []


async def test_a_name_is_looked_up_once_and_the_checked_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with Inside() as service:
        # A name server that would answer differently the second time.
        lookups = _resolve(monkeypatch, [["127.0.0.1"], ["127.0.0.2"]])
        response = await _get(service, Reach.MACHINE)
        assert response.status_code == 200
        assert lookups == ["login.example"]
        assert service.hosts == [f"login.example:{service.port}"]


async def test_an_address_that_is_unreachable_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with Inside() as service:
        _resolve(monkeypatch, [["::1", "127.0.0.1"]])  # it listens on IPv4 only
        assert (await _get(service, Reach.MACHINE)).status_code == 200


async def _get(service: Inside, reach: Reach) -> httpx2.Response:
    async with httpx2.AsyncClient(transport=CheckedTransport(reach)) as client:
        return await client.get(f"http://login.example:{service.port}/")


def _resolve(monkeypatch: pytest.MonkeyPatch, answers: list[list[str]]) -> list[str]:
    """Makes the name server give these answers, one after the other; returns the names that were looked up."""
    lookups: list[str] = []
    loop = asyncio.get_running_loop()
    original = loop.getaddrinfo

    async def getaddrinfo(host: Any, port: Any, **options: Any) -> Any:
        if not str(host).endswith(".example"):
            return await original(host, port, **options)
        lookups.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers.pop(0)]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    return lookups
