"""The head of an answer goes out together with its body: the server writes them one by one, and every write is a call
of the system and wakes whoever reads."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class WholeAnswers(HttpToolsProtocol):
    """HTTP as the server speaks it, over a transport that holds back heads."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Has been connected."""
        super().connection_made(cast("asyncio.Transport", _HoldsHeads(transport)))


class _HoldsHeads:
    """A transport that keeps the head of an answer until something follows, or nothing has by the next turn of the
    loop."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held = b""
        self._soon = asyncio.get_running_loop().call_soon

    def write(self, data: bytes) -> None:
        """Sends that, and whatever was held back before it."""
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(b"HTTP/1."):
            self._held = data
            self._soon(self._let_go)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Ends the connection once everything is sent."""
        self._let_go()
        self._transport.close()

    def _let_go(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
