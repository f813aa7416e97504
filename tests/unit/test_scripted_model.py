"""The scripted model for tests follows its script in the protocols of all clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.servers.scripted_model import FINAL_TEXT, SHORT_TEXT, ModelCall, ScriptedModel

SCRIPT = [ModelCall("search_tools", {"query": "echo"})]
NAME = "toolscript_search_tools"
CALL = "scripted_call_0"
# For each path: the tools of a request, and the conversation after the scripted call.
REQUESTS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "/v1/messages?beta=true": (
        [{"name": NAME, "input_schema": {}}],
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": CALL, "content": "found"}]}]},
    ),
    "/v1/chat/completions": (
        [{"type": "function", "function": {"name": NAME}}],
        {"messages": [{"role": "tool", "tool_call_id": CALL, "content": "found"}]},
    ),
    "/v1/responses": (
        [{"type": "namespace", "name": "toolscript", "tools": [{"type": "function", "name": "search_tools"}]}],
        {"input": [{"type": "function_call_output", "call_id": CALL, "output": "found"}]},
    ),
}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(SCRIPT) as model:
        yield model


def ask(model: ScriptedModel, path: str, **content: Any) -> str:
    answer = httpx.post(f"{model.root}{path}", json=content, trust_env=False)
    assert answer.status_code == 200
    kind = "text/event-stream" if content.get("stream") else "application/json"
    assert answer.headers["Content-Type"] == kind
    return answer.text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", REQUESTS)
def test_it_calls_the_tools_of_its_script_and_then_answers(model: ScriptedModel, path: str, stream: bool) -> None:
    tools, after = REQUESTS[path]
    called = ask(model, path, tools=tools, stream=stream)
    assert all(part in called for part in ("search_tools", CALL, "echo"))
    assert FINAL_TEXT in ask(model, path, tools=tools, stream=stream, **after)
    assert [turn.results for turn in model.turns] == [(), ('"found"',)]
    assert all(turn.offers("search_tools") and not turn.offers("search_tools", "call_tool") for turn in model.turns)


@pytest.mark.parametrize("path", REQUESTS)
def test_requests_without_tools_are_answered_and_are_no_turns(model: ScriptedModel, path: str) -> None:
    assert SHORT_TEXT in ask(model, path, stream=True)
    assert json.loads(ask(model, "/v1/messages/count_tokens", tools=REQUESTS[path][0])) == {"input_tokens": 1}
    assert httpx.get(f"{model.root}/v1/models", trust_env=False).json()["data"][0]["id"] == "scripted"
    assert model.turns == []


def test_a_tool_that_is_not_offered_is_named(model: ScriptedModel) -> None:
    assert "No tool search_tools is offered" in ask(model, "/v1/responses", tools=[{"type": "web_search"}])
    assert model.turns[0].tools == ("web_search",)
