"""What a pipe tells its client and its gateways, in every order of events."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.pipe.conversation import REPEATABLE, REPEATABLE_TOOLS, UNKNOWN_OUTCOME, Conversation

pytestmark = pytest.mark.req("A-06", "G-08")

VERSION = "2025-11-25"
KNOWN = {
    "initialize": {
        "protocolVersion": VERSION,
        "capabilities": {},
        "serverInfo": {"name": "toolscript", "version": "0"},
    },
    "tools/list": {"tools": [{"name": "search_tools"}]},
    "prompts/list": {"prompts": []},
}
CLIENT = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "client", "version": "1"}}

META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def find_known(version: str, method: str) -> bytes | None:
    return json.dumps(KNOWN[method]).encode() if version == VERSION and method in KNOWN else None


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def take(buffer: bytearray) -> list[dict[str, Any]]:
    """The messages in a buffer, which is empty then."""
    messages = [json.loads(line) for line in bytes(buffer).splitlines() if line]
    buffer.clear()
    return messages


class Client:
    """Speaks through a conversation to gateways that answer what they are told to."""

    def __init__(self) -> None:
        self.conversation = Conversation(find_known)
        self.number = 0
        self.received: list[dict[str, Any]] = []
        self.at_gateway: list[dict[str, Any]] = []
        self.sent_to_gateways: list[dict[str, Any]] = []

    def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Sends a request, and returns its id."""
        self.number += 1
        message = {"id": self.number, "method": method} | ({} if params is None else {"params": params})
        self.conversation.receive_from_client(encode(message))
        self._look()
        return self.number

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.conversation.receive_from_client(encode({"method": method, "params": params or {}}))
        self._look()

    def shake_hands(self) -> None:
        self.send("initialize", CLIENT)
        self.notify("notifications/initialized")

    def connect(self) -> None:
        self.at_gateway.clear()
        self.conversation.connect()
        self._look()

    def lose(self) -> None:
        self.conversation.disconnect()
        self._look()

    def waits(self) -> bool:
        """Whether only a gateway can answer."""
        return self.conversation.needs_gateway

    def answer_next(self, results: dict[str, Any] | None = None) -> None:
        """Lets the gateway answer the oldest of its requests."""
        while self.at_gateway:
            message = self.at_gateway.pop(0)
            if "id" in message and "method" in message:
                result = (results or KNOWN).get(message["method"], {"content": []})
                self.conversation.receive_from_gateway(encode({"id": message["id"], "result": result}))
                break
        self._look()

    def answer_all(self, results: dict[str, Any] | None = None) -> None:
        while self.at_gateway:
            self.answer_next(results)

    def find_answers(self, number: int) -> list[dict[str, Any]]:
        return [m for m in self.received if m.get("id") == number and "method" not in m]

    def _look(self) -> None:
        self.received += take(self.conversation.to_client)
        arrived = take(self.conversation.to_gateway)
        self.at_gateway += arrived
        self.sent_to_gateways += arrived


def test_a_client_is_answered_before_a_gateway_serves_and_gets_no_second_answer() -> None:
    client = Client()
    client.shake_hands()
    listed, pinged = client.send("tools/list"), client.send("ping")
    assert [m["id"] for m in client.received] == [1, listed, pinged]
    assert client.find_answers(listed)[0]["result"] == KNOWN["tools/list"]
    assert not client.waits()
    client.connect()
    assert [m["method"] for m in client.sent_to_gateways] == [
        "initialize",
        "notifications/initialized",
        "tools/list",
        "ping",
    ]
    client.answer_all()
    assert len(client.received) == 3


def test_a_list_that_differs_is_announced_and_an_equal_one_is_not() -> None:
    client = Client()
    client.shake_hands()
    client.send("tools/list")
    client.send("prompts/list")
    client.connect()
    client.answer_all(KNOWN | {"tools/list": {"tools": [{"name": "other"}], "ttlMs": 0}})
    assert [m["method"] for m in client.received if "method" in m] == ["notifications/tools/list_changed"]


def test_a_client_of_the_newest_version_hears_of_it_on_its_stream() -> None:
    client = Client()
    client.send("tools/list", {"_meta": META})
    wanted = {"toolsListChanged": True, "promptsListChanged": True}
    stream = client.send("subscriptions/listen", {"_meta": META, "notifications": wanted})
    assert len(client.received) == 1
    client.connect()
    acknowledgement = {"_meta": {"io.modelcontextprotocol/subscriptionId": stream}}
    client.answer_next({"tools/list": {"tools": []}})
    client.conversation.receive_from_gateway(
        encode({"method": "notifications/subscriptions/acknowledged", "params": acknowledgement})
    )
    client._look()
    assert [m.get("method") for m in client.received[1:]] == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    ]
    assert client.received[-1]["params"] == acknowledgement


def test_a_client_that_has_read_a_list_again_hears_of_no_older_change() -> None:
    client = Client()
    client.send("tools/list", {"_meta": META})
    client.connect()
    client.answer_next({"tools/list": {"tools": []}})
    client.send("tools/list", {"_meta": META})
    client.answer_next({"tools/list": {"tools": []}})
    stream = client.send("subscriptions/listen", {"_meta": META, "notifications": {"toolsListChanged": True}})
    acknowledgement = {"_meta": {"io.modelcontextprotocol/subscriptionId": stream}}
    client.conversation.receive_from_gateway(
        encode({"method": "notifications/subscriptions/acknowledged", "params": acknowledgement})
    )
    client._look()
    assert [m["method"] for m in client.received if "method" in m] == ["notifications/subscriptions/acknowledged"]


