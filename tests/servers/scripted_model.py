"""A language model on loopback that calls tools as scripted, for MCP clients that need a model to work.

It speaks the protocols of Claude Code (Anthropic's Messages), Codex (OpenAI's Responses) and opencode (OpenAI's chat
completions), streamed or not. Each request that offers tools is a turn and is recorded; requests without tools (titles,
counts of tokens, lists of models) get a short answer and are not.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.fixtures.http_services import HttpDouble

Body = Mapping[str, Any]
MODEL = "scripted"
FINAL_TEXT = "That is all."
SHORT_TEXT = "A title"
CALL_PREFIX = "scripted_call_"
EVENT_STREAM = {"Content-Type": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call of a tool in the script. Clients put a prefix before the name; Codex puts tools into a namespace."""

    tool: str
    arguments: Body


@dataclass(frozen=True, slots=True)
class Turn:
    """A request that offered tools."""

    seconds: float
    """When it arrived, since the model was started."""
    tools: tuple[str, ...]
    """Their names as the client wrote them, after `namespace/` where they are in one."""
    results: tuple[str, ...]
    """The results of the scripted calls that the client has sent back, oldest first, as JSON."""

    def offers(self, *names: str) -> bool:
        """Whether all these tools are offered, whatever their prefixes."""
        return all(any(tool.endswith(name) for tool in self.tools) for name in names)


class ScriptedModel(HttpDouble):
    """Answers the n-th turn of a conversation with the n-th call of the script, and then with a text."""

    def __init__(self, script: Sequence[ModelCall]) -> None:
        super().__init__()
        self._script = script
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self.turns: list[Turn] = []

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        path, content = request.path.partition("?")[0], json.loads(body or b"{}")
        if request.command != "POST" or not path.endswith(("/messages", "/responses", "/chat/completions")):
            self.send(request, 200, json.dumps(_answer_aside(path)).encode())
            return
        tools, results = tuple(_read_tools(content)), tuple(_read_results(content))
        if tools:
            with self._lock:
                self.turns.append(Turn(time.monotonic() - self._started, tools, results))
        reply = self._choose_reply(tools, len(results))
        events = list(_WRITERS[path.rpartition("/")[2]](reply, f"{CALL_PREFIX}{len(results)}"))
        if content.get("stream"):
            self.send(request, 200, "".join(events[:-1]).encode(), EVENT_STREAM)
        else:
            self.send(request, 200, events[-1].encode())

    def _choose_reply(self, tools: Sequence[str], step: int) -> ModelCall | str:
        if not tools:
            return SHORT_TEXT
        if step >= len(self._script):
            return FINAL_TEXT
        call = self._script[step]
        offered = next((tool for tool in tools if tool.endswith(call.tool)), None)
        return ModelCall(offered, call.arguments) if offered else f"No tool {call.tool} is offered."


def _answer_aside(path: str) -> dict[str, Any]:
    """What else clients ask for: how many tokens a request has, and which models there are."""
    if path.endswith("/count_tokens"):
        return {"input_tokens": 1}
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0}], "models": [], "has_more": False}


def _read_tools(content: Body) -> Iterator[str]:
    for tool in content.get("tools") or []:
        name = tool.get("name") or (tool.get("function") or {}).get("name") or tool.get("type", "")
        inner = tool.get("tools") if tool.get("type") == "namespace" else None
        yield from [name] if inner is None else [f"{name}/{each['name']}" for each in inner]


def _read_results(content: Body) -> Iterator[str]:
    """The results of calls that this model has made: clients put others of their own into the conversation."""
    messages = content.get("messages") or content.get("input") or []
    for message in messages if isinstance(messages, list) else []:
        parts = message.get("content")
        for part in (message, *(parts if isinstance(parts, list) else ())):
            call = part.get("tool_use_id") or part.get("tool_call_id") or part.get("call_id") or ""
            is_result = part.get("type") in {"tool_result", "function_call_output"} or part.get("role") == "tool"
            if is_result and call.startswith(CALL_PREFIX):
                yield json.dumps(part.get("output") or part.get("content"))


def _format_event(data: Body | str, name: str = "") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


# Each writer yields the events of a stream, and at last the same answer as one JSON object.


def _write_message(reply: ModelCall | str, call_id: str) -> Iterator[str]:
    block: dict[str, Any] = {"type": "text", "text": ""}
    if isinstance(reply, str):
        delta, reason = {"type": "text_delta", "text": reply}, "end_turn"
        whole = block | {"text": reply}
    else:
        block = {"type": "tool_use", "id": call_id, "name": reply.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
        whole, reason = block | {"input": reply.arguments}, "tool_use"
    end = {"stop_reason": reason, "stop_sequence": None}
    message = {"id": f"msg_{call_id}", "type": "message", "role": "assistant", "model": MODEL}
    usage = {"input_tokens": 1, "output_tokens": 1}
    opened: dict[str, Any] = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    for kind, fields in (
        ("message_start", {"message": opened}),
        ("content_block_start", {"index": 0, "content_block": block}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": end, "usage": usage}),
        ("message_stop", {}),
    ):
        yield _format_event({"type": kind, **fields}, kind)
    yield json.dumps({**message, **end, "content": [whole], "usage": usage})


def _write_completion(reply: ModelCall | str, call_id: str) -> Iterator[str]:
    message: dict[str, Any] = {"role": "assistant"}
    if isinstance(reply, str):
        message, reason = message | {"content": reply}, "stop"
    else:
        function = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
        call = {"index": 0, "id": call_id, "type": "function", "function": function}
        message, reason = message | {"content": None, "tool_calls": [call]}, "tool_calls"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    about = {"id": f"completion_{call_id}", "created": 0, "model": MODEL}
    chunk = about | {"object": "chat.completion.chunk"}
    yield _format_event({**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]})
    yield _format_event({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage})
    yield _format_event("[DONE]")
    choice = {"index": 0, "message": message, "finish_reason": reason}
    yield json.dumps({**about, "object": "chat.completion", "choices": [choice], "usage": usage})


def _write_response(reply: ModelCall | str, call_id: str) -> Iterator[str]:
    if isinstance(reply, str):
        text = {"type": "output_text", "text": reply, "annotations": []}
        item: dict[str, Any] = {"type": "message", "id": f"msg_{call_id}", "role": "assistant", "content": [text]}
    else:
        namespace, _, name = reply.tool.rpartition("/")
        item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name}
        item |= {"arguments": json.dumps(reply.arguments), **({"namespace": namespace} if namespace else {})}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    response = {"id": f"resp_{call_id}", "object": "response", "model": MODEL}
    done = response | {"status": "completed", "output": [item], "usage": usage}
    for kind, fields in (
        ("response.created", {"response": {**response, "status": "in_progress", "output": []}}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": done}),
    ):
        yield _format_event({"type": kind, **fields}, kind)
    yield json.dumps(done)


_WRITERS = {"messages": _write_message, "completions": _write_completion, "responses": _write_response}
