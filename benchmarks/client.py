"""Clients of the gateway for benchmarks."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

LENGTH = b"content-length: "


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
        host, port = _address(url)
        known = f"Authorization: Bearer {token}\r\n" if token else ""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{known}Content-Type: application/json\r\nContent-Length: "
        )
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(lambda: cls(head, said), host, port))[1]

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
            length = head.lower().partition(LENGTH)[2].partition(b"\r\n")[0]
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


def seconds_for(url: str, asked: Sequence[Sequence[bytes]]) -> float:
    """How long all of these requests take: each list has a connection of its own, which sends the next request when the
    last is answered. All of them are served at once, with bare sockets: whatever clients do is taken from the server,
    which shares the cores with them, and with asyncio that would be half as much again."""
    come, ready = bytearray(2**20), select.poll()
    with ExitStack() as opened:
        connections = [opened.enter_context(socket.create_connection(_address(url))) for _ in asked]
        asking = {c.fileno(): (c, iter(requests)) for c, requests in zip(connections, asked, strict=True)}
        left = dict.fromkeys(asking, 0)  # how many bytes of an answer are still to come
        began = time.perf_counter()
        for number, (connection, requests) in asking.items():
            ready.register(number, select.POLLIN)
            connection.sendall(next(requests))
        while left:
            for number, _ in ready.poll():
                connection, requests = asking[number]
                size = connection.recv_into(come)
                assert size, "the gateway has closed the connection"
                left[number] = (left[number] or _length(come, size)) - size
                if not left[number]:
                    request = next(requests, None)
                    if request is None:
                        ready.unregister(number)
                        del left[number]
                    else:
                        connection.sendall(request)
        return time.perf_counter() - began


def _length(come: bytearray, size: int) -> int:
    """How long an answer is that begins like that."""
    assert come.startswith(b"HTTP/1.1 200"), bytes(come[:size])
    end = come.index(b"\r\n\r\n", 0, size)
    at = come.find(LENGTH, 0, end) + len(LENGTH)
    return end + 4 + int(come[at : come.find(b"\r\n", at)])


def _address(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)
