"""The messages between a client and the gateways of its pipe, and what to send next."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

# Clients of other versions negotiate this one. Must be the newest with a handshake that the SDK knows.
NEWEST_HANDSHAKE = "2025-11-25"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEYS = ("io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities")
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
LISTEN, CANCELLED = "subscriptions/listen", "notifications/cancelled"
# The field of each list with its entries, and the kind of list that clients are notified of.
LISTS = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "resources"),
}
# Requests that change nothing: the next gateway gets them again if the first has ended without an answer.
REPEATABLE = frozenset(
    {*LISTS, "initialize", "ping", "server/discover", "completion/complete", "prompts/get", "resources/read"}
    | {"resources/subscribe", "resources/unsubscribe"}
)
REPEATABLE_TOOLS = frozenset(
    "search_tools search_skills describe_tool read_result search_documents search_knowledge".split()
)
INTERNAL_ERROR = -32603
UNKNOWN_OUTCOME = "the gateway ended during the request: it is unknown whether it was carried out"


_RESPONSE_HEAD = re.compile(rb'\{"jsonrpc":"2\.0","id":("(?:[^"\\]|\\.)*"|-?\d+),"(?:result|error)":')

FindAnswer = Callable[[str, str], bytes | None]
"""Returns the JSON of the result of a method, in a version of the protocol, if an early answer is known."""


class Request:
    """A request that a gateway has yet to answer."""

    __slots__ = ("early", "is_own", "kinds", "line", "method", "number", "tool")

    def __init__(self, line: bytes, message: Mapping[str, Any], *, is_own: bool = False) -> None:
        params = _read_params(message)
        self.line, self.number, self.method = line, message["id"], message["method"]
        self.tool = params.get("name") if self.method == "tools/call" else None
        self.early: bytes | None = None
        """What the client was answered already."""
        self.is_own = is_own
        """Whether the pipe itself asks, so that the client gets no answer."""
        wanted = params.get("notifications")
        wanted = wanted if self.method == LISTEN and isinstance(wanted, dict) else {}
        self.kinds = {kind for kind in ("tools", "prompts", "resources") if wanted.get(f"{kind}ListChanged") is True}
        """Of `subscriptions/listen`: the lists whose changes are wanted."""

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent again after a gateway has ended without answering."""
        return self.method in REPEATABLE or self.tool in REPEATABLE_TOOLS


