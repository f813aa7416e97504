"""Fetches the document of a server and has a worker process read it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx2

from toolscript.adapters.mcp.lenient_reader import read_items
from toolscript.adapters.openapi.request import find_origin, list_cookies
from toolscript.adapters.outgoing.bounds import MAX_DOCUMENT_BYTES, MAX_REDIRECTS
from toolscript.adapters.outgoing.client import AnswerTooLarge
from toolscript.adapters.outgoing.remote_services import hide_credentials, is_http_url
from toolscript.adapters.workers.process import start_worker, stop_process
from toolscript.domain.errors import Unavailable
from toolscript.domain.servers import ServerListing, ServerSpec

_SHOWN_MEGABYTES = MAX_DOCUMENT_BYTES / 2**20


@dataclass(frozen=True, slots=True)
class ApiDescription:
    """What a document says."""

    about: Mapping[str, Any]
    """`title`, `version` of the specification, and `servers`, the addresses that it names."""
    listing: ServerListing
    plans: Mapping[str, Mapping[str, Any]]
    """How to call each tool, by its name."""


async def read_description(spec: ServerSpec, client: httpx2.AsyncClient) -> ApiDescription:
    """Reads the document of a server. Raises Unavailable, naming the document and the place in it."""
    where = hide_credentials(spec.openapi) if is_http_url(spec.openapi) else spec.openapi
    try:
        data = await (
            _fetch(spec.openapi, client) if is_http_url(spec.openapi) else asyncio.to_thread(_read_file, spec)
        )
        output = await _work(data, _list_given(spec))
        return await asyncio.to_thread(_collect, spec, output)
    except (OSError, ValueError, httpx2.HTTPError, httpx2.StreamError) as error:
        text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise Unavailable(f"{where}: {text}") from error


def find_stamp(spec: ServerSpec) -> tuple[int, int] | None:
    """Changes when the file of a document does; None for a URL, or where there is no file."""
    if is_http_url(spec.openapi):
        return None
    try:
        about = Path(spec.openapi).stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def _read_file(spec: ServerSpec) -> bytes:
    file = Path(spec.openapi)
    if file.exists() and not file.is_file():
        raise ValueError("not a regular file")
    with file.open("rb") as opened:
        data = opened.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"larger than {_SHOWN_MEGABYTES:g} MiB")
    return data


async def _fetch(url: str, client: httpx2.AsyncClient) -> bytes:
    """The document at a URL. Redirects are followed within its origin."""
    at = url
    for _ in range(MAX_REDIRECTS + 1):
        try:
            response = await client.get(at, headers={"Accept": "application/json, application/yaml, */*"})
        except AnswerTooLarge:
            raise ValueError(f"larger than {_SHOWN_MEGABYTES:g} MiB") from None
        if response.next_request is None:
            if response.is_error:
                raise ValueError(f"HTTP status {response.status_code}")
            return response.content
        at = urljoin(at, str(response.next_request.url))
        if find_origin(at) != find_origin(url):
            raise ValueError(f"redirects to {hide_credentials(at)[:200]}: give that address instead, if it is meant")
    raise ValueError("redirects in a circle")


async def _work(data: bytes, given: list[str]) -> bytes:
    """What the worker writes about a document. Raises ValueError."""
    worker = await start_worker("toolscript.adapters.openapi.worker", *given)
    try:
        output, _ = await worker.communicate(data)
    finally:
        await stop_process(worker)
    if worker.returncode:
        raise ValueError("takes too much time or memory to read: is there an alias or a reference that grows?")
    return output


def _list_given(spec: ServerSpec) -> list[str]:
    """The parameters that the configuration gives a value: callers are not asked for them."""
    query = parse_qsl(urlsplit(spec.url).query, keep_blank_values=True) if spec.url != spec.openapi else []
    given = {
        "header": spec.headers,
        "query": [name for name, _ in query],
        "cookie": list_cookies(spec.headers),
    }
    return [f"{place}:{name.lower()}" for place, names in given.items() for name in names]


def _collect(spec: ServerSpec, output: bytes) -> ApiDescription:
    lines = [json.loads(line) for line in output.splitlines()]
    if "error" in lines[-1]:
        raise ValueError(lines[-1]["error"])
    first, *operations, last = lines
    tools = [each["tool"] for each in operations]
    listing = read_items(spec.name, {"tools/list": [{"tools": tools}]})
    allowed = [item for item in listing.items if spec.allows_item(item)]
    names = {item.name for item in allowed}
    plans = {each["tool"]["name"]: each["plan"] for each in operations if each["tool"]["name"] in names}
    problems = [*last["problems"], *listing.problems]
    problems += [] if tools else ["/paths: has no operation that can be called"]
    return ApiDescription(first["about"], ServerListing(allowed, problems), plans)
