"""A client that believes nothing: it sends what a test says, and keeps all that comes back, messages or not."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any, Self

TIMEOUT_SECONDS = 60.0


class Conversation:
    """One stdio server, started from its `mcpServers` entry. Its whole process group ends with the conversation."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.process = subprocess.Popen(
            [entry["command"], *entry.get("args", ())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=entry.get("cwd"),
            env={**os.environ, **entry.get("env", {})},
            start_new_session=True,
        )
        self.garbage: list[bytes] = []
        self._errors: list[bytes] = []
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout,)),
            threading.Thread(target=self._collect, args=(self.process.stderr,)),
        ]
        self._last_id = 0

    def __enter__(self) -> Self:
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_input()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for reader in self._readers:
            reader.join()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                try:
                    message = json.loads(line)
                except ValueError:
                    message = None
                if isinstance(message, dict):
                    self._messages.put(message)
                else:
                    self.garbage.append(line)
        self._messages.put(None)

    def _collect(self, stream: IO[bytes]) -> None:
        with stream:
            self._errors.extend(stream)

    @property
    def errors(self) -> str:
        """What it wrote on stderr, complete once the process has ended."""
        self._readers[1].join()
        return b"".join(self._errors).decode(errors="replace")

    def end_input(self) -> None:
        """Close its standard input, which asks a server to end."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def send(self, **message: Any) -> None:
        """Send a message as it is."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, **params: Any) -> int:
        """Send a request, and give its id."""
        self._last_id += 1
        self.send(id=self._last_id, method=method, params=params)
        return self._last_id

    def receive(self) -> dict[str, Any]:
        """The next message. EOFError when the server is gone."""
        message = self._messages.get(timeout=TIMEOUT_SECONDS)
        if message is None:
            self._messages.put(None)
            raise EOFError
        return message

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and give its answer; notifications and requests of the server in between are passed over."""
        request = self.ask(method, **params)
        while True:
            message = self.receive()
            if message.get("id") == request and "method" not in message:
                return message

    def result(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request that must succeed."""
        answer = self.request(method, **params)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        return self.result("tools/call", name=tool, arguments=arguments)

    def initialize(self, version: str = "2025-06-18") -> dict[str, Any]:
        """Shake hands, as clients before protocol 2026-07-28 do."""
        client = {"name": "test", "version": "1"}
        answer = self.result("initialize", protocolVersion=version, capabilities={}, clientInfo=client)
        self.send(method="notifications/initialized")
        return answer

    def list_all(self, method: str, key: str) -> list[Any]:
        """Every page of a list."""
        page = self.result(method)
        items: list[Any] = page[key]
        while "nextCursor" in page:
            page = self.result(method, cursor=page["nextCursor"])
            items += page[key]
        return items
