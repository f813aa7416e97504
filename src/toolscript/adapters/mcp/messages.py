"""Reads the messages of servers, over pipes and HTTP alike: without holding up the event loop, and leniently.

The SDK reads an answer over HTTP on the event loop, 50 000 tools in seconds, and rejects all of it for half a surrogate
pair or 200 levels of nesting. So results do not pass through its reader: it gets a short stand-in for each.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import count
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

import mcp_types as types
from mcp_types import RequestId

from toolscript.adapters.outgoing.bounds import AnswerSize

MAX_MESSAGE_BYTES = 64 * 2**20
HINT = ": raise TOOLSCRIPT_CALL_MAX_MIB to accept it"
# `json` takes 8 ms for a megabyte, during which nothing else runs, in a thread neither. More is read in Python, which
# takes ten times as long and lets others run.
SMALL_MESSAGE_BYTES = 4 * 2**20
# A long message may be without what lies between so much of its beginning and of its end.
SEARCHED_BYTES = 200
# The SDK reads as many in 0.1 s.
MAX_VALUES = 100_000
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})')
# The id behind the result. An id in the result is followed by more than one brace.
_LAST_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_CONTENT = re.compile(rb'"(result|error|params)"\s*:')
_METHOD = re.compile(rb'"method"\s*:')
_SEPARATORS = (b",", b"[", b"{")
_EVENT_END = re.compile(rb"(?:\r\n|\r(?!\n)|\n)(?:\r\n|\r(?!\n)|\n)")
_MAX_EVENT_END_BYTES = 4


class _MessageDecoder(json.JSONDecoder):
    """Reads lists and objects in Python, where other threads get their turn."""

    def __init__(self) -> None:
        super().__init__(parse_constant=lambda _: None)
        self.scan_once = py_make_scanner(self)


_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


class PendingResults:
    """Results of one server that the SDK has only a stand-in for."""

    def __init__(self, max_bytes: int) -> None:
        """Results that nobody takes, because their request has ended, are kept up to twice `max_bytes`."""
        self._max_bytes = max_bytes
        self._marker = secrets.token_hex()  # the server must not be able to name another result
        self._numbers = count()
        self._results: dict[int, tuple[dict[str, Any], int]] = {}
        self._kept_bytes = 0

    async def replace_result(self, content: bytes, request_id: RequestId | None = None) -> bytes:
        """The message for the SDK, with a stand-in for a result. `request_id` is the id of the only request that the
        message can answer, whatever id it has."""
        try:
            message = await read_message(content, self._max_bytes)
        except ValueError:
            return content[:SMALL_MESSAGE_BYTES]  # the SDK says what is wrong with it
        match message:
            case types.JSONRPCResponse():
                stand_in = {self._marker: self._keep(message.result, len(content))}
                number = message.id if request_id is None else request_id
                return json.dumps({"jsonrpc": "2.0", "id": number, "result": stand_in}).encode()
            case types.JSONRPCError():  # also in place of an unreadable answer
                message.id = message.id if request_id is None else request_id
                if len(content) > SMALL_MESSAGE_BYTES:
                    message.error.data = None
                return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            case _ if len(content) > SMALL_MESSAGE_BYTES and sum(map(content.count, _SEPARATORS)) > MAX_VALUES:
                return content[:SMALL_MESSAGE_BYTES]  # no notification or question has as many values
            case _:
                return content

    def take(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result that a stand-in stands for; every other one as it is. Raises ValueError if it is no longer
        kept."""
        number = result.get(self._marker)
        if number is None:
            return result
        if number not in self._results:
            raise ValueError("it came too late")
        kept, size = self._results.pop(number)
        self._kept_bytes -= size
        return kept

    def _keep(self, result: dict[str, Any], size: int) -> int:
        number = next(self._numbers)
        self._results[number] = result, size
        self._kept_bytes += size
        while self._kept_bytes > 2 * self._max_bytes:
            self._kept_bytes -= self._results.pop(next(iter(self._results)))[1]
        return number