def test_what_may_have_been_carried_out_is_never_sent_twice() -> None:
    client = Client()
    client.shake_hands()
    client.connect()
    client.answer_all()
    search = client.send("tools/call", {"name": "search_tools", "arguments": {"query": "x"}})
    call = client.send("tools/call", {"name": "call_tool", "arguments": {"tool_id": "pay__send"}})
    client.lose()
    (answer,) = client.find_answers(call)
    assert answer["result"] == {"content": [{"type": "text", "text": UNKNOWN_OUTCOME}], "isError": True}
    assert client.find_answers(search) == []
    assert client.waits()
    client.connect()
    assert [m["method"] for m in client.at_gateway] == ["initialize", "notifications/initialized", "tools/call"]
    client.answer_all()
    assert len(client.find_answers(search)) == 1
    assert [m["params"]["name"] for m in client.sent_to_gateways if m["method"] == "tools/call"].count("call_tool") == 1


def test_what_was_not_written_yet_goes_to_the_next_gateway() -> None:
    client = Client()
    client.shake_hands()
    client.connect()
    client.answer_all()
    line = encode({"id": 50, "method": "tools/call", "params": {"name": "call_tool"}})
    client.conversation.receive_from_client(line)
    client.lose()
    assert client.find_answers(50) == []
    client.connect()
    client.answer_all()
    assert "result" in client.find_answers(50)[0]


def test_a_gateway_that_cannot_start_is_explained_and_tried_again() -> None:
    client = Client()
    client.shake_hands()
    call = client.send("tools/call", {"name": "call_tool"})
    read = client.send("resources/read", {"uri": "a:b"})
    client.conversation.fail("servers.json: line 2")
    client._look()
    assert client.find_answers(call)[0]["result"]["content"][0]["text"] == "servers.json: line 2"
    assert client.find_answers(read)[0]["error"] == {"code": -32603, "message": "servers.json: line 2"}
    assert not client.waits()
    again = client.send("tools/call", {"name": "call_tool"})
    assert client.waits()
    client.connect()
    client.answer_all()
    assert [len(client.find_answers(number)) for number in (1, call, read, again)] == [1, 1, 1, 1]


def test_an_answer_of_the_client_reaches_only_the_gateway_with_the_question() -> None:
    client = Client()
    client.shake_hands()
    client.connect()
    client.answer_all()
    question = {"id": 7, "method": "elicitation/create", "params": {}}
    client.conversation.receive_from_gateway(encode(question))
    client.lose()
    assert client.received[-2:] == [
        {"jsonrpc": "2.0", **question},
        {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 7, "reason": "the gateway ended"},
        },
    ]
    client.connect()
    client.answer_all()
    client.conversation.receive_from_gateway(encode(question))
    client._look()
    known = next(m["id"] for m in reversed(client.received) if m.get("method") == "elicitation/create")
    assert known != 7
    client.conversation.receive_from_client(encode({"id": 7, "result": {"late": True}}))
    client.conversation.receive_from_client(encode({"id": known, "result": {"late": False}}))
    client._look()
    assert client.at_gateway == [{"jsonrpc": "2.0", "id": 7, "result": {"late": False}}]


def test_half_a_line_of_a_gateway_that_ends_is_ended_and_its_request_answered() -> None:
    client = Client()
    client.shake_hands()
    client.connect()
    client.answer_all()
    call = client.send("tools/call", {"name": "call_tool"})
    head = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[' % call
    assert client.conversation.begin_to_pass(head)
    client.conversation.to_client += head
    client.conversation.disconnect()
    half, answer = bytes(client.conversation.to_client).splitlines()
    assert half == head
    assert json.loads(answer)["id"] == call


CALLS = st.sampled_from(
    [
        ("tools/list", {}),
        ("prompts/list", {}),
        ("resources/list", {"cursor": "x"}),
        ("ping", {}),
        ("tools/call", {"name": "search_tools"}),
        ("tools/call", {"name": "call_tool"}),
        ("prompts/get", {"name": "a"}),
    ]
)
EVENTS = st.lists(
    st.one_of(st.tuples(st.just("send"), CALLS), st.sampled_from([("connect",), ("answer",), ("lose",), ("fail",)])),
    max_size=40,
)


@given(events=EVENTS, is_first=st.booleans())
@settings(max_examples=scale_examples(500))
def test_whatever_happens_each_request_gets_one_answer(events: list[Any], is_first: bool) -> None:
    client = Client()
    if is_first:
        client.connect()
    client.shake_hands()
    for event in events:
        is_connected = client.conversation.is_connected
        match event:
            case ("send", (method, params)):
                client.send(method, dict(params))
            case ("connect",) if not is_connected:
                client.connect()
            case ("answer",) if is_connected:
                client.answer_next()
            case ("lose",) if is_connected:
                client.lose()
            case ("fail",) if not is_connected:
                client.conversation.fail("it does not start")
                client._look()
    if not client.conversation.is_connected:
        client.connect()
    client.answer_all()
    answers = Counter(m["id"] for m in client.received if "id" in m and "method" not in m)
    assert answers == dict.fromkeys(range(1, client.number + 1), 1)
    assert not client.conversation.has_open_requests
    for number, count in Counter(m["id"] for m in client.sent_to_gateways if "id" in m).items():
        message = next(m for m in client.sent_to_gateways if m.get("id") == number)
        is_repeatable = message["method"] in REPEATABLE or message.get("params", {}).get("name") in REPEATABLE_TOOLS
        assert count == 1 or is_repeatable
