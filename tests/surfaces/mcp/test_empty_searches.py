"""Searches that have nothing to find are neither listed nor mentioned, and appear as soon as there is something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ToolsListChanged

from tests.fixtures.serving import ALWAYS_LISTED, TIDES, fill_searches, replace_parts, serve
from toolscript.app.app import App, local_token, open_app
from toolscript.domain.errors import Unavailable
from toolscript.services.tools import text_contents
from toolscript.settings import load_settings
from toolscript.surfaces.mcp.definitions import MAY_BE_EMPTY, TOOLS

pytestmark = pytest.mark.req("G-08", "G-14")

TIMEOUT_SECONDS = 60.0
ALWAYS = [tool.name for tool in ALWAYS_LISTED]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64", index="memory:", port=0)
    async with open_app(settings, serving=True) as opened:
        yield opened


async def read(app: App, url: str, tenant: str | None = None) -> tuple[list[str], str]:
    """The names of the tools that a client sees, and its instructions."""
    headers = {"Authorization": f"Bearer {local_token(app.access.local_key, tenant)}"} if tenant else {}
    async with httpx2.AsyncClient(headers=headers) as http, connect(url, http) as client:
        return [tool.name for tool in (await client.list_tools()).tools], client.instructions or ""


def connect(url: str, http: httpx2.AsyncClient) -> Client:
    return Client(streamable_http_client(f"{url}/mcp", http_client=http))


async def test_a_search_is_listed_and_mentioned_once_it_has_something_to_find(app: App) -> None:
    async with serve(app) as url:
        names, instructions = await read(app, url, "acme")
        assert names == ALWAYS
        assert [name for name in MAY_BE_EMPTY if name in instructions] == []
        assert "call_tool" in instructions

        await fill_searches(app, "acme")
        names, instructions = await read(app, url, "acme")
        assert names == [tool.name for tool in TOOLS]
        assert [name for name in names if name not in instructions] == []


@pytest.mark.req("D-04")
async def test_documents_of_others_list_no_search(app: App) -> None:
    await app.texts.ingest_documents.put("acme", [TIDES])
    async with serve(app) as url:
        assert "search_documents" in (await read(app, url, "acme"))[0]
        assert (await read(app, url, "other"))[0] == ALWAYS
        assert (await read(app, url))[0] == ALWAYS


async def test_clients_hear_of_the_first_text_and_of_the_last(app: App) -> None:
    await app.texts.ingest_documents.put("other", [TIDES])
    headers = {"Authorization": f"Bearer {local_token(app.access.local_key, 'acme')}"}
    async with (
        serve(app) as url,
        httpx2.AsyncClient(headers=headers, timeout=None) as http,
        connect(url, http) as client,
        asyncio.timeout(TIMEOUT_SECONDS),
        client.listen(tools_list_changed=True) as changes,
    ):
        await app.texts.ingest_documents.put("acme", [TIDES])
        assert await anext(aiter(changes)) == ToolsListChanged()
        names = [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]
        assert "search_documents" in names
        await app.texts.ingest_documents.delete("acme", [TIDES.id])
        assert await anext(aiter(changes)) == ToolsListChanged()


async def test_a_store_that_does_not_answer_hides_no_search(app: App) -> None:
    class Silent:
        async def has_sources(self) -> bool:
            raise Unavailable("no answer")

    contents = text_contents.FindTextContents(app.stores.documents, Silent())  # type: ignore[arg-type]
    async with serve(replace_parts(app, contents=contents)) as url:
        assert (await read(app, url))[0] == [*ALWAYS, "search_knowledge"]
