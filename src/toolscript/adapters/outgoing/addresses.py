"""The addresses that a server may send the gateway to. A server on the internet may name others there. It may not name
this machine or its networks, in any spelling or under any name: it could use what only the gateway can reach.

A name is looked up once, and the connection is made to the address that was checked: a name server that answers
differently the next time gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import urllib.request
from contextlib import suppress
from enum import IntEnum
from urllib.parse import urlsplit

import httpx2

from toolscript.adapters.outgoing.client import read_certificates

# Of several addresses of a name, some may be unreachable.
CONNECT_TIMEOUT_SECONDS = 5.0
# IPv6 networks whose last 32 bits are an IPv4 address: NAT64, and those of the time before it.
_WITH_IPV4 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("::/96"))
_INSIDE = (ipaddress.ip_network("64:ff9b:1::/48"), ipaddress.ip_network("fec0::/10"))
_ANY_PORT = 9

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Reach(IntEnum):
    """Where an address is. A server may name addresses of its own kind, and of the kinds before it in this list."""

    INTERNET = 0
    PRIVATE = 1
    """A private network, also that of a provider (100.64.0.0/10), and whatever is not on the internet."""
    LINK = 2
    """Link-local, as the metadata services of clouds are."""
    MACHINE = 3
    """This machine, under any of its addresses."""


_NAMES = {Reach.PRIVATE: "in a private network", Reach.LINK: "link-local", Reach.MACHINE: "on this machine"}


class AddressRefused(httpx2.ConnectError):
    """An address is further inside than the server may name."""


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Connects only to addresses within a reach."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._inner = httpx2.AsyncHTTPTransport(verify=read_certificates())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises AddressRefused."""
        host = request.url.raw_host.decode("ascii")
        addresses = await _look_up(host, request.url.port)
        allowed = [address for address in addresses if find_reach(address) <= self._reach]
        if not allowed:
            raise AddressRefused(describe_refusal(host, find_reach(addresses[0])), request=request)
        timeouts = {**request.extensions.get("timeout", {}), "connect": CONNECT_TIMEOUT_SECONDS}
        extensions = {**request.extensions, "timeout": timeouts, "sni_hostname": host}
        for last in reversed(range(len(allowed))):
            url = request.url.copy_with(host=str(allowed[-1 - last]))
            try:
                # The header Host and the name in the certificate stay as they were.
                return await self._inner.handle_async_request(
                    httpx2.Request(
                        request.method, url, headers=request.headers, stream=request.stream, extensions=extensions
                    )
                )
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if not last:
                    raise
        raise AssertionError("no address")

    async def aclose(self) -> None:
        await self._inner.aclose()


def find_reach(address: str | IpAddress) -> Reach:
    """Where an IP address is, also one that stands in another (IPv4 in IPv6). Raises ValueError."""
    ip = _unwrap(ipaddress.ip_address(address))
    if ip.is_loopback or ip.is_unspecified or _is_own(ip):
        return Reach.MACHINE
    if ip.is_link_local or ip.is_multicast:
        return Reach.LINK
    return Reach.INTERNET if ip.is_global and not any(ip in network for network in _INSIDE) else Reach.PRIVATE


def find_written_reach(host: str) -> Reach | None:
    """Where a host of a URL is, as far as that is written there; None for a name that has to be looked up."""
    if host == "localhost" or host.endswith(".localhost"):
        return Reach.MACHINE
    try:
        return find_reach(host)
    except ValueError:
        return None


async def find_resolved_reach(url: str) -> Reach:
    """Where the host of a URL is now, the nearest of its addresses. Raises ConnectError for a name without any."""
    host = urlsplit(url).hostname or ""
    written = find_written_reach(host)
    if written is not None or not host or uses_proxy(url):
        return written or Reach.INTERNET
    return max(map(find_reach, await _look_up(host, None)))


def describe_refusal(host: str, reach: Reach) -> str:
    """Says why an address is refused."""
    return (
        f"{host} is {_NAMES[reach]}, and a server may name such an address only if the `url` of its entry is there, too"
    )


def uses_proxy(url: str) -> bool:
    """Whether a proxy of the environment is used for this URL: it looks names up and decides what it reaches."""
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    return bool(proxies.get(parts.scheme) or proxies.get("all")) and not urllib.request.proxy_bypass(parts.netloc)


async def _look_up(host: str, port: int | None) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpx2.ConnectError(f"{host} has no address: {error}") from error
    addresses = dict.fromkeys(str(place[0]) for *_, place in found)
    if not addresses:
        raise httpx2.ConnectError(f"{host} has no address")
    return list(addresses)


def _unwrap(ip: IpAddress) -> IpAddress:
    """The IPv4 address that an IPv6 address leads to."""
    if isinstance(ip, ipaddress.IPv6Address) and not ip.is_loopback:
        if any(ip in network for network in _WITH_IPV4):
            return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else ip)
    return ip


def _is_own(ip: IpAddress) -> bool:
    """Whether it is an address of this machine: the system would then send from that address to it. Sends nothing."""
    family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET  # noqa: PLR2004  (the version of IP)
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((str(ip), _ANY_PORT))
        return ipaddress.ip_address(probe.getsockname()[0]) == ip
    return False
