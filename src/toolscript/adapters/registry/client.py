"""Reads the lists of registries that speak the API of the official registry, page by page.

Everything is bounded: bytes of a page and of all pages, pages, entries, time. Redirects are not followed: a person has
named the address.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpx2

from toolscript.adapters.outgoing.bounds import MAX_REGISTRY_PAGE_BYTES
from toolscript.adapters.outgoing.client import AnswerTooLarge, BoundedClient
from toolscript.adapters.outgoing.remote_services import hide_credentials, read_retry_after, require_http_url
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.registry.entry import RegistryEntry, read_entry
from toolscript.ports.registries import RegistryListing

PAGE_SIZE = 100
# The official registry has some 20 000 versions of servers.
MAX_ENTRIES = 100_000
MAX_TOTAL_BYTES = 512 * 2**20
# Pages in a row that have nothing new: a cursor that never ends.
MAX_EMPTY_PAGES = 5
MAX_PROBLEMS = 100
_VERSIONS = ("v0", "v0.1")


class HttpRegistries:
    """Registries over HTTP."""

    async def list_entries(self, url: str, *, changed_since: str = "") -> RegistryListing:
        require_http_url(url, "URL", "an http(s) URL of a registry")
        if set("@?#") & set(url):
            raise Invalid("URL has a user, a query or a fragment: give the address alone", details={"field": "URL"})
        limits = current_limits()
        timeout = limits.registry_page
        try:
            async with (
                asyncio.timeout(limits.registry_sync),
                BoundedClient(max_bytes=MAX_REGISTRY_PAGE_BYTES, timeout=timeout, within=timeout) as client,
            ):
                return await _Reading(client, url).read(changed_since)
        except TimeoutError:
            raise _fail(url, f"has not sent all its pages within {limits.registry_sync:g} s: try again later") from None


class _Reading:
    """One reading of a registry."""

    def __init__(self, client: BoundedClient, url: str) -> None:
        self._client = client
        self._url = url
        self._entries: dict[tuple[str, str], RegistryEntry] = {}
        self._problems: list[str] = []
        self._bytes = self._empty_pages = 0

    async def read(self, changed_since: str) -> RegistryListing:
        query = {"limit": str(PAGE_SIZE)} | ({"updated_since": changed_since} if changed_since else {})
        addresses = _list_addresses(self._url)
        page: Any = None
        for address in addresses:
            page = await self._fetch(address, query, is_last=address == addresses[-1])
            if page is not None:
                break
        cursors = set[str]()
        while cursor := self._add(page):
            if cursor in cursors:
                raise self._fail("sends the same cursor twice: its pages have no end")
            cursors.add(cursor)
            page = await self._fetch(address, {**query, "cursor": cursor}, is_last=True)
        return RegistryListing([*self._entries.values()], self._problems)

    def _add(self, page: Any) -> str:
        """Adds the entries of a page; returns the cursor of the next one, empty for the last."""
        if not isinstance(page, dict) or not isinstance(page.get("servers"), list | None):
            raise self._fail("answers with something else than a list of servers: is it a registry?")
        count, metadata = len(self._entries), page.get("metadata")
        for given in page.get("servers") or ():
            try:
                entry = read_entry(self._url, given)
                self._entries[entry.name, entry.version] = entry
            except ValueError as error:
                self._problems += [str(error)] if len(self._problems) < MAX_PROBLEMS else []
        if len(self._entries) > MAX_ENTRIES:
            raise self._fail(f"has more than {MAX_ENTRIES} entries, which is the most that is read")
        self._empty_pages = 0 if len(self._entries) > count else self._empty_pages + 1
        if self._empty_pages > MAX_EMPTY_PAGES:
            raise self._fail(f"has sent {self._empty_pages} pages without anything new: its pages have no end")
        metadata = metadata if isinstance(metadata, dict) else {}
        cursor = metadata.get("nextCursor") or metadata.get("next_cursor")
        return cursor if isinstance(cursor, str) else ""

    async def _fetch(self, address: str, query: dict[str, str], *, is_last: bool) -> Any:
        """A page; None where nothing is at an address, and there is another to try. Raises Unavailable."""
        try:
            response = await self._client.get(address, params=query, headers={"Accept": "application/json"})
        except AnswerTooLarge as error:
            raise self._fail(f"sends a page that is too large: {error}") from error
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise self._fail(f"does not answer: {str(error) or type(error).__name__}") from error
        if response.next_request is not None:
            target = hide_credentials(str(response.next_request.url))[:200]
            raise self._fail(f"redirects to {target}: give that address instead, if you trust it")
        if response.status_code == HTTPStatus.NOT_FOUND and not is_last:
            return None
        if not response.is_success:
            raise self._refuse(response)
        self._bytes += len(response.content)
        if self._bytes > MAX_TOTAL_BYTES:
            raise self._fail(f"has sent more than {MAX_TOTAL_BYTES // 2**20} MiB, which is the most that is read")
        try:
            return await asyncio.to_thread(json.loads, response.content)
        except (ValueError, RecursionError) as error:
            raise self._fail(f"sends a page that is not valid JSON ({str(error)[:100]})") from error

    def _refuse(self, response: httpx2.Response) -> Unavailable:
        status, pause = response.status_code, read_retry_after(response.headers)
        if pause is not None:
            return self._fail(f"refuses with status {status}: try again in {pause:g} s")
        if status == HTTPStatus.NOT_FOUND:
            return self._fail("has no list of servers (status 404): give the address that `/v0/servers` follows")
        return self._fail(f"refuses with status {status}")

    def _fail(self, problem: str) -> Unavailable:
        return _fail(self._url, problem)


def _list_addresses(url: str) -> list[str]:
    """Where the list of servers may be: below the address, unless that has a version of the API already."""
    base = url.rstrip("/").removesuffix("/servers")
    if urlsplit(base).path.rpartition("/")[2] in _VERSIONS:
        return [f"{base}/servers"]
    return [f"{base}/{version}/servers" for version in _VERSIONS]


def _fail(url: str, problem: str) -> Unavailable:
    where = hide_credentials(url)
    return Unavailable(f"the registry {where} {problem}. Nothing of it was stored", details={"registry": where})
