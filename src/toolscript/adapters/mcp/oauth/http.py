"""Requests to authorization servers: bounded, without redirects to other hosts, and with errors that repeat nothing of
an answer but its error code."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.shared._httpx_utils import stream_within_origin

from toolscript.adapters.mcp.http_client import create_http_client
from toolscript.domain.errors import Unavailable, UpstreamFailed

TIMEOUT_SECONDS = 15.0
MAX_ANSWER_BYTES = 2**20
_KEPT_HEADERS = ("content-type", "www-authenticate", "retry-after")


async def fetch(method: str, url: str, *, read_body: bool = True, **request: Any) -> httpx2.Response:
    """Sends a request and reads the answer. Raises Unavailable when there is none, UpstreamFailed when it is long."""
    content = bytearray()
    try:
        async with (
            create_http_client(timeout=httpx2.Timeout(TIMEOUT_SECONDS)) as client,
            stream_within_origin(client, method, url, **request) as response,
        ):
            if read_body:
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > MAX_ANSWER_BYTES:
                        raise UpstreamFailed(f"the answer of {describe_host(url)} is over {MAX_ANSWER_BYTES} bytes")
            headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
            return httpx2.Response(response.status_code, headers=headers, content=bytes(content))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Unavailable(f"no answer from {describe_host(url)}: {type(error).__name__}") from error


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


def require_secure(url: str, server_url: str, role: str) -> str:
    """Returns the URL if secrets may be sent to it: https, this machine, or the host of a server that is configured
    without https. Raises UpstreamFailed."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (
        parts.scheme == "http" and (is_loopback(parts.hostname) or parts.hostname == urlsplit(server_url).hostname)
    ):
        return url
    raise UpstreamFailed(f"the {role} is not an https address: {parts.scheme}://{describe_host(url)}")


def is_loopback(host: str | None) -> bool:
    """Whether the host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
