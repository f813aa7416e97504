"""Results of tools, from the server behind the gateway to clients of every version of the protocol."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from mcp_types import CallToolResult
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from tests.fixtures.examples import choose
from tests.fixtures.mcp_requests import NEWEST, build_request
from tests.fixtures.serving import serve
from tests.servers import make_scripted_server
from toolscript.app.app import App, open_app
from toolscript.domain.errors import ToolFailed
from toolscript.settings import load_settings
from toolscript.surfaces.mcp.results import fit_result

TIMEOUT_SECONDS = 60.0
TEXT = {"type": "text", "text": "Look:", "annotations": {"audience": ["user"], "priority": 0.5}, "_meta": {"a": None}}
BLOCKS: list[dict[str, Any]] = [
    TEXT,
    {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png", "sizes": "an unknown field"},
    {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "memo://welcome", "name": "welcome", "icons": [{"src": "memo://icon"}]},
    {"type": "resource", "resource": {"uri": "memo://welcome", "text": "Welcome.", "_meta": {"b": 1}}},
]
# The same, with URIs that can be read through the gateway.
PASSED_ON: list[dict[str, Any]] = [
    *BLOCKS[:3],
    BLOCKS[3] | {"uri": "toolscript:scripted/memo://welcome"},
    {"type": "resource", "resource": BLOCKS[4]["resource"] | {"uri": "toolscript:scripted/memo://welcome"}},
]
HOLOGRAM = {"type": "hologram", "light": 7}
VALUES: list[Any] = [{"a": None}, ["x", {"y": 1}], "text", 7, 0.5, True, False, None, [], {}, ""]


@dataclass(frozen=True, slots=True)
class Caller:
    """A client that sends plain requests, because the SDK's client would read only what it knows."""

    http: httpx.AsyncClient

    async def call(self, result: Any, version: str | None = NEWEST) -> dict[str, Any]:
        """The gateway's result of a call whose server answers with `result`."""
        request = build_request("scripted__answer", {"result": result}, version)
        response = await self.http.post("/mcp", json=request.body, headers=request.headers)
        answer: dict[str, Any] = response.json()["result"]
        return answer


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("data")
    settings = load_settings(variables={}, data_dir=folder, search_model="hashed-64", index="memory:", port=0)
    async with open_app(settings) as opened:
        await opened.servers.gateway.apply([make_scripted_server(tools=["answer", "count", "fail"])])
        await opened.servers.gateway.settle(TIMEOUT_SECONDS)
        yield opened


@pytest.fixture(scope="module")
async def caller(app: App) -> AsyncIterator[Caller]:
    async with serve(app) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS) as client:
        yield Caller(client)


@pytest.mark.req("G-05", "G-08")
@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_structured_content_of_any_json_type_comes_as_it_is(caller: Caller, value: Any) -> None:
    answer = await caller.call({"content": [TEXT], "structuredContent": value})
    assert json.dumps(answer["structuredContent"]) == json.dumps(value)
    assert answer["content"] == [TEXT]


@pytest.mark.req("G-05", "G-08")
@pytest.mark.parametrize("version", choose([None, *HANDSHAKE_PROTOCOL_VERSIONS], None, HANDSHAKE_PROTOCOL_VERSIONS[-1]))
@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_older_clients_get_other_values_than_objects_as_text(
    caller: Caller, version: str | None, value: Any
) -> None:
    answer = await caller.call({"content": [TEXT], "structuredContent": value}, version)
    if isinstance(value, dict):
        assert (answer["structuredContent"], answer["content"]) == (value, [TEXT])
    else:
        assert "structuredContent" not in answer
        assert json.dumps(json.loads(answer["content"][1]["text"])) == json.dumps(value)
    assert "resultType" not in answer


@pytest.mark.parametrize("text", ["[1, 2]", "[1,2]", "[\n  1,\n  2\n]"])
def test_text_that_a_server_sent_beside_its_value_is_not_sent_twice(text: str) -> None:
    result = {"content": [{"type": "text", "text": text}], "structuredContent": [1, 2]}
    assert fit_result(result, "2025-11-25") == {"content": result["content"]}


def test_one_is_not_the_text_of_true() -> None:
    result = {"content": [{"type": "text", "text": "1"}], "structuredContent": True}
    assert [block["text"] for block in fit_result(result, "2025-11-25")["content"]] == ["1", "true"]


@pytest.mark.req("G-05", "G-08")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", NEWEST])
async def test_blocks_come_with_annotations_and_fields_that_nobody_knows(caller: Caller, version: str) -> None:
    answer = await caller.call({"content": BLOCKS, "_meta": {"trace": {"id": None}}, "isError": False}, version)
    assert answer["content"] == PASSED_ON
    assert answer["_meta"]["trace"] == {"id": None}
    CallToolResult.model_validate(answer)


