"""A person's approval before a call: clients of both eras are asked, all other calls wait for a decision, nobody can
forge it."""

from __future__ import annotations

import asyncio
import json
import re
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
from tests.fixtures.requests import as_request
from tests.fixtures.serving import serve
from tests.servers import make_scripted_server
from toolscript.app.app import App, open_app
from toolscript.domain.access import ApprovalPolicy, PendingState, Principal, Scope
from toolscript.domain.profiles import Profile
from toolscript.domain.servers import CallRelay, CallResult
from toolscript.services.tools.approval import QUESTION_KEY
from toolscript.settings import load_settings
from toolscript.surfaces.mcp.native import answer_request
from toolscript.surfaces.mcp.relay import build_relay
from toolscript.surfaces.mcp.server import answer_call, build_server

pytestmark = pytest.mark.req("G-08", "G-13")

TIMEOUT_SECONDS = 60.0
PROFILE = "careful"
ALLOW = {"action": "accept", "content": {"allow": True}}
DECLINE = {"action": "decline"}
NAME = {"action": "accept", "content": {"name": "Ada"}}
ECHO = "older__echo"
REFUSED_STATE = "the requestState is not one that this gateway gave to you for this call"
CANNOT_ASK = (
    "older__echo needs a person's approval before each call, and this caller cannot be asked. The call waits as "
    r"(\w{6}) for another 15 min: ask a person to approve it, with `toolscript approvals approve \1` or on the page "
    "Access of the console, and repeat the same call after it is approved"
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Sends plain requests of 2026-07-28 to the profile whose calls need approval."""

    http: httpx.AsyncClient

    async def send(self, tool: str, arguments: dict[str, Any], *, version: str = NEWEST, **params: Any) -> Any:
        """The response to a call that carries further parameters."""
        capabilities = params.pop("capabilities", {"elicitation": {"form": {}}})
        request = build_request(tool, arguments, version, capabilities)
        request.body["params"] |= params
        return (await self.http.post(f"/mcp/{PROFILE}", json=request.body, headers=request.headers)).json()

    async def get_question(self, tool: str = ECHO, arguments: dict[str, Any] | None = None) -> tuple[str, str]:
        """The question, and the sealed state."""
        result = (await self.send(tool, {"text": "a"} if arguments is None else arguments))["result"]
        assert result["resultType"] == "input_required"
        (question,) = [result["inputRequests"][QUESTION_KEY]]
        assert question["method"] == "elicitation/create"
        return str(question["params"]["message"]), str(result["requestState"])

    async def answer(
        self, state: str, answer: Any = ALLOW, tool: str = ECHO, arguments: dict[str, Any] | None = None
    ) -> Any:
        """The response to a call with an answer to the question."""
        given = {"text": "a"} if arguments is None else arguments
        return await self.send(tool, given, inputResponses={QUESTION_KEY: answer}, requestState=state)


def read_error(response: dict[str, Any]) -> str:
    """The text of a result that is an error, or the message of an error."""
    if "error" in response:
        return str(response["error"]["message"])
    assert response["result"]["isError"]
    return str(response["result"]["content"][0]["text"])


async def count_calls(app: App) -> int:
    """How many calls have reached the server, by this one's own answer, which needs no approval."""
    return int((await app.tools.call.call("older__seen", {})).structured["tools/call"])


@asynccontextmanager
async def open_with_servers(folder: Path, **settings: Any) -> AsyncIterator[App]:
    chosen = {"data_dir": folder, "search_model": "hashed-64", "index": "memory:", "port": 0} | settings
    async with open_app(load_settings(variables={}, **chosen)) as app:
        older = make_scripted_server("older", tools=["ask", "echo", "seen"])
        await app.servers.gateway.apply([older, make_scripted_server("modern", tools=["ask"], modern=True)])
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        app.access.profiles.replace([Profile(PROFILE, approval=ApprovalPolicy.WRITES, pinned=(ECHO,))])
        yield app


@asynccontextmanager
async def call_over_http(app: App, **headers: str) -> AsyncIterator[Caller]:
    async with serve(app) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS, headers=headers) as client:
        yield Caller(client)


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("data")
    async with open_with_servers(folder, events=str(folder / "events.jsonl")) as opened:
        yield opened


