"""What a call passes on beside its arguments and its result: trace context, and requests whose headers lie."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.mcp_requests import NEWEST, build_request
from tests.fixtures.serving import serve
from tests.servers import make_scripted_server
from tests.servers.otlp import OtlpCollector
from toolscript.app.app import open_app
from toolscript.settings import load_settings

TIMEOUT_SECONDS = 60.0
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "tracestate": "vendor=1", "baggage": "user=ada"}
HEADER_MISMATCH = -32020


async def open_client(folder: Path, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    chosen = {"data_dir": folder, "search_model": "hashed-64", "index": "memory:", "port": 0} | settings
    async with open_app(load_settings(variables={}, **chosen)) as app:
        await app.servers.gateway.apply([make_scripted_server(tools=["meta", "echo"])])
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        async with serve(app) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS) as client:
            yield client


@pytest.fixture(scope="module")
async def client(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    async for opened in open_client(tmp_path_factory.mktemp("data")):
        yield opened


async def call_meta(client: httpx.AsyncClient, version: str = NEWEST, **meta: Any) -> dict[str, Any]:
    """The `_meta` that reaches the server."""
    request = build_request("scripted__meta", {}, version, **meta)
    response = await client.post("/mcp", json=request.body, headers=request.headers)
    seen: dict[str, Any] = response.json()["result"]["structuredContent"]
    return seen


@pytest.mark.req("G-05", "G-08", "D-12")
@pytest.mark.parametrize("version", ["2025-11-25", NEWEST])
async def test_the_trace_context_of_the_caller_reaches_the_server(client: httpx.AsyncClient, version: str) -> None:
    assert await call_meta(client, version, **CALLER, other="stays here") == CALLER
    assert await call_meta(client, version, traceparent=7, baggage="a=b") == {"baggage": "a=b"}
    assert await call_meta(client, version) == {}


@pytest.mark.req("G-05", "D-12")
async def test_the_trace_headers_of_an_http_call_reach_the_server(client: httpx.AsyncClient) -> None:
    response = await client.post("/tools/scripted__meta", json={}, headers=CALLER)
    assert response.json() == CALLER


@pytest.mark.req("G-05", "G-08", "D-12")
async def test_with_telemetry_our_span_is_between_caller_and_server(tmp_path: Path) -> None:
    with OtlpCollector() as collector:
        async for client in open_client(tmp_path, otlp_endpoint=collector.root):
            seen = await call_meta(client, **CALLER)
    (span,) = [span for span in collector.spans if span.name == "tools.call"]
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")
    assert seen == CALLER | {"traceparent": f"00-{TRACE}-{span.span_id.hex()}-01"}


@pytest.mark.req("G-08")
@pytest.mark.parametrize(
    "lie",
    [
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": "ping"},
        {"Mcp-Name": "search_tools"},
        {"Mcp-Name": "scripted__echo"},
        {"MCP-Protocol-Version": "2026-07-29"},
    ],
    ids=str,
)
async def test_a_request_whose_headers_differ_from_its_body_is_refused(
    client: httpx.AsyncClient, lie: dict[str, str]
) -> None:
    request = build_request("scripted__echo", {"text": "hello"}, NEWEST)
    response = await client.post("/mcp", json=request.body, headers=request.headers | lie)
    assert response.status_code == 400
    assert response.json()["error"]["code"] in {HEADER_MISMATCH, -32022}
    assert "hello" not in response.text
