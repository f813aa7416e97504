"""A chat API on loopback that follows a script and records its requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.fixtures.http_services import HttpDouble


@dataclass(frozen=True)
class Reply:
    """The response to one request: a model's text, or another status or body."""

    content: Any = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    finish: str = "stop"
    usage: Any = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 10})
    hold: bool = False
    """Whether to wait until the test sets `let_go`."""


def says(answer: Any) -> Reply:
    """A model's text, or an object as JSON."""
    return Reply(answer if isinstance(answer, str) else json.dumps(answer))


def refuses(status: int, message: str = "no", **headers: str) -> Reply:
    """An error in the format of OpenAI's API."""
    return Reply(status=status, body=json.dumps({"error": {"message": message}}).encode(), headers=headers)


Script = Sequence[Reply] | Callable[[dict[str, Any]], Reply]


class ChatApi(HttpDouble):
    """Follows a script: one reply after the other and then the last one again, or the result of a function."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script
        self._lock = threading.Lock()
        self.let_go = threading.Event()
        self.arrived = threading.Semaphore(0)
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.max_concurrent = 0
        self._concurrent = 0

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def __exit__(self, *raised: object) -> None:
        self.let_go.set()
        super().__exit__(*raised)

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        request_json = json.loads(body)
        with self._lock:
            self._concurrent += 1
            self.max_concurrent = max(self.max_concurrent, self._concurrent)
            self.bodies.append(request_json)
            self.keys.append(request.headers.get("Authorization"))
            turn = len(self.bodies) - 1
        self.arrived.release()
        script = self._script
        reply = script(request_json) if callable(script) else script[min(turn, len(script) - 1)]
        if reply.hold:
            self.let_go.wait(30)
        with self._lock:
            self._concurrent -= 1
        message = {"role": "assistant", "content": reply.content}
        completion = {
            "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}],
            "usage": reply.usage,
        }
        try:
            self.send(
                request,
                reply.status,
                json.dumps(completion).encode() if reply.body is None else reply.body,
                reply.headers,
            )
        except OSError:
            request.close_connection = True  # the client has disconnected


def prompt_of(request: dict[str, Any]) -> dict[str, Any]:
    """The items that a request asks to sort, by key."""
    texts = [m["content"] for m in request["messages"] if m["role"] == "user" and m["content"].startswith("{")]
    data: dict[str, Any] = json.loads(texts[-1])
    return data