@pytest.fixture(scope="module")
async def caller(app: App) -> AsyncIterator[Caller]:
    async with call_over_http(app) as opened:
        yield opened


async def test_a_call_reaches_the_server_once_it_is_approved(app: App, caller: Caller) -> None:
    before = await count_calls(app)
    message, state = await caller.get_question(arguments={"text": "a", "token": "hunter2"})
    assert message.startswith("Allow older__echo (of the server older) with these arguments?")
    assert '"text": "a"' in message
    assert "hunter2" not in message
    assert await count_calls(app) == before + 1
    answered = await caller.answer(state, arguments={"text": "a", "token": "hunter2"})
    assert answered["result"]["structuredContent"] == {"text": "a", "token": "hunter2"}
    assert await count_calls(app) == before + 3


async def test_a_declined_call_does_not_reach_the_server(app: App, caller: Caller) -> None:
    before = await count_calls(app)
    _, state = await caller.get_question()
    assert read_error(await caller.answer(state, DECLINE)).startswith("older__echo was not called: the user ")
    assert "was used already" in read_error(await caller.answer(state))
    assert await count_calls(app) == before + 1


async def test_an_approval_cannot_be_forged_moved_or_used_twice(app: App, caller: Caller) -> None:
    before = await count_calls(app)
    unrequested = await caller.send(ECHO, {"text": "a"}, inputResponses={QUESTION_KEY: ALLOW})
    assert unrequested["result"]["resultType"] == "input_required"
    _, state = await caller.get_question()
    changed = state[:-2] + ("AA" if state[-2:] != "AA" else "BB")
    own = json.dumps({"approved": "me", "for": "this", "until": 9e9})
    for tool, arguments, sent in (
        (ECHO, {"text": "b"}, state),
        ("older__ask", {}, state),
        (ECHO, {"text": "a"}, changed),
        (ECHO, {"text": "a"}, own),
    ):
        assert read_error(await caller.answer(sent, ALLOW, tool, arguments)).startswith(REFUSED_STATE)
    assert await count_calls(app) == before + 1
    assert "result" in await caller.answer(state)
    assert "was used already" in read_error(await caller.answer(state))
    assert await count_calls(app) == before + 3


async def test_an_approval_is_its_callers_own(tmp_path: Path) -> None:
    async with open_with_servers(tmp_path) as app:
        (_, ada), (_, ben) = [await app.access.keys.create(name, [Scope.SEARCH, Scope.CALL]) for name in ("ada", "ben")]
        async with (
            call_over_http(app, Authorization=f"Bearer {ada}") as first,
            call_over_http(app, Authorization=f"Bearer {ben}") as second,
        ):
            _, state = await first.get_question()
            assert read_error(await second.answer(state)).startswith(REFUSED_STATE)
            assert "structuredContent" in (await first.answer(state))["result"]


async def test_gateways_that_share_store_and_secret_accept_an_approval_once_together(tmp_path: Path) -> None:
    shared = {"store": f"sqlite:///{tmp_path / 'store.db'}", "page_secret": "the same for all gateways"}
    async with open_with_servers(tmp_path / "one", **shared) as app, call_over_http(app) as caller:
        _, first = await caller.get_question()
        _, second = await caller.get_question()
        assert "structuredContent" in (await caller.answer(first))["result"]
    async with open_with_servers(tmp_path / "two", **shared) as app, call_over_http(app) as caller:
        assert "was used already" in read_error(await caller.answer(first))
        assert "structuredContent" in (await caller.answer(second))["result"]