class Conversation:
    """Decides what to send to the client and to the gateway. Does no input or output."""

    def __init__(self, find_answer: FindAnswer) -> None:
        self.to_client, self.to_gateway = bytearray(), bytearray()
        self.is_connected = False
        self.needs_gateway = False
        """Whether the client waits for something that only a gateway can answer."""
        self._find_answer = find_answer
        self._is_modern: bool | None = None
        """Whether the client speaks a version without a handshake; its first request decides."""
        self._version: str | None = None
        """The version that the handshake has agreed on."""
        self._handshake: list[bytes] = []
        """The messages of the handshake that a gateway has got: each further one gets them, too."""
        self._unsent: list[tuple[bytes, Request | None]] = []
        self._requests: dict[str, Request] = {}
        self._followed: dict[str, bytes] = {}
        """The client's requests to follow resources, by URI."""
        self._questions: dict[str, Any] = {}
        """The ids that a gateway gave to its requests to the client, by the ids that the client knows."""
        self._generation = 0
        self._listening: set[str] = set()
        self._changed: set[str] = set()
        """Methods of lists that have changed: the client must be notified."""
        self._passing: Request | None = None

    @property
    def has_open_requests(self) -> bool:
        """Whether the client still waits for answers. Streams of changes do not count: they never end by themselves."""
        return any(r.early is None and not r.is_own and r.method != LISTEN for r in self._requests.values())

    @property
    def waiting_bytes(self) -> int:
        """The size of the client's messages that no gateway has taken yet."""
        return len(self.to_gateway) + sum(len(line) for line, _ in self._unsent)

    def receive_from_client(self, line: bytes) -> None:
        """Takes a message of the client, with its line end."""
        message = _parse(line)
        method, number = message.get("method"), message.get("id")
        request = None
        if isinstance(method, str) and _is_id(number):
            request = Request(line, message)
            self._requests[_key(number)] = request
            if not self.is_connected:
                request.early = self._answer_early(request, message)
            if self._is_modern is None:
                self._is_modern = request.method != "initialize" and VERSION_KEY in _read_meta(message)
        elif method is None and _is_id(number):
            self._pass_answer(message, line)
            return
        elif method == CANCELLED:
            self._cancel(message)
        if self.is_connected:
            self._send(line, request)
        else:
            self._unsent.append((line, request))
            is_waiting = request is not None and request.early is None and request.method != LISTEN
            self.needs_gateway |= is_waiting or not message  # a line that is no message gets an error

    def receive_from_gateway(self, line: bytes) -> None:
        """Takes a whole message of the gateway, with its line end."""
        message = _parse(line)
        method, number = message.get("method"), message.get("id")
        if method is None and _is_id(number):
            self._receive_answer(self._requests.pop(_key(number), None), message, line)
        elif method is not None and _is_id(number):
            known = number if _key(number) not in self._questions else f"{number} of gateway {self._generation}"
            self._questions[_key(known)] = number
            self.to_client += line if known == number else _encode(message | {"id": known})
        else:
            self.to_client += self._rename_cancelled(message, line) if method == CANCELLED else line
            if method == "notifications/subscriptions/acknowledged":
                self._listening.add(_key(_read_meta(message).get(SUBSCRIPTION_KEY)))
                self._announce_changes()

    def begin_to_pass(self, head: bytes) -> bool:
        """Whether the line that begins so can be passed on in pieces; then `pass_piece` and `end_passing` follow."""
        match = _RESPONSE_HEAD.match(head)
        request = self._requests.get(match[1].decode()) if match else None
        if request is None or request.early is not None or request.is_own:
            return False
        self._passing = request
        return True

    def end_passing(self) -> None:
        """The line that was passed on in pieces is complete."""
        if self._passing:
            self._requests.pop(_key(self._passing.number), None)
        self._passing = None

    def connect(self) -> None:
        """A gateway serves: sends it the handshake again, and all messages that no gateway has received."""
        unsent, self._unsent = self._unsent, []
        self.is_connected, self.needs_gateway = True, False
        self._generation += 1
        for line in self._handshake:
            self._ask_again(line)
        for line in self._followed.values():
            self._ask_again(line)
        for line, request in unsent:
            self._send(line, request)
        if self._generation > 1 and self._version is not None:  # they may have changed while no gateway ran
            self._changed |= LISTS.keys()
            self._announce_changes()

    def disconnect(self) -> None:
        """The gateway has ended. What it may have carried out gets an error, the rest waits for the next one."""
        self.is_connected = False
        unwritten = b"\n" + self.to_gateway
        self.to_gateway.clear()
        if self._passing:
            self.to_client += b"\n"  # ends the half of a line that the client has got
            self._passing = None
        repeated: list[tuple[bytes, Request | None]] = []
        for key, request in list(self._requests.items()):
            may_repeat = request.is_repeatable or b"\n" + request.line in unwritten
            if request.early is None and not request.is_own and may_repeat:
                repeated.append((request.line, request))
                continue
            del self._requests[key]
            if request.method == LISTEN:  # the client opens the next one
                result = {"_meta": {SUBSCRIPTION_KEY: request.number}, "resultType": "complete"}
                self.to_client += _encode({"jsonrpc": "2.0", "id": request.number, "result": result})
            elif request.early is None and not request.is_own:
                self._refuse(request, UNKNOWN_OUTCOME)
        self._unsent = repeated + self._unsent
        self._listening.clear()
        self.needs_gateway |= bool(repeated)
        for known in self._questions:
            params = {"requestId": json.loads(known), "reason": "the gateway ended"}
            self.to_client += _encode({"jsonrpc": "2.0", "method": CANCELLED, "params": params})
        # The ids stay: an answer that comes late must not be taken for one to the next gateway.
        self._questions = dict.fromkeys(self._questions)

    def fail(self, reason: str) -> None:
        """No gateway can be started: the client gets the reason for all that it waits for."""
        unsent, self._unsent = self._unsent, []
        self.needs_gateway = False
        for line, request in unsent:
            if request is not None and request.early is None and request.method != LISTEN:
                self._requests.pop(_key(request.number), None)
                self._refuse(request, reason)
            else:
                self._unsent.append((line, request))

    def _answer_early(self, request: Request, message: Mapping[str, Any]) -> bytes | None:
        """Answers a request from what an earlier gateway has left, if that is possible; returns the answer."""
        params = message.get("params", {})
        if not isinstance(params, dict):
            return None
        version, meta = self._version, _read_meta(message)
        if VERSION_KEY in meta and request.method != "initialize":
            is_complete = all(isinstance(meta.get(key), dict) for key in CLIENT_KEYS)
            version = meta[VERSION_KEY] if self._is_modern is not False and is_complete else None
        elif self._is_modern:
            version = None
        elif request.method == "initialize":
            return self._shake_hands(request, params) if self._version is None else None
        elif request.method == "ping":
            return self._answer(request, b"{}")
        is_plain = not params.keys() - {"_meta"} and (request.method in LISTS or request.method == "server/discover")
        answer = self._find_answer(version, request.method) if is_plain and isinstance(version, str) else None
        return None if answer is None else self._answer(request, answer)

    def _shake_hands(self, request: Request, params: Mapping[str, Any]) -> bytes | None:
        about, version = params.get("clientInfo"), params.get("protocolVersion")
        if not isinstance(version, str) or not isinstance(params.get("capabilities"), dict):
            return None
        if not isinstance(about, dict) or not all(isinstance(about.get(key), str) for key in ("name", "version")):
            return None
        for possible in (version, NEWEST_HANDSHAKE):
            if (answer := self._find_answer(possible, "initialize")) is not None:
                self._version = possible
                return self._answer(request, answer)
        return None

    def _answer(self, request: Request, result: bytes) -> bytes:
        self.to_client += b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (_key(request.number).encode(), result)
        return result

    def _send(self, line: bytes, request: Request | None) -> None:
        """Sends a message of the client to the gateway, and keeps what the next gateway has to know."""
        self.to_gateway += line
        if request is None:
            if _parse(line).get("method") == "notifications/initialized":
                self._handshake.append(line)
        elif request.method == "initialize" and request.early is not None:
            self._handshake.append(line)
        elif request.method in {"resources/subscribe", "resources/unsubscribe"}:
            uri = str(_read_params(_parse(line)).get("uri"))
            self._followed.pop(uri, None)
            if request.method == "resources/subscribe":
                self._followed[uri] = line

    def _ask_again(self, line: bytes) -> None:
        """Sends a message to a further gateway. The client does not get its answer."""
        message = _parse(line)
        if "id" in message:
            message = message | {"id": f"again {self._generation} {message['id']}"}
            line = _encode(message)
            self._requests[_key(message["id"])] = Request(line, message, is_own=True)
        self.to_gateway += line

    def _pass_answer(self, message: Mapping[str, Any], line: bytes) -> None:
        """Passes the client's answer to the gateway that asked."""
        known = message["id"]
        number = self._questions.pop(_key(known), None)
        if number is not None and self.is_connected:
            self.to_gateway += line if number == known else _encode({**message, "id": number})

    def _rename_cancelled(self, message: dict[str, Any], line: bytes) -> bytes:
        """The gateway's message that cancels a request of its own, with the id that the client knows."""
        number = _read_params(message).get("requestId")
        known = next((key for key, given in self._questions.items() if given == number), None)
        if known is None or known == _key(number):
            return line
        return _encode(message | {"params": _read_params(message) | {"requestId": json.loads(known)}})

    def _cancel(self, message: Mapping[str, Any]) -> None:
        """The client expects no answer any more. The gateway may send one all the same."""
        number = _read_params(message).get("requestId")
        if _is_id(number) and (request := self._requests.get(_key(number))) and request.early is None:
            request.early = b""

    def _receive_answer(self, request: Request | None, message: Mapping[str, Any], line: bytes) -> None:
        if request is None or (request.early is None and not request.is_own):
            self.to_client += line
            if request is not None and request.method == "initialize" and "result" in message:
                self._handshake.insert(0, request.line)
                self._version = str(message["result"].get("protocolVersion"))
            elif request is not None and "cursor" not in _read_params(_parse(request.line)):
                self._changed.discard(request.method)
        elif request.early == b"" and not request.is_own:  # it was cancelled
            self.to_client += line
        elif request.method in LISTS and request.early and isinstance(message.get("result"), dict):
            early = json.loads(request.early)
            if any(early.get(name) != message["result"].get(name) for name in (LISTS[request.method][0], "nextCursor")):
                self._changed.add(request.method)
                self._announce_changes()

    def _announce_changes(self) -> None:
        """Tells the client of changed lists, in the way of its version of the protocol, when it listens."""
        changed = {LISTS[method][1] for method in self._changed}
        if not self._is_modern:
            for kind in sorted(changed):
                self.to_client += _encode({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})
            self._changed.clear()
            return
        for key in self._listening:
            request = self._requests.get(key)
            if request is None or request.early is not None:
                continue
            for kind in sorted(changed & request.kinds):
                params = {"_meta": {SUBSCRIPTION_KEY: request.number}}
                method = f"notifications/{kind}/list_changed"
                self.to_client += _encode({"jsonrpc": "2.0", "method": method, "params": params})
                self._changed -= {method for method, (_, changing) in LISTS.items() if changing == kind}

    def _refuse(self, request: Request, reason: str) -> None:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request.number}
        if request.method == "tools/call":
            answer["result"] = {"content": [{"type": "text", "text": reason}], "isError": True}
            if self._is_modern:
                answer["result"]["resultType"] = "complete"
        else:
            answer["error"] = {"code": INTERNAL_ERROR, "message": reason}
        self.to_client += _encode(answer)


def _parse(line: bytes) -> dict[str, Any]:
    """The message; empty for a line without a message. The gateway answers such a line with an error."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) and message.get("jsonrpc") == "2.0" else {}


def _read_params(message: Mapping[str, Any]) -> dict[str, Any]:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _read_meta(message: Mapping[str, Any]) -> dict[str, Any]:
    meta = _read_params(message).get("_meta")
    return meta if isinstance(meta, dict) else {}


def _is_id(value: object) -> bool:
    """Whether the gateway takes the value as an id."""
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
    return isinstance(value, int) and not isinstance(value, bool)


def _key(number: object) -> str:
    """The id as JSON: 1 and "1" are different ids."""
    return json.dumps(number)


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