async def read_answer(
    parts: AsyncIterator[bytes], results: PendingResults, request_id: RequestId
) -> AsyncIterator[bytes]:
    """The answer to a request, with a stand-in for its result."""
    yield await results.replace_result(b"".join([part async for part in parts]), request_id)


async def read_events(
    parts: AsyncIterator[bytes], results: PendingResults, request_id: RequestId | None
) -> AsyncIterator[bytes]:
    """A stream of events, whole event by event, with stand-ins for the results in it."""
    begun = bytearray()
    async with aclosing(parts):  # type: ignore[type-var]
        async for part in parts:
            searched = max(0, len(begun) - _MAX_EVENT_END_BYTES)
            begun += part
            start = 0
            for end in _EVENT_END.finditer(begun, searched):
                yield await _replace_result_of_event(bytes(begun[start : end.end()]), results, request_id)
                start = end.end()
            del begun[:start]
    if begun:
        yield bytes(begun)


async def read_message(content: bytes, max_bytes: int) -> types.JSONRPCMessage:
    """Parses a message; a large one in a thread. Raises ValueError."""
    if len(content) <= SMALL_MESSAGE_BYTES:
        return parse_message(content, max_bytes)
    return await asyncio.to_thread(parse_message, content, max_bytes, _MessageDecoder())


def parse_message(
    line: bytes, max_bytes: int = MAX_MESSAGE_BYTES, decoder: json.JSONDecoder = _DECODER
) -> types.JSONRPCMessage:
    """Parses a message. Results are not validated here: they may be long, and are read leniently later. An answer that
    is unreadable or longer than `max_bytes` becomes an error for its request, if the line shows the id. Raises
    ValueError.
    """
    size = AnswerSize()
    size.add(line)
    if size.exceeds(max_bytes):
        return _build_error(line, f"the answer is larger than {max_bytes / 2**20:g} MiB{HINT}")
    try:
        parsed = decoder.decode(line.decode("utf-8", "replace"))
        match parsed:
            case {"id": int() | str() as number, "result": dict() as result} if "method" not in parsed:
                return types.JSONRPCResponse.model_construct(jsonrpc="2.0", id=number, result=result)
            case _:
                return types.jsonrpc_message_adapter.validate_python(parsed, by_name=False)
    except (ValueError, RecursionError):
        return _build_error(line, "unreadable answer")


def _build_error(line: bytes, message: str) -> types.JSONRPCError:
    """An error for the request that the line answers. Raises ValueError when the line is no answer, or hides the id.
    Only an id outside the result counts."""
    head = line[:SEARCHED_BYTES]
    if content := _CONTENT.search(head):
        head = head[: content.start()]
    request_id = _ID.search(head) or _LAST_ID.search(line[-SEARCHED_BYTES:])
    if request_id is None or _METHOD.search(head) or (content and content[1] == b"params"):
        raise ValueError("not a message")
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=message)
    return types.JSONRPCError(jsonrpc="2.0", id=int(request_id[1]), error=error)


async def _replace_result_of_event(event: bytes, results: PendingResults, request_id: RequestId | None) -> bytes:
    if b'"result"' not in event and len(event) <= SMALL_MESSAGE_BYTES:
        return event
    fields = [line.partition(b":") for line in _split_lines(event) if line]
    values = [(name, value.removeprefix(b" ")) for name, _, value in fields]
    if any(name == b"event" and value != b"message" for name, value in values):
        return event
    data = await results.replace_result(b"\n".join(value for name, value in values if name == b"data"), request_id)
    others = [(name, value) for name, value in values if name != b"data"]
    lines = (b"data: " + line for line in _split_lines(data))
    return b"\n".join([*(name + b": " + value for name, value in others), *lines]) + b"\n\n"


def _split_lines(text: bytes) -> list[bytes]:
    """By any of the three ends of lines; a regular expression takes a second for 60 MB, without a pause."""
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