async def test_a_server_that_asks_too_is_approved_once_and_gets_its_own_state_and_answers(caller: Caller) -> None:
    _, first = await caller.get_question("modern__ask", {})
    needed = (await caller.answer(first, ALLOW, "modern__ask", {}))["result"]
    assert list(needed["inputRequests"]) == ["name"]
    second = needed["requestState"]
    assert "state of" not in second
    responses = {"name": NAME, QUESTION_KEY: DECLINE}
    answered = (await caller.send("modern__ask", {}, inputResponses=responses, requestState=second))["result"]
    assert answered["structuredContent"]["responses"] == responses
    assert answered["structuredContent"]["isMine"]
    again = await caller.send("modern__ask", {}, inputResponses=responses, requestState=second)
    assert "was used already" in read_error(again)
    old = await caller.answer(first, ALLOW, "modern__ask", {})
    assert "was used already" in read_error(old)


async def test_a_caller_without_forms_gets_the_same_sentence_over_http_and_mcp(tmp_path: Path) -> None:
    async with open_with_servers(tmp_path, approval="writes") as app, call_over_http(app) as caller:
        over_http = await caller.http.post("/tools/older__echo", json={"text": "a"})
        assert over_http.status_code == 403
        error = over_http.json()["error"]
        assert error["code"] == "APPROVAL_REQUIRED"
        sentence = re.fullmatch(CANNOT_ASK, error["message"])
        assert sentence
        assert error["details"] == {"tool": "older__echo", "server": "older", "approval": sentence[1]}
        assert (await caller.http.get("/tools/older__echo")).json()["needsApproval"] is True
        only_urls: dict[str, Any] = {"elicitation": {"url": {}}}
        for version, capabilities in ((NEWEST, {}), (NEWEST, only_urls), ("2025-11-25", {})):
            answer = await caller.send(ECHO, {"text": "a"}, version=version, capabilities=capabilities)
            assert re.fullmatch(CANNOT_ASK, read_error(answer))


@pytest.mark.parametrize("version", [NEWEST, "2025-11-25"])
async def test_a_call_of_a_client_without_forms_waits_and_reaches_the_server_once_it_is_approved(
    app: App, caller: Caller, version: str
) -> None:
    async def send() -> Any:
        return await caller.send(ECHO, {"text": f"waits in {version}"}, version=version, capabilities={})

    before = await count_calls(app)
    waits = read_error(await send())
    (pending,) = await app.tools.approvals.pending.list_waiting()
    assert (pending.tool_id, pending.profile, pending.caller) == (ECHO, PROFILE, "address 127.0.0.1")
    assert read_error(await send()) == waits
    await app.tools.approvals.pending.decide(pending.id, PendingState.APPROVED, decider=None)
    assert (await send())["result"]["structuredContent"] == {"text": f"waits in {version}"}
    assert await count_calls(app) == before + 2
    again = re.fullmatch(CANNOT_ASK, read_error(await send()))
    assert again
    assert again[1] != pending.id
    await app.tools.approvals.pending.decide(again[1], PendingState.DECLINED, decider=None)
    assert read_error(await send()).startswith("older__echo was not called: a person declined it")
    assert await app.tools.approvals.pending.list_waiting() == []


async def test_searches_and_descriptions_say_which_tools_need_approval(app: App) -> None:
    async with open_client(app, "legacy", DECLINE, []) as client:
        found = await client.call_tool("search_tools", {"query": ECHO})
        described = await client.call_tool("describe_tool", {"tool_id": ECHO})
    for result, text in ((found, "older__echo  "), (described, '"needsApproval": true')):
        assert isinstance(result, CallToolResult)
        assert isinstance(result.content[0], TextContent)
        assert text in result.content[0].text
    assert "(needs approval)\n" in found.content[0].text  # type: ignore[union-attr]


