"""Tools that need input of their caller, before and since 2026-07-28."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent

from tests.fixtures.coroutines import think_for
from tests.fixtures.mcp_requests import NEWEST, build_request
from tests.fixtures.serving import serve
from tests.servers import make_scripted_server
from toolscript.app.app import App, open_app
from toolscript.domain.access import Principal, Scope
from toolscript.domain.servers import CallRelay, CallResult
from toolscript.settings import load_settings
from toolscript.surfaces.mcp.native import answer_request
from toolscript.surfaces.mcp.relay import build_relay
from toolscript.surfaces.mcp.server import answer_call, build_server

pytestmark = pytest.mark.req("G-05", "G-08")

TIMEOUT_SECONDS = 60.0
CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}, "roots": {}}
QUESTION = {"message": "Your name?", "mode": "form", "requestedSchema": {"type": "object", "properties": {}}}
ANSWER = {"action": "accept", "content": {"name": "Ada"}}
SECRET = "the same for all gateways"
REFUSAL = "the requestState is not one that this gateway gave to you for this call"


@dataclass(frozen=True, slots=True)
class Caller:
    """Sends plain requests of 2026-07-28."""

    http: httpx.AsyncClient

    async def send(self, tool: str, arguments: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        """The response to a call that carries further parameters."""
        request = build_request(tool, arguments or {}, NEWEST, CAPABILITIES)
        request.body["params"] |= params
        response: dict[str, Any] = (await self.http.post("/mcp", json=request.body, headers=request.headers)).json()
        return response

    async def ask(self, tool: str = "modern__ask", arguments: dict[str, Any] | None = None) -> str:
        """The sealed state of a tool that needs input."""
        result = (await self.send(tool, arguments))["result"]
        assert result["resultType"] == "input_required"
        return str(result["requestState"])


@asynccontextmanager
async def open_with_servers(folder: Path, **settings: Any) -> AsyncIterator[App]:
    chosen = {"data_dir": folder, "search_model": "hashed-64", "index": "memory:", "port": 0} | settings
    async with open_app(load_settings(variables={}, **chosen)) as opened:
        servers = [make_scripted_server(name, tools=["ask"], modern=name != "older") for name in ("modern", "older")]
        await opened.servers.gateway.apply([*servers, make_scripted_server("other", tools=["ask"], modern=True)])
        await opened.servers.gateway.settle(TIMEOUT_SECONDS)
        yield opened


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with open_with_servers(tmp_path_factory.mktemp("data"), page_secret=SECRET) as opened:
        yield opened


@asynccontextmanager
async def call_over_http(app: App, **headers: str) -> AsyncIterator[Caller]:
    async with serve(app) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS, headers=headers) as client:
        yield Caller(client)


@pytest.fixture(scope="module")
async def caller(app: App) -> AsyncIterator[Caller]:
    async with call_over_http(app) as opened:
        yield opened


async def test_questions_and_answers_pass_unchanged(caller: Caller) -> None:
    result = (await caller.send("modern__ask"))["result"]
    assert result["inputRequests"] == {"name": {"method": "elicitation/create", "params": QUESTION}}
    assert "content" not in result
    assert "state of" not in result["requestState"]
    state, responses = result["requestState"], {"name": ANSWER}
    answered = (await caller.send("modern__ask", inputResponses=responses, requestState=state))["result"]
    assert answered["structuredContent"] == {"responses": responses, "isMine": True, "capabilities": CAPABILITIES}


async def test_a_changed_or_foreign_state_is_refused(caller: Caller) -> None:
    state = await caller.ask()
    changed = state[:-2] + ("AA" if state[-2:] != "AA" else "BB")
    for tool, arguments, sent in (
        ("modern__ask", {}, changed),
        ("modern__ask", {}, "state of 7"),
        ("modern__ask", {"method": "roots/list"}, state),
        ("other__ask", {}, state),
        ("older__ask", {}, state),
    ):
        response = await caller.send(tool, arguments, inputResponses={"name": ANSWER}, requestState=sent)
        assert response["error"]["code"] == -32602
        assert response["error"]["message"].startswith(REFUSAL)


async def test_the_state_of_another_caller_is_refused(tmp_path: Path) -> None:
    async with open_with_servers(tmp_path) as app:
        (_, ada), (_, ben) = [await app.access.keys.create(name, [Scope.SEARCH, Scope.CALL]) for name in ("ada", "ben")]
        async with (
            call_over_http(app, Authorization=f"Bearer {ada}") as first,
            call_over_http(app, Authorization=f"Bearer {ben}") as second,
        ):
            state = await first.ask()
            assert "result" in await first.send("modern__ask", inputResponses={}, requestState=state)
            stolen = await second.send("modern__ask", inputResponses={"name": ANSWER}, requestState=state)
    assert stolen["error"]["message"].startswith(REFUSAL)


@pytest.mark.extended
@pytest.mark.parametrize("secret", [SECRET, "another one", None])
async def test_gateways_with_the_same_secret_continue_each_others_calls(
    caller: Caller, tmp_path: Path, secret: str | None
) -> None:
    state = await caller.ask()
    async with open_with_servers(tmp_path, page_secret=secret) as app, call_over_http(app) as other:
        response = await other.send("modern__ask", inputResponses={"name": ANSWER}, requestState=state)
    assert ("result" in response) == (secret == SECRET)


async def test_a_caller_who_cannot_answer_gets_one_clear_sentence(caller: Caller) -> None:
    over_http = await caller.http.post("/tools/modern__ask", json={})
    assert over_http.status_code == 502
    sentence = "modern__ask needs input of its caller, who cannot be asked here"
    assert over_http.json()["error"]["message"].startswith(sentence)
    older = build_request("modern__ask", {}, "2025-11-25")
    result = (await caller.http.post("/mcp", json=older.body, headers=older.headers)).json()["result"]
    assert result["isError"]
    assert result["content"][0]["text"].startswith(sentence)


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
async def test_an_older_server_learns_that_its_caller_cannot_answer(caller: Caller, method: str) -> None:
    received = (await caller.send("older__ask", {"method": method}))["result"]["structuredContent"]
    if method == "roots/list":
        assert received == {"result": {"roots": []}}
    else:
        assert received["error"]["message"].startswith(f"{method} did not reach the caller of the tool: this caller")


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("server", ["modern", "older"])
async def test_a_client_of_the_sdk_gets_questions_in_its_own_version(app: App, mode: Any, server: str) -> None:
    async def find_tenant() -> Principal:
        return Principal("default")

    async def answer(params: Any, context: Any) -> Any:
        return await answer_call(app, params, find_tenant, relay=build_relay(context))

    async def elicit(context: Any, params: ElicitRequestParams) -> ElicitResult:
        assert params.message == "Your name?"
        return ElicitResult(action="accept", content={"name": "Ada"})

    native = partial(answer_request, app)
    built = build_server(answer, lambda method, params, _: native(method, params), app.tools.native_changes.open)
    async with Client(built, mode=mode, elicitation_callback=elicit) as client:
        result = await client.call_tool("call_tool", {"tool_id": f"{server}__ask"})
    assert isinstance(result, CallToolResult)
    if mode == "2026-07-28" and server == "older":
        assert isinstance(result.content[0], TextContent)
        assert "this caller cannot be asked" in result.content[0].text
    elif server == "older":
        assert result.structured_content == {"result": ANSWER}
    else:
        assert result.structured_content is not None
        assert result.structured_content["responses"] == {"name": ANSWER}
        assert result.structured_content["isMine"]
        assert "elicitation" in result.structured_content["capabilities"]


def test_the_time_of_a_call_stands_still_while_the_caller_answers(tmp_path: Path) -> None:
    """It has an event loop of its own, whose clock goes forward while the caller thinks."""

    async def call() -> CallResult:
        think = think_for(500, ANSWER)
        async with open_with_servers(tmp_path) as app:
            relay = CallRelay(capabilities=CAPABILITIES, ask=think)
            return await app.tools.call.call("older__ask", {}, within=TIMEOUT_SECONDS, relay=relay)

    assert asyncio.run(call()).structured == {"result": ANSWER}