@pytest.mark.req("G-05", "G-08")
@pytest.mark.parametrize(
    ("version", "known"),
    [("2024-11-05", {"text", "image", "resource"}), ("2025-03-26", {"text", "image", "audio", "resource"})],
)
async def test_blocks_that_came_later_are_text_for_older_clients(caller: Caller, version: str, known: set[str]) -> None:
    answer = await caller.call({"content": BLOCKS}, version)
    for sent, received in zip(PASSED_ON, answer["content"], strict=True):
        assert (received if sent["type"] in known else json.loads(received["text"])) == sent


@pytest.mark.req("G-05", "G-08")
@pytest.mark.parametrize("version", [NEWEST, "2025-11-25"])
async def test_only_an_unknown_block_becomes_text(caller: Caller, version: str) -> None:
    answer = await caller.call({"content": [BLOCKS[1], HOLOGRAM, TEXT]}, version)
    assert answer["content"][::2] == [BLOCKS[1], TEXT]
    assert json.loads(answer["content"][1]["text"]) == HOLOGRAM


@pytest.mark.req("G-05", "G-08")
@pytest.mark.parametrize("version", [NEWEST, "2025-11-25"])
async def test_the_blocks_of_an_error_come_as_they_are(caller: Caller, version: str) -> None:
    failed = {"content": BLOCKS, "structuredContent": {"code": 7}, "isError": True, "_meta": {"kept": [1]}}
    answer = await caller.call(failed, version)
    assert {key: answer[key] for key in ("content", "structuredContent", "isError")} == {
        "content": PASSED_ON,
        "structuredContent": {"code": 7},
        "isError": True,
    }
    assert answer["_meta"]["kept"] == [1]


@pytest.mark.req("G-05", "G-08")
@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ({"content": []}, []),
        ({"structuredContent": {"a": 1}}, [{"type": "text", "text": '{"a": 1}'}]),
        ({"content": None, "isError": "no", "_meta": 7}, []),
        ({"content": ["text", TEXT]}, [TEXT]),
        ({}, []),
    ],
    ids=repr,
)
async def test_a_result_without_usable_content_is_still_valid(caller: Caller, sent: Any, received: Any) -> None:
    answer = await caller.call(sent)
    assert (answer["content"], answer["isError"]) == (received, False)
    CallToolResult.model_validate(answer)


@pytest.mark.req("G-05")
@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_http_answers_with_the_structured_content(caller: Caller, value: Any) -> None:
    result = {"content": [TEXT], "structuredContent": value}
    response = await caller.http.post("/tools/scripted__answer", json={"result": result})
    assert response.status_code == 200
    assert json.dumps(response.json()) == json.dumps({"content": [TEXT]} if value is None else value)


@pytest.mark.req("G-05")
async def test_http_keeps_its_error_for_a_tool_that_failed(app: App, caller: Caller) -> None:
    response = await caller.http.post("/tools/scripted__fail", json={"message": "out of ink"})
    assert response.status_code == 502
    assert response.json()["error"] == {
        "code": "UPSTREAM_ERROR",
        "message": "scripted__fail failed: out of ink",
        "details": {"server": "scripted"},
    }
    with pytest.raises(ToolFailed, match="out of ink") as failed:
        await app.tools.call.call("scripted__fail", {"message": "out of ink"})
    assert failed.value.result.content == [{"type": "text", "text": "out of ink"}]


@pytest.mark.req("G-08")
@pytest.mark.parametrize("version", ["2025-11-25", NEWEST])
@pytest.mark.parametrize("accepts", ["application/json", "application/json, text/event-stream"])
@pytest.mark.parametrize("steps", [0, 3])
async def test_a_response_is_a_stream_only_when_progress_comes_first(
    caller: Caller, version: str, accepts: str, steps: int
) -> None:
    request = build_request("scripted__count", {"steps": 3}, version)
    if steps:
        request.body["params"].setdefault("_meta", {})["progressToken"] = "mine"
    response = await caller.http.post("/mcp", json=request.body, headers=request.headers | {"Accept": accepts})
    if steps and "event-stream" in accepts:
        assert response.headers["content-type"].startswith("text/event-stream")
        messages = [json.loads(line[5:]) for line in response.text.splitlines() if line.startswith("data:")]
        assert [m["params"]["progress"] for m in messages[:-1]] == [1, 2, 3]
        assert {m["params"]["progressToken"] for m in messages[:-1]} == {"mine"}
    else:
        messages = [response.json()]
    assert messages[-1]["result"]["content"] == [{"type": "text", "text": "counted"}]
