"""Requests to MCP servers that want a login, and to the authorization servers that they name: bounded in bytes and in
time, without redirects to other hosts, to no address further inside than the server itself, and with errors that repeat
nothing of an answer but its error code."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.shared._httpx_utils import stream_within_origin

from toolscript.adapters.outgoing.addresses import (
    AddressRefused,
    CheckedTransport,
    Reach,
    describe_refusal,
    find_reach,
    find_resolved_reach,
    find_written_reach,
    uses_proxy,
)
from toolscript.adapters.outgoing.bounds import MAX_OAUTH_BYTES
from toolscript.adapters.outgoing.client import AnswerTooLarge, BoundedClient
from toolscript.domain.errors import Unavailable, UpstreamFailed
from toolscript.domain.limits import current_limits
from toolscript.domain.requests import NAMED_BY_SERVER_HEADER

_KEPT_HEADERS = ("content-type", "www-authenticate", "retry-after")
_PEER = "peer"


async def fetch(
    method: str, url: str, *, reach: Reach | None, read_body: bool = True, **request: Any
) -> httpx2.Response:
    """Sends a request and reads the answer. A `reach` is for addresses that a server names, and None for the address of
    its entry. Raises Unavailable when there is no answer, UpstreamFailed when it is long or the address is refused."""
    transport = CheckedTransport(reach) if reach is not None and not uses_proxy(url) else None
    if reach is not None:
        request["headers"] = {**request.get("headers", {}), NAMED_BY_SERVER_HEADER: "1"}
    seconds = current_limits().oauth_request
    timeout = httpx2.Timeout(seconds)
    try:
        async with (
            asyncio.timeout(seconds),
            BoundedClient(max_bytes=MAX_OAUTH_BYTES, timeout=timeout, transport=transport) as client,
            stream_within_origin(client, method, url, **request) as response,
        ):
            content = await response.aread() if read_body else b""
            headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
            address = response.extensions["network_stream"].get_extra_info("server_addr")
            extensions = {_PEER: str(address[0]) if address else None}
            return httpx2.Response(response.status_code, headers=headers, content=content, extensions=extensions)
    except AddressRefused as error:
        raise UpstreamFailed(str(error)) from error
    except AnswerTooLarge:
        raise UpstreamFailed(f"the answer of {describe_host(url)} is over {MAX_OAUTH_BYTES} bytes") from None
    except TimeoutError as error:
        raise Unavailable(f"no complete answer from {describe_host(url)} within {seconds:g} s") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Unavailable(f"no answer from {describe_host(url)}: {type(error).__name__}") from error


def find_answering_reach(response: httpx2.Response, url: str) -> Reach:
    """Where the server is that gave this answer of `fetch`. The connection says so, and not the server's name: its
    address may have changed since. Behind a proxy the URL says so."""
    peer = response.extensions[_PEER]
    if peer is None or uses_proxy(url):
        return find_written_reach(urlsplit(url).hostname or "") or Reach.INTERNET
    return find_reach(peer)


async def find_current_reach(url: str) -> Reach:
    """Where the host of a URL is now. Raises Unavailable."""
    try:
        async with asyncio.timeout(current_limits().oauth_request):
            return await find_resolved_reach(url)
    except (httpx2.ConnectError, TimeoutError) as error:
        raise Unavailable(f"the address of {describe_host(url)} is not known: {type(error).__name__}") from error


def describe_host(url: str) -> str:
    """The host of a URL, without a password or a query."""
    return urlsplit(url).netloc.rpartition("@")[2]


def find_error_code(response: httpx2.Response) -> str:
    """The OAuth error code of an answer, if it has one. Descriptions are left out: they may repeat what was sent."""
    try:
        code = json.loads(response.content)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return code if isinstance(code, str) and re.fullmatch(r"[a-z_]{1,40}", code) else ""


def describe_answer(response: httpx2.Response) -> str:
    """The status of an answer, and its error code."""
    code = find_error_code(response)
    return f"HTTP status {response.status_code}{f', {code}' if code else ''}"


def require_allowed(url: str, server_url: str, role: str, reach: Reach) -> str:
    """Returns the URL if a server may name it: within its reach, as far as that is written there (names are looked up
    for the request), and one that secrets may be sent to: https, this machine, or the host of a server that is
    configured without https. Raises UpstreamFailed."""
    parts = urlsplit(url)
    written = find_written_reach(parts.hostname or "")
    if written is not None and written > reach:
        raise UpstreamFailed(f"the {role} is refused: {describe_refusal(describe_host(url), written)}")
    if parts.scheme == "https" or (
        parts.scheme == "http" and (written is Reach.MACHINE or parts.hostname == urlsplit(server_url).hostname)
    ):
        return url
    raise UpstreamFailed(f"the {role} is not an https address: {parts.scheme}://{describe_host(url)}")
