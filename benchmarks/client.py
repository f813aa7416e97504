"""A client of the gateway for benchmarks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any


class Client(asyncio.Protocol):
    """One connection that is kept, and as little else as can be: the clients share the cores with the server."""

    def __init__(self, head: str, said: Mapping[str, str]) -> None:
        self._head = head
        self._said = said
        self._come = b""
        self._length = -1
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def opened(cls, url: str, path: str, *, token: str = "", **said: str) -> Client:
        """Connects, to search there with that beside the query."""
        host, port = url.removeprefix("http://").split(":")
        known = f"Authorization: Bearer {token}\r\n" if token else ""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{known}Content-Type: application/json\r\nContent-Length: "
        )
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(lambda: cls(head, said), host, int(port)))[1]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Has been connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Some of the answer has come."""
        self._come += data
        if self._length < 0:
            head, between, _ = self._come.partition(b"\r\n\r\n")
            if not between:
                return
            assert head.startswith(b"HTTP/1.1 200"), head
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self._length = len(head) + len(between) + int(length)
        if self._answer and len(self._come) == self._length:
            answer, self._come, self._length = self._come, b"", -1
            self._answer.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        """There is no answer any more."""
        if self._answer and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("the gateway has closed the connection"))

    def request(self, query: str) -> bytes:
        """A search, as it is sent."""
        body = json.dumps({"query": query, **self._said}).encode()
        return f"{self._head}{len(body)}\r\n\r\n".encode() + body

    async def fetch(self, request: bytes) -> bytes:
        """What the gateway answers, as it comes."""
        if self._transport.is_closing():
            raise ConnectionResetError("the gateway has closed the connection, which nobody used for some seconds")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._transport.write(request)
        return await answer

    async def search(self, query: str) -> Any:
        """What the gateway answers."""
        return json.loads((await self.fetch(self.request(query))).partition(b"\r\n\r\n")[2])

    def close(self) -> None:
        """Ends the connection."""
        self._transport.close()
