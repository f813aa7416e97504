"""The answers that a pipe gives before a gateway serves are those that the gateway itself would give."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from tests.fixtures.examples import scale_examples
from toolscript.pipe.conversation import LISTS, NEWEST_HANDSHAKE, Conversation
from toolscript.pipe.early_answers import EarlyAnswers
from toolscript.services.tools.native_changes import ChangeFilter, ChangeStream
from toolscript.surfaces.mcp.early_answers import VERSIONS, collect_default_answers, format_answers
from toolscript.surfaces.mcp.server import serve_lines
from toolscript.surfaces.mcp.tool_list import list_own_tools

pytestmark = pytest.mark.req("A-06")

PACKAGED = Path(__file__).parents[3] / "src" / "toolscript" / "data" / "early_answers"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
ABOUT = {"name": "client", "version": "1"}


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_packaged_answers_are_those_of_a_gateway_without_tools(version: str) -> None:
    assert format_answers(await collect_default_answers(version)) == (PACKAGED / version).read_bytes(), "run: make docs"


def test_other_versions_get_the_newest_with_a_handshake() -> None:
    assert NEWEST_HANDSHAKE == LATEST_HANDSHAKE_VERSION


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-20],
        lambda content: content.replace(b"Search tools", b"Break tools"),
        lambda content: content.replace(b'"toolscript": "', b'"toolscript": "9.'),
        lambda content: b"",
        lambda content: b"\xff\x00\n" + content,
        lambda content: b"[]\n",
    ],
    ids=["truncated", "changed", "of another version", "empty", "not text", "not an object"],
)
def test_damaged_answers_are_ignored(tmp_path: Path, damage: Any) -> None:
    packaged = EarlyAnswers(str(tmp_path / "missing")).find("2025-11-25", "tools/list")
    content = format_answers({"tools/list": {"tools": [{"name": "Search tools of this folder"}]}})
    (tmp_path / "2025-11-25").write_bytes(content)
    own = EarlyAnswers(str(tmp_path)).find("2025-11-25", "tools/list")
    assert own is not None
    assert b"of this folder" in own
    (tmp_path / "2025-11-25").write_bytes(damage(content))
    assert EarlyAnswers(str(tmp_path)).find("2025-11-25", "tools/list") == packaged


@pytest.mark.parametrize("version", ["../../../etc/passwd", "", "2025-11-25/", "1999-01-01"])
def test_a_version_is_never_a_path(tmp_path: Path, version: str) -> None:
    assert EarlyAnswers(str(tmp_path)).find(version, "initialize") is None


class Output:
    """Takes what the gateway sends to a pipe."""

    def __init__(self, expected: int) -> None:
        self.answers: dict[str, Any] = {}
        self.is_complete = asyncio.Event()
        self._expected = expected

    def write(self, content: bytes) -> None:
        for message in map(json.loads, content.splitlines()):
            if "id" in message and "method" not in message:
                self.answers[json.dumps(message["id"])] = message
        if len(self.answers) == self._expected:
            self.is_complete.set()

    async def drain(self) -> None:
        await asyncio.sleep(0)


async def ask_gateway(lines: Sequence[bytes]) -> dict[str, Any]:
    """The answers of a gateway that gets these messages at once, by the JSON of their ids."""

    async def answer_list(method: str, _: object, __: object) -> dict[str, Any]:
        return {"tools": list_own_tools(())} if method == "tools/list" else {LISTS[method][0]: []}

    async def answer(*_: object) -> Mapping[str, Any]:
        return {"content": []}

    @asynccontextmanager
    async def open_stream(wanted: ChangeFilter) -> AsyncIterator[ChangeStream]:
        yield ChangeStream(wanted)

    async def read_lines() -> AsyncIterator[str]:
        for line in lines:
            yield f"{line.decode()}\n"
        if expected:
            await output.is_complete.wait()

    expected = sum(b'"id"' in line for line in lines)
    output = Output(expected)
    await serve_lines(answer, answer_list, open_stream, None, read_lines(), cast(Any, output))
    return output.answers


def ask_pipe(lines: Sequence[bytes]) -> dict[str, Any]:
    """The early answers of a pipe, by the JSON of their ids."""
    conversation = Conversation(EarlyAnswers("/nowhere").find)
    for line in lines:
        conversation.receive_from_client(line)
    answers = [json.loads(line) for line in bytes(conversation.to_client).splitlines()]
    assert len({json.dumps(answer["id"]) for answer in answers}) == len(answers)
    return {json.dumps(answer["id"]): answer for answer in answers}


def forget_lifetime(answer: dict[str, Any]) -> dict[str, Any]:
    """A gateway that starts says 0, one that is complete says longer."""
    result = answer.get("result")
    return answer | {"result": {k: v for k, v in result.items() if k != "ttlMs"}} if result else answer


LIST_PARAMS: st.SearchStrategy[Any] = st.sampled_from(
    [None, {}, {"_meta": {}}, {"_meta": {"progressToken": 1}}, {"_meta": META}, {"cursor": "x"}]
)
REQUESTS = st.one_of(
    st.tuples(
        st.just("initialize"),
        st.builds(
            lambda version, about, capabilities: {
                "protocolVersion": version,
                "clientInfo": about,
                "capabilities": capabilities,
            },
            st.sampled_from([*VERSIONS, "2024-01-01", "never", 7]),
            st.sampled_from([ABOUT, {}, None, {"name": "client"}]),
            st.sampled_from([{}, {"roots": {}}, None]),
        ),
    ),
    st.tuples(st.sampled_from([*LISTS, "ping", "server/discover"]), LIST_PARAMS),
    st.tuples(st.just("tools/call"), st.just({"name": "search_tools", "arguments": {"query": "x"}})),
    st.tuples(st.just("unknown"), LIST_PARAMS),
)
USUAL: list[tuple[str, Any]] = [
    ("initialize", {"protocolVersion": "2025-06-18", "clientInfo": ABOUT, "capabilities": {}}),
    ("notifications/initialized", {}),
]


@given(
    begins_usually=st.booleans(),
    messages=st.lists(st.one_of(REQUESTS, st.just(("notifications/initialized", {}))), min_size=1, max_size=8),
    ids=st.permutations([1, "1", 0, -5, "é", 2**40, "x y", 9, "ten", 11]),
)
@settings(max_examples=scale_examples(300))
def test_early_answers_are_those_of_the_gateway_in_every_order_of_messages(
    begins_usually: bool, messages: list[tuple[str, Any]], ids: list[Any]
) -> None:
    lines = []
    for (method, params), number in zip((USUAL if begins_usually else []) + messages, ids, strict=False):
        message = {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})
        lines.append(json.dumps(message | ({} if method.startswith("notifications") else {"id": number})).encode())
    later, early = asyncio.run(ask_gateway(lines)), ask_pipe(lines)
    for number, answer in early.items():
        assert forget_lifetime(answer) == forget_lifetime(later[number])
    if begins_usually:
        assert json.dumps(ids[0]) in early
