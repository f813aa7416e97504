"""Named keys over MCP: a key sees and calls the tools of its scopes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fixtures.serving import fill_searches, replace_parts
from toolscript.app.app import App, local_token, open_app
from toolscript.domain.access import Scope
from toolscript.domain.documents import Document
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp.definitions import READ_SKILL, RUN_CODE, TOOL_SCOPES, TOOLS, build_instructions

pytestmark = [pytest.mark.req("X-04", "G-08", "G-19"), pytest.mark.usefixtures("read_keys_every_time")]

# The owner of the machine needs no key: tests/surfaces/access/test_owner.py
ELSEWHERE = ("192.0.2.1", 50_000)
ARGUMENTS = {"query": "tides", "tool_id": "none__such"}
HEADERS = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    settings = load_settings(variables={}, data_dir=tmp_path_factory.mktemp("keys"), search_model="hashed-64")
    async with open_app(settings, serving=True) as opened:
        await fill_searches(opened, "acme")
        await opened.texts.ingest_documents.put("acme", [Document("report", "the tides of acme")])
        yield opened


@dataclass
class Endpoint:
    """Sends MCP requests with the given headers."""

    client: httpx.AsyncClient

    async def post(self, method: str, headers: dict[str, str], **params: object) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.client.post("/mcp", json=body, headers=HEADERS | headers)

    async def list_tools(self, **headers: str) -> list[str]:
        return [tool["name"] for tool in (await self.post("tools/list", headers)).json()["result"]["tools"]]

    async def call(self, tool: str, **headers: str) -> tuple[bool, str]:
        """Whether the result is an error, and its text."""
        response = await self.post("tools/call", headers, name=tool, arguments=ARGUMENTS)
        result = response.json()["result"]
        return result.get("isError", False), result["content"][0]["text"]


@asynccontextmanager
async def serve_mcp(app: App, **settings: Any) -> AsyncIterator[Endpoint]:
    """The endpoint of the application with other settings."""
    app = replace_parts(app, settings=replace(app.settings, **settings))
    async with open_endpoint(ServedApp(app.settings, app)) as endpoint:
        yield endpoint


@asynccontextmanager
async def open_endpoint(served: ServedApp) -> AsyncIterator[Endpoint]:
    http = create_http_app(served)
    async with (
        http.router.lifespan_context(http),
        httpx.AsyncClient(transport=httpx.ASGITransport(http, client=ELSEWHERE), base_url="http://127.0.0.1") as client,
    ):
        yield Endpoint(client)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_every_tool_has_a_scope() -> None:
    sometimes = {READ_SKILL.name, RUN_CODE.name}
    assert [name for name in TOOL_SCOPES if name not in sometimes] == [tool.name for tool in TOOLS]
    assert {TOOL_SCOPES[name] for name in sometimes} == {Scope.CALL}


async def test_without_a_valid_key_nothing_is_answered_once_a_key_exists(app: App) -> None:
    async with serve_mcp(app) as mcp:
        if not await app.access.keys.list_all():
            assert await mcp.list_tools() == [tool.name for tool in TOOLS if tool.name != "search_documents"]
        _, secret = await app.access.keys.create("first", [Scope.SEARCH])
        for headers in ({}, bearer(f"{secret}x"), {"X-API-Key": "tsk_"}):
            for method in ("tools/list", "ping", "initialize"):
                assert (await mcp.post(method, headers)).status_code == 401


async def test_a_call_without_a_key_is_refused_also_when_it_arrives_while_the_gateway_starts(app: App) -> None:
    await app.access.keys.create("of-the-last-run", [Scope.METRICS])
    served = ServedApp(app.settings, ready=False)
    async with open_endpoint(served) as mcp:
        calls = [mcp.post("tools/call", {}, name=name, arguments=ARGUMENTS) for name in TOOL_SCOPES]
        early = [asyncio.create_task(request) for request in (*calls, mcp.post("initialize", {}))]
        _, unfinished = await asyncio.wait(early, timeout=0.1)
        assert len(unfinished) == len(early)
        served.current = app
        served.mark_ready()
        assert {response.status_code for response in await asyncio.gather(*early)} == {401}


async def test_a_call_with_a_key_that_arrives_while_the_gateway_starts_waits_for_it(app: App) -> None:
    _, secret = await app.access.keys.create("early", [Scope.SEARCH])
    served = ServedApp(app.settings, ready=False)
    async with open_endpoint(served) as mcp:
        early = asyncio.create_task(mcp.call("search_tools", **bearer(secret)))
        await asyncio.wait({early}, timeout=0.1)
        served.current = app
        served.mark_ready()
        assert (await early)[0] is False


async def test_a_key_sees_and_calls_the_tools_of_its_scope(app: App) -> None:
    async with serve_mcp(app) as mcp:
        for scope in Scope:
            _, secret = await app.access.keys.create(f"only-{scope}", [scope], tenant="acme")
            allowed = [tool.name for tool in TOOLS if TOOL_SCOPES[tool.name] is scope]
            assert await mcp.list_tools(**bearer(secret)) == allowed
            for name, needed in TOOL_SCOPES.items():
                is_error, text = await mcp.call(name, **bearer(secret))
                assert ("lacks the scope" in text) == (needed is not scope)
                if needed is not scope:
                    assert (is_error, f"lacks the scope {needed}" in text) == (True, True)


@pytest.mark.req("K-03")
async def test_public_knowledge_is_public_for_every_key(app: App) -> None:
    _, secret = await app.access.keys.create("calls", [Scope.CALL])
    async with serve_mcp(app, knowledge_public=True) as mcp:
        assert await mcp.list_tools(**{"X-API-Key": secret}) == ["call_tool", "read_result", "search_knowledge"]
        assert (await mcp.call("search_knowledge", **{"X-API-Key": secret}))[0] is False


@pytest.mark.req("K-03")
@pytest.mark.parametrize("api_key", [None, "k" * 32])
async def test_public_knowledge_needs_no_key_and_every_other_tool_does(app: App, api_key: str | None) -> None:
    await app.access.keys.create(f"beside-{api_key}", [Scope.CALL])
    async with serve_mcp(app, api_key=api_key) as mcp:
        assert (await mcp.post("tools/call", {}, name="search_knowledge", arguments=ARGUMENTS)).status_code == 401
    async with serve_mcp(app, api_key=api_key, knowledge_public=True) as mcp:
        assert await mcp.list_tools() == ["search_knowledge"]
        for name in TOOL_SCOPES:
            is_error, text = await mcp.call(name)
            assert is_error == (name != "search_knowledge")
            assert is_error == ("without a key" in text and "Authorization: Bearer KEY" in text)
        for wrong in ("Bearer tsk_x", "Bearer x", "Basic x"):
            for method in ("tools/list", "tools/call"):
                answer = await mcp.post(method, {"Authorization": wrong}, name="search_knowledge", arguments=ARGUMENTS)
                assert answer.status_code == 401
        assert (await mcp.post("tools/list", {"X-API-Key": "x"})).status_code == 401


@pytest.mark.req("K-03", "G-08")
async def test_a_client_without_a_key_learns_that_it_needs_one(app: App) -> None:
    _, secret = await app.access.keys.create("with-instructions", [Scope.SEARCH])
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    async with serve_mcp(app, knowledge_public=True) as mcp:
        without = (await mcp.post("initialize", {}, **params)).json()["result"]
        assert "Authorization: Bearer KEY" in without["instructions"]
        with_key = (await mcp.post("initialize", bearer(secret), **params)).json()["result"]
        seen = ["search_tools", "search_skills", "describe_tool", "search_knowledge"]
        assert with_key == without | {"instructions": build_instructions(seen)}
        assert [tool.name for tool in TOOLS if tool.name in with_key["instructions"]] == seen


@pytest.mark.req("D-04")
async def test_documents_need_the_scope_or_a_token_beside_the_key(app: App) -> None:
    _, metrics = await app.access.keys.create("metrics-of-acme", [Scope.METRICS])
    _, documents = await app.access.keys.create("documents-of-acme", [Scope.DOCUMENTS], tenant="acme")
    with_token = {"X-API-Key": metrics} | bearer(local_token(app.access.local_key, "acme"))
    async with serve_mcp(app) as mcp:
        for headers in (with_token, {"X-API-Key": documents}, bearer(documents)):
            assert await mcp.list_tools(**headers) == ["search_documents"]
            is_error, text = await mcp.call("search_documents", **headers)
            assert (is_error, "report" in text) == (False, True)


async def test_the_owner_of_the_data_folder_may_do_everything(app: App) -> None:
    await app.access.keys.create("another", [Scope.SEARCH])
    async with serve_mcp(app) as mcp:
        assert len(await mcp.list_tools(**bearer(local_token(app.access.local_key, "acme")))) == len(TOOLS)


@pytest.mark.req("D-10")
async def test_requests_are_counted_by_the_method_of_the_protocol(app: App) -> None:
    metrics = app.observability.metrics
    assert metrics is not None

    def count_routes() -> Counter[str]:
        counted: Counter[str] = Counter()
        for family in text_string_to_metric_families(metrics.exposition()[0].decode()):
            for sample in family.samples:
                if sample.name == "toolscript_http_requests_total":
                    counted[sample.labels["route"]] += int(sample.value)
        return counted

    before = count_routes()
    _, secret = await app.access.keys.create("everything", list(Scope), tenant="acme")
    async with serve_mcp(app) as mcp:
        for method in ("tools/list", "tools/list", "ping", "no/such/method", "no/other/method"):
            await mcp.post(method, bearer(secret))
        await mcp.call("search_tools", **bearer(secret))
    assert count_routes() - before == {"/mcp tools/list": 2, "/mcp ping": 1, "/mcp other": 2, "/mcp tools/call": 1}


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_headers_that_name_another_method_or_tool_give_no_rights(app: App, version: str) -> None:
    _, secret = await app.access.keys.create(f"liar-{version}", [Scope.SEARCH])
    lies = {"MCP-Protocol-Version": version, "Mcp-Method": "tools/list", "Mcp-Name": "search_tools"}
    prefix = "io.modelcontextprotocol"
    meta = {f"{prefix}/protocolVersion": version, f"{prefix}/clientCapabilities": {}} if version > "2026" else {}
    async with serve_mcp(app) as mcp:
        response = await mcp.post(
            "tools/call",
            bearer(secret) | lies,
            name="call_tool",
            arguments=ARGUMENTS,
            **({"_meta": meta} if meta else {}),
        )
        if version > "2026":
            assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)
        else:
            assert "call" in response.json()["result"]["content"][0]["text"]
            assert response.json()["result"]["isError"]


async def test_metrics_count_the_method_of_the_body(app: App) -> None:
    _, secret = await app.access.keys.create("counted-liar", [Scope.SEARCH, Scope.METRICS])
    lies = {"MCP-Protocol-Version": "2025-11-25", "Mcp-Method": "prompts/list", "Mcp-Name": "search_tools"}
    async with serve_mcp(app) as mcp:
        assert (await mcp.post("ping", bearer(secret) | lies)).status_code == 200
        exposition = (await mcp.client.get("/metrics", headers=bearer(secret))).text
    assert 'route="/mcp ping"' in exposition
    assert 'route="/mcp prompts/list"' not in exposition
