"""An HTTP connection with limits that uvicorn does not have: the size of a request's head, the time to send a request
and to read its response, the number of connections. The application never sees a request that exceeds them."""

from __future__ import annotations

import asyncio
import heapq
import json
import select
import sys
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolscript.domain.errors import Invalid, ToolscriptError, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.services.support.shares import RETRY_SECONDS
from toolscript.surfaces.http.open_files import count_possible_connections

MAX_HEAD_BYTES = 64 * 2**10
# More than three times the requests that are answered at a time (`services/support/shares.py`): the others are refused,
# each with a response. A connection takes 20 KB, and up to 200 KB while its request arrives.
MAX_CONNECTIONS = 2000
LINGER_SECONDS = 1.0
MAX_REFUSED = 100  # connections that linger, above MAX_CONNECTIONS; more where the process may open more files
# How many of the oldest connections are looked at to find one without a request.
MAX_CANDIDATES = 16
# Linux says that the client has closed the connection with this, others with POLLHUP.
_PEER_CLOSED = getattr(select, "POLLRDHUP", 0)


class LimitedConnection(HttpToolsProtocol):
    """Closes connections that send too much before a request is complete, that send too slowly, or that do not read
    their response. When there are too many, it closes the one that has been silent for longest without a complete
    request; if all have one, the new one gets status 503."""

    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _is_in_head = True
    _is_refused = False
    _could_not_send = False
    """Whether the client had to wait for the application since its time for the next piece began."""
    _has_request = False
    """Whether a complete request waits for its response."""
    _unparsed_bytes = 0
    """What arrived since the last complete head or piece of a body: a part of a head, or of a chunked body's frame."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._active_at = self.loop.time()
        self._wait_for_head()
        limit = min(MAX_CONNECTIONS, count_possible_connections())
        if len(self.connections) > limit and not self._make_room(limit):
            self._refuse_connection(limit)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._write_timer:
            self._write_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._active_at = self.loop.time()
        self._unparsed_bytes += len(data)
        if not self._is_in_head and not self.cycle.response_complete:
            self._wait_for_body()
        super().data_received(data)
        self._could_not_send = self._could_not_send or self._may_not_send()
        if self._unparsed_bytes > MAX_HEAD_BYTES:
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait_for_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Adds a header; ignores the trailers of a chunked body: no check of the headers has seen them."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEAD_BYTES:
            self._refuse_head()
        if self._is_refused:
            raise ValueError("refused")  # ends the parsing of this connection
        super().on_headers_complete()
        self._is_in_head, self._unparsed_bytes = False, 0
        self._wait_for_body()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_head, self._unparsed_bytes = True, 0
        self._has_request = not self.cycle.response_complete
        super().on_message_complete()
        if self._has_request:
            self._stop_timer()
        else:
            self._wait_for_head()

    def on_response_complete(self) -> None:
        self._active_at, self._has_request = self.loop.time(), bool(self.pipeline)
        super().on_response_complete()
        if not self._has_request and self._is_in_head:
            self._wait_for_head()
        self._watch_writing()

    def timeout_keep_alive_handler(self) -> None:
        if not self._has_unread():
            super().timeout_keep_alive_handler()
            self._watch_writing()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP."""
        self._refuse(400, Invalid(msg))

    def _make_room(self, limit: int) -> bool:
        """Whether there is room for this connection, possibly because another one was closed."""
        others = [c for c in self.connections if isinstance(c, LimitedConnection) and c is not self]
        refused = [c for c in others if c._is_refused]
        if len(refused) > MAX_REFUSED + count_possible_connections() - limit:
            min(refused, key=lambda c: c._active_at).transport.abort()
        if len(others) - len(refused) < limit:
            return True
        waiting = (c for c in others if not c._has_request and not c._is_refused)
        candidates = heapq.nsmallest(MAX_CANDIDATES, waiting, key=lambda c: c._active_at)
        silent = next((c for c in candidates if not c._has_unread()), None)
        if silent and silent.cycle is None:  # its first request may be on its way
            silent._refuse_connection(limit)
        elif silent:
            self.connections.discard(silent)
            silent.transport.abort()
        return silent is not None

    def _wait_for_head(self) -> None:
        self._start_timer(current_limits().request_head, self._end_head)

    def _wait_for_body(self) -> None:
        self._could_not_send = self._may_not_send()
        self._start_timer(current_limits().request_body, self._end_body)

    def _may_not_send(self) -> bool:
        """Whether the client has to wait, because the application does not read."""
        cycle: Any = self.cycle  # None before the first request
        return bool(self.flow.read_paused or (cycle and cycle.waiting_for_100_continue))

    def _end_head(self) -> None:
        # A further request may be on its way, whose time begins after the response to this one.
        if self._has_request or self._has_unread():
            self._wait_for_head()
        elif self._unparsed_bytes:
            seconds = current_limits().request_head
            self._refuse(408, Invalid(f"the head of the request did not arrive within {seconds:g} seconds"))
        else:
            self._close()

    def _end_body(self) -> None:
        if self._could_not_send or self._may_not_send():  # its time begins when it may
            self._wait_for_body()
        else:
            seconds = current_limits().request_body
            self._refuse(408, Invalid(f"the next part of the body did not arrive within {seconds:g} seconds"))

    def _has_unread(self) -> bool:
        """Whether the client has sent something that this process was too busy to read."""
        if sys.platform == "win32":
            return False
        descriptor = self.transport.get_extra_info("socket").fileno()
        if descriptor < 0:  # closed
            return False
        poll = select.poll()
        poll.register(descriptor, select.POLLIN | _PEER_CLOSED)
        return any(event == select.POLLIN for _, event in poll.poll(0))

    def _start_timer(self, seconds: float, end: Any) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, end)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self.transport.close()
        self._watch_writing()

    def _watch_writing(self) -> None:
        if self._write_timer is None and (unsent := self.transport.get_write_buffer_size()):
            self._write_timer = self.loop.call_later(
                current_limits().request_body, self._check_writing, unsent, self._active_at
            )

    def _check_writing(self, unsent: int, active_at: float) -> None:
        """Ends the connection if the client has read nothing: closing it would wait until everything is sent."""
        self._write_timer = None
        if (self.transport.get_write_buffer_size(), self._active_at) == (unsent, active_at):
            self.transport.abort()
        else:
            self._watch_writing()

    def _refuse_connection(self, limit: int) -> None:
        error = f"more than {limit} connections: try again in {RETRY_SECONDS:g} second"
        self._refuse(503, Unavailable(error, details={"retry_after_seconds": RETRY_SECONDS}))

    def _refuse_head(self) -> None:
        self._refuse(431, Invalid(f"request line and headers are larger than {MAX_HEAD_BYTES // 2**10} KiB"))

    def _refuse(self, status: int, error: ToolscriptError) -> None:
        """Sends the error, discards what the client still sends, and closes the connection. It only closes the
        connection where the client would take the error for the response to another request."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        is_too_late = self._has_request or (not self._is_in_head and self.cycle.response_started)
        cycle: Any = self.cycle  # None before the first request
        if cycle and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if is_too_late:
            self._close()
            return
        body = json.dumps(error.to_envelope()).encode()
        retry = f"retry-after: {RETRY_SECONDS:g}\r\n" if "retry_after_seconds" in error.details else ""
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n{retry}"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        with suppress(OSError):  # the client is gone
            self.transport.write_eof()
        # Closing at once would reset the connection while the client still sends, and lose the response.
        self._start_timer(LINGER_SECONDS, self.transport.abort)