@asynccontextmanager
async def open_client(app: App, mode: Any, answer: dict[str, Any], questions: list[str]) -> AsyncIterator[Client]:
    """A client of the SDK without HTTP, which answers the question like that and all others with a name."""

    async def find_tenant() -> Principal:
        return Principal("default")

    async def answer_request_of_client(params: Any, context: Any) -> Any:
        with as_request(profile=PROFILE):
            return await answer_call(app, params, find_tenant, relay=build_relay(context))

    async def elicit(context: Any, params: ElicitRequestParams) -> ElicitResult:
        questions.append(params.message)
        return ElicitResult.model_validate(answer if params.message.startswith("Allow ") else NAME)

    native = partial(answer_request, app)
    built = build_server(
        answer_request_of_client, lambda method, params, _: native(method, params), app.tools.native_changes.open
    )
    async with Client(built, mode=mode, elicitation_callback=elicit) as client:
        yield client


@pytest.mark.parametrize("mode", [NEWEST, "legacy"])
@pytest.mark.parametrize("server", ["modern", "older"])
async def test_clients_of_both_eras_get_the_question_once_even_if_the_server_asks_too(
    app: App, mode: str, server: str
) -> None:
    questions: list[str] = []
    async with open_client(app, mode, ALLOW, questions) as client:
        result = await client.call_tool("call_tool", {"tool_id": f"{server}__ask"})
    assert isinstance(result, CallToolResult)
    assert questions[0].startswith(f"Allow {server}__ask ")
    if mode == NEWEST and server == "older":  # it asks a client that cannot be asked while the tool waits
        assert len(questions) == 1
        assert "this caller cannot be asked" in result.content[0].text  # type: ignore[union-attr]
    else:
        assert questions[1:] == ["Your name?"]
        assert result.structured_content


@pytest.mark.parametrize("mode", [NEWEST, "legacy"])
@pytest.mark.parametrize("answer", [ALLOW, DECLINE])
async def test_a_pinned_tool_needs_approval_under_its_own_name(app: App, mode: str, answer: dict[str, Any]) -> None:
    questions: list[str] = []
    async with open_client(app, mode, answer, questions) as client:
        result = await client.call_tool(ECHO, {"text": "a"})
    assert isinstance(result, CallToolResult)
    assert len(questions) == 1
    assert result.structured_content == ({"text": "a"} if answer is ALLOW else None)


async def test_wrong_arguments_and_unknown_tools_are_refused_without_a_question(caller: Caller) -> None:
    assert "text" in read_error(await caller.send(ECHO, {"text": 7}))
    assert "no such tool" in read_error(await caller.send("older__nothing", {}))


async def test_the_audit_says_how_each_call_ended(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    async with open_with_servers(tmp_path, events=str(file)) as app, call_over_http(app) as caller:
        _, state = await caller.get_question()
        await caller.answer(state, DECLINE)
        _, state = await caller.get_question()
        await caller.answer(state)
        await caller.answer(state)
    events = [json.loads(line) for line in file.read_text().splitlines()]
    calls = [(event["tool"], event["error"]) for event in events if event["type"] == "tools.call"]
    outcomes = ["APPROVAL_REQUIRED", "APPROVAL_DECLINED", "APPROVAL_REQUIRED", None, "APPROVAL_REQUIRED"]
    assert calls == [(ECHO, outcome) for outcome in outcomes]


def test_the_time_of_a_call_stands_still_while_a_person_decides(tmp_path: Path) -> None:
    """It has an event loop of its own, whose clock goes forward while the person thinks."""

    async def call() -> CallResult:
        think = think_for(500, ALLOW)
        async with open_with_servers(tmp_path, approval="writes") as app:
            relay = CallRelay(capabilities={"elicitation": {}}, ask=think)
            return await app.tools.call.call(ECHO, {"text": "a"}, within=TIMEOUT_SECONDS, relay=relay)

    assert asyncio.run(call()).structured == {"text": "a"}
