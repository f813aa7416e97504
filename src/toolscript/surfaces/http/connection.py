"""An HTTP connection with limits that uvicorn does not have: the size of a request's head, the time to send a request,
the number of connections. The application never sees a request that exceeds them."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolscript.domain.errors import Invalid, ToolscriptError, Unavailable

MAX_HEAD_BYTES = 64 * 2**10
MAX_CONNECTIONS = 800  # below 1 024 open files, the usual limit of a process
HEAD_SECONDS = 10.0
# Between two pieces of a body: a large body over a slow line may take longer in all.
BODY_SECONDS = 20.0
LINGER_SECONDS = 1.0


class LimitedConnection(HttpToolsProtocol):
    """Closes connections that send too much before a request is complete, or too slowly. When there are too many, it
    closes the one that has waited longest without a request; if all have one, the new one gets status 503."""

    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_in_head = True
    _has_request = False
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._wait_for_head()
        if len(self.connections) > MAX_CONNECTIONS and not self._close_idle_connection():
            self._refuse(503, Unavailable(f"more than {MAX_CONNECTIONS} connections: try again in a moment"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._is_in_head:
            self._head_bytes += len(data)
        elif not self.cycle.response_complete:
            self._wait_for_body()
        super().data_received(data)
        if self._is_in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True
        if self._timer is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEAD_BYTES:
            self._refuse_head()
        if self._is_refused:
            raise ValueError("refused")  # ends the parsing of this connection
        self._is_in_head, self._head_bytes, self._has_request = False, 0, True
        self._wait_for_body()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._idle_since, self._has_request = self.loop.time(), bool(self.pipeline)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP."""
        self._refuse(400, Invalid(msg))

    def _close_idle_connection(self) -> bool:
        others = (c for c in self.connections if isinstance(c, LimitedConnection) and c is not self)
        idle = min((c for c in others if not c._has_request), key=lambda c: c._idle_since, default=None)
        if idle:
            idle.transport.close()
            self.connections.discard(idle)
        return idle is not None

    def _wait_for_head(self) -> None:
        self._start_timer(HEAD_SECONDS, self._end_head)

    def _wait_for_body(self) -> None:
        self._start_timer(BODY_SECONDS, self._end_body)

    def _end_head(self) -> None:
        if self._head_bytes:
            self._refuse(408, Invalid(f"the head of the request did not arrive within {HEAD_SECONDS:g} seconds"))
        else:
            self.transport.close()

    def _end_body(self) -> None:
        if self.flow.read_paused:  # the application does not read, and the client may not send
            self._wait_for_body()
        elif self.cycle.response_started:
            self.transport.close()
        else:
            self._refuse(408, Invalid(f"the next part of the body did not arrive within {BODY_SECONDS:g} seconds"))

    def _start_timer(self, seconds: float, end: Any) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, end)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _refuse_head(self) -> None:
        self._refuse(431, Invalid(f"request line and headers are larger than {MAX_HEAD_BYTES // 2**10} KiB"))

    def _refuse(self, status: int, error: ToolscriptError) -> None:
        """Sends the error, discards what the client still sends, and closes the connection."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        body = json.dumps(error.to_envelope()).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.write(head.encode() + body)
        self.transport.write_eof()
        # Closing at once would reset the connection while the client still sends, and lose the response.
        self._start_timer(LINGER_SECONDS, self.transport.close)
