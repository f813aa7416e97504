"""Sends events to a file or a service for analysis, without delaying or failing a request.

Each sink has a thread and a bounded queue. When the target is down or slow, the queue fills, and the oldest events are
dropped and counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscript.adapters.outgoing.remote_services import hide_credentials, require_http_url
from toolscript.adapters.storage.private_files import make_private_folder, open_private
from toolscript.domain.limits import current_limits
from toolscript.ports.observability import EventSink

if TYPE_CHECKING:
    import httpx

QUEUE_SIZE = 10_000
BATCH = 100
INTERVAL_SECONDS = 1.0
FILE_INTERVAL_SECONDS = 0.1
TIMEOUT_SECONDS = 5.0
RETRY_AFTER_SECONDS = 0.2
SERVER_FAULT, TOO_MANY, GOOD = 500, 429, range(200, 300)

Event = Mapping[str, Any]

log = logging.getLogger(__name__)


class QueuedSink:
    """Delivers events in batches from a thread that starts with the first event."""

    def __init__(
        self,
        deliver: Callable[[Sequence[bytes], threading.Event], None],
        *,
        queue_size: int,
        interval: float,
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        """`deliver` raises when a batch is lost; its second argument is set when the sink is closing. `finish` is
        called after the last batch."""
        self._deliver = deliver
        self._finish = finish
        self._waiting: deque[bytes] = deque(maxlen=queue_size)
        self._full = min(BATCH, queue_size)
        self._interval = interval
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_warned = False
        self.dropped = 0
        self.reason: str | None = None
        """Why the last delivery failed, if it did."""

    def record(self, event: Event) -> None:
        """Queues the event as JSON; values of other types become strings. Never raises."""
        try:
            text = json.dumps(dict(event), ensure_ascii=False, allow_nan=False, default=str)
            with self._changed:
                if self._closing.is_set():
                    self.dropped += 1
                    return
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="events", daemon=True)
                    thread.start()
                    self._thread = thread
                if len(self._waiting) == self._waiting.maxlen:
                    self.dropped += 1
                self._waiting.append(text.encode("utf-8", "replace"))
                if len(self._waiting) in {1, self._full}:
                    self._changed.notify()
        except Exception as error:  # noqa: BLE001 - a value that JSON cannot represent may raise anything
            self.dropped += 1
            self._warn(error, 1)

    async def close(self) -> None:
        """Waits up to two seconds for the delivery of the queued events, then drops and counts the rest."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        if self._thread:
            await asyncio.to_thread(self._thread.join, current_limits().shutdown_events)
        with self._changed:
            self.dropped += len(self._waiting)
            self._waiting.clear()

    def _run(self) -> None:
        while batch := self._next():
            try:
                self._deliver(batch, self._closing)
                self._has_warned, self.reason = False, None
            except Exception as error:  # noqa: BLE001 - the thread must survive every error
                with self._changed:
                    self.dropped += len(batch)
                self._warn(error, len(batch))
        self._finish()

    def _next(self) -> list[bytes]:
        """The next batch: when it is full, or when its first event has waited an interval. Empty after closing."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing.is_set())
            self._changed.wait_for(lambda: len(self._waiting) >= self._full or self._closing.is_set(), self._interval)
            return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _warn(self, error: Exception, events: int) -> None:
        """Logs a warning once, until a delivery succeeds again."""
        self.reason = str(error)
        if not self._has_warned:
            self._has_warned = True
            log.warning("events_lost", extra={"reason": str(error), "events": events})


def open_jsonl_sink(path: Path) -> QueuedSink:
    """A sink that appends events to a file, one line of JSON each. The file may be moved away at any time: a new one is
    created."""
    has_partial_line = False

    def append(events: Sequence[bytes], _: threading.Event) -> None:
        nonlocal has_partial_line
        lines = b"".join(event + b"\n" for event in events)
        if not path.parent.exists():
            make_private_folder(path.parent)
        # Queries are private: other users of this machine must not read them.
        descriptor = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            left = b"\n" + lines if has_partial_line else lines
            has_partial_line = True
            while left:
                left = left[os.write(descriptor, left) :]
            has_partial_line = False
        finally:
            os.close(descriptor)

    return QueuedSink(append, queue_size=QUEUE_SIZE, interval=FILE_INTERVAL_SECONDS)


def open_http_sink(url: str, *, queue_size: int = QUEUE_SIZE, interval: float = INTERVAL_SECONDS) -> QueuedSink:
    """A sink that posts events to a URL as JSON arrays of up to 100. Raises Invalid unless this is an http(s) URL."""
    require_http_url(url, "TOOLSCRIPT_EVENTS", "the path of a .jsonl file, or an http(s) URL for JSON")
    collector = _Collector(url)
    return QueuedSink(collector.post, queue_size=queue_size, interval=interval, finish=collector.close)


class _Collector:
    """A service that takes events. A batch that fails is retried once where that may help."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: httpx.Client | None = None

    def post(self, events: Sequence[bytes], closing: threading.Event) -> None:
        body = b"[" + b",".join(events) + b"]"
        reason, may_retry = self._try(body, closing)
        if reason and may_retry:
            closing.wait(RETRY_AFTER_SECONDS)
            reason, _ = self._try(body, closing)
        if reason:
            raise OSError(f"{hide_credentials(self._url)} did not accept them: {reason}")

    def close(self) -> None:
        if self._client:
            self._client.close()

    def _try(self, body: bytes, closing: threading.Event) -> tuple[str | None, bool]:
        """The reason of a failure, if any, and whether a retry may help."""
        import httpx  # slow to import: only where events go to a service

        self._client = self._client or httpx.Client(follow_redirects=False)
        headers = {"Content-Type": "application/json"}
        timeout = current_limits().shutdown_events / 2 if closing.is_set() else TIMEOUT_SECONDS
        try:
            with self._client.stream("POST", self._url, content=body, headers=headers, timeout=timeout) as response:
                status = response.status_code
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError, OSError) as error:
            return type(error).__name__, True
        return None if status in GOOD else f"status {status}", status >= SERVER_FAULT or status == TOO_MANY


class Sinks:
    """Combines several sinks. Errors of one are ignored: events must never fail a search."""

    def __init__(self, sinks: Sequence[EventSink]) -> None:
        self._sinks = tuple(sinks)

    @property
    def dropped(self) -> int:
        """The number of lost events of all sinks."""
        return sum(getattr(sink, "dropped", 0) for sink in self._sinks)

    def record(self, event: Event) -> None:
        for sink in self._sinks:
            with suppress(Exception):
                sink.record(event)

    async def close(self) -> None:
        await asyncio.gather(*(sink.close() for sink in self._sinks), return_exceptions=True)
