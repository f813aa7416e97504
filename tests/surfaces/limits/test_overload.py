"""What is too much is refused at once with the time to try again, each caller has a share, and a revoked key ends what
it has begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from tests.fixtures.mcp_requests import NEWEST
from tests.fixtures.serving import serve
from tests.servers import make_scripted_server
from toolscript.app.app import App, open_app
from toolscript.domain.access import Scope, ShareHolder
from toolscript.domain.limits import current_limits
from toolscript.settings import load_settings
from toolscript.surfaces.http import input_limits, request_shares, valid_requests

pytestmark = [pytest.mark.req("X-12"), pytest.mark.slow]

TIMEOUT_SECONDS = 60.0
SLOW = {"seconds": 600}
MCP_HEADERS = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    settings = load_settings(
        variables={}, data_dir=tmp_path_factory.mktemp("overload"), search_model="hashed-64", knowledge_public=True
    )
    async with open_app(settings, serving=True) as opened:
        await opened.servers.gateway.apply([make_scripted_server()])
        await opened.servers.gateway.settle(TIMEOUT_SECONDS)
        yield opened


@pytest.fixture(scope="module")
async def secrets(app: App) -> dict[str, str]:
    """Keys of two callers who may do everything."""
    return {name: (await app.access.keys.create(name, list(Scope), tenant="acme"))[1] for name in ("greedy", "modest")}


def connect(url: str, key: str = "") -> httpx.AsyncClient:
    headers = {"X-API-Key": key} if key else {}
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, limits=limits)


async def begin_slow_calls(client: httpx.AsyncClient, count: int) -> tuple[list[httpx.Response], set[Any]]:
    """Responses of the calls that are refused, and the tasks of the others, once half of all are refused."""
    running = {asyncio.create_task(client.post("/tools/scripted__slow", json=SLOW)) for _ in range(count)}
    refused: list[httpx.Response] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(refused) < count / 2:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            refused += [task.result() for task in done]
    return refused, running


async def test_slow_calls_of_one_key_leave_room_for_others_and_probes(
    app: App, secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_shares, "MAX_REQUESTS", 8)
    async with (
        serve(app) as url,
        connect(url, secrets["greedy"]) as greedy,
        connect(url, secrets["modest"]) as modest,
    ):
        refused, running = await begin_slow_calls(greedy, 8)
        for response in refused:
            assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
            assert "you have 4 requests in progress" in response.json()["error"]["message"]
        for path in ("/health", "/ready", "/metrics"):
            assert (await greedy.get(path)).status_code == 200
        answer = await modest.post("/tools/scripted__echo", json={"text": "still here"})
        assert answer.status_code == 200
        assert "still here" in answer.text
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize("path", ["/search?q=echo", "/api/v1/search/skills?query=echo", "/api/v1/search/tools?query=a"])
async def test_searches_above_the_queue_are_refused_over_http(app: App, secrets: dict[str, str], path: str) -> None:
    holders = [ShareHolder(f"key {number}") for number in range(app.access.search_shares.total)]
    async with serve(app) as url, connect(url, secrets["modest"]) as client:
        for holder in holders:
            app.access.search_shares.take(holder)
        refused = await client.get(path)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert "as many searches in progress" in refused.json()["error"]["message"]
        for holder in holders:
            app.access.search_shares.give_back(holder)
        assert (await client.get("/search?q=echo")).status_code == 200


async def test_searches_above_the_queue_are_refused_over_mcp(app: App, secrets: dict[str, str]) -> None:
    holders = [ShareHolder(f"key {number}") for number in range(app.access.search_shares.total)]
    params = {"name": "search_tools", "arguments": {"query": "echo"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with serve(app) as url, connect(url, secrets["modest"]) as client:
        for holder in holders:
            app.access.search_shares.take(holder)
        result = (await client.post("/mcp", json=body, headers=MCP_HEADERS)).json()["result"]
        for holder in holders:
            app.access.search_shares.give_back(holder)
    assert result["isError"]
    assert "as many searches in progress" in result["content"][0]["text"]


async def test_callers_without_a_key_leave_subscriptions_for_the_operator(
    app: App, secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.tools.native_changes.shares, "total", 8)
    async with (
        serve(app) as url,
        httpx2.AsyncClient(headers={"X-API-Key": secrets["modest"]}) as http,
        httpx2.AsyncClient(headers={"Via": "1.1 proxy"}) as through_proxy,
        Client(streamable_http_client(f"{url}/mcp", http_client=through_proxy)) as stranger,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as known,
        stranger.listen(tools_list_changed=True),
    ):
        with pytest.raises(MCPError, match="send a key, or wait"):
            async with stranger.listen(tools_list_changed=True):
                pass
        async with known.listen(tools_list_changed=True), known.listen(prompts_list_changed=True):
            pass


async def test_bodies_that_do_not_arrive_take_no_place(
    app: App, secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_shares, "MAX_REQUESTS", 4)
    arrived = asyncio.Event()

    async def send_slowly() -> AsyncIterator[bytes]:
        yield b'{"text": '
        await arrived.wait()
        yield b'"late"}'

    async with serve(app) as url, connect(url, secrets["greedy"]) as client:
        slow = [asyncio.create_task(client.post("/tools/scripted__echo", content=send_slowly())) for _ in range(20)]
        assert (await client.get("/search?q=echo")).status_code == 200
        arrived.set()
        statuses = {response.status_code for response in await asyncio.gather(*slow)}
    assert 200 in statuses
    assert statuses <= {200, 503}


async def test_bodies_in_progress_are_bounded_in_bytes(
    app: App, secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_limits, "MAX_BODIES_BYTES", 200_000)
    async with serve(app) as url, connect(url, secrets["greedy"]) as client:
        refused = await client.post("/tools/scripted__echo", json={"text": "x" * 300_000})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert "bytes of request bodies" in refused.json()["error"]["message"]
        for _ in range(4):
            answer = await client.post("/tools/scripted__echo", json={"text": "x" * 90_000})
            assert answer.status_code == 200


# --- a key that is revoked ---


async def expect_end(
    request: AbstractAsyncContextManager[httpx.Response], first: bytes, revoke: Callable[[], Awaitable[object]]
) -> None:
    """Expects that the response ends once its key is revoked, after its first part."""
    async with asyncio.timeout(TIMEOUT_SECONDS), request as response:
        parts = response.aiter_raw()
        assert first in await anext(parts)
        await revoke()
        with pytest.raises(httpx.RemoteProtocolError):
            [part async for part in parts]


async def test_a_revoked_key_loses_its_event_stream(app: App) -> None:
    _, secret = await app.access.keys.create("streaming", [Scope.ADMIN])
    async with serve(app) as url, connect(url, secret) as client:
        request = client.stream("GET", "/servers", headers={"Accept": "text/event-stream"})
        await expect_end(request, b"event: servers", lambda: app.access.keys.revoke("streaming"))


async def test_a_revoked_key_loses_its_subscription(app: App) -> None:
    _, secret = await app.access.keys.create("listening", [Scope.SEARCH])
    prefix = "io.modelcontextprotocol"
    meta = {f"{prefix}/protocolVersion": NEWEST, f"{prefix}/clientCapabilities": {}}
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    headers = MCP_HEADERS | {"MCP-Protocol-Version": NEWEST, "Mcp-Method": "subscriptions/listen"}
    async with serve(app) as url, connect(url, secret) as client:
        request = client.stream("POST", "/mcp", json=body, headers=headers)
        await expect_end(request, b"acknowledged", lambda: app.access.keys.revoke("listening"))
    assert app.tools.native_changes.shares.taken == 0


async def test_a_revoked_key_loses_its_running_call(app: App) -> None:
    _, secret = await app.access.keys.create("calling", [Scope.CALL])
    async with serve(app) as url, connect(url, secret) as client, asyncio.timeout(TIMEOUT_SECONDS):
        call = asyncio.create_task(client.post("/tools/scripted__slow", json=SLOW))
        assert (await client.post("/tools/scripted__echo", json={"text": "meanwhile"})).status_code == 200
        await app.access.keys.revoke("calling")
        assert (await call).status_code == 401


def test_a_revoked_key_is_noticed_within_two_seconds() -> None:
    assert current_limits().keys_max_age + valid_requests.CHECK_SECONDS < 2
