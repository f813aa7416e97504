"""Takes events to where they are analysed: a file, or a service. Nobody waits for that, and nothing fails with it.

Each sink has a thread and a short memory. When the other side is down or slow, the memory fills, and the oldest
events are forgotten and counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolscript.domain.errors import Invalid
from toolscript.ports.observability import EventSink

if TYPE_CHECKING:
    import httpx

MEMORY = 10_000
BATCH = 100
EVERY_SECONDS = 1.0
FILE_EVERY_SECONDS = 0.1
FAREWELL_SECONDS = 2.0
TIMEOUT_SECONDS = 5.0
AGAIN_AFTER_SECONDS = 0.2
DEEPEST = 20
LONGEST_NUMBER = 64
SERVER_FAULT, TOO_MANY, GOOD = 500, 429, range(200, 300)

Event = Mapping[str, Any]

log = logging.getLogger(__name__)


class _Thread:
    """Hands events over in batches, from a thread of its own that starts with the first event."""

    def __init__(
        self,
        deliver: Callable[[Sequence[Event]], None],
        *,
        memory: int,
        every: float,
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        """`deliver` raises when a batch is lost; `finish` is called when there will be no more."""
        self._deliver = deliver
        self._finish = finish
        self._waiting: deque[Event] = deque(maxlen=memory)
        self._full = min(BATCH, memory)
        self._every = every
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._complained = False
        self.closing = threading.Event()
        self.dropped = 0

    def take(self, event: Event) -> None:
        """Keeps a copy of the event for later. Never raises."""
        try:
            kept = dict(event)
            with self._changed:
                if self.closing.is_set():
                    self.dropped += 1
                    return
                self._start()
                if len(self._waiting) == self._waiting.maxlen:
                    self.dropped += 1
                self._waiting.append(kept)
                if len(self._waiting) in {1, self._full}:
                    self._changed.notify()
        except Exception as error:  # noqa: BLE001 - whatever an event of somebody else's may raise
            self.dropped += 1
            self._complain(error, 1)

    def close(self, within: float) -> None:
        """Waits for what is left to be handed over, so long at most; what is left then is lost."""
        with self._changed:
            self.closing.set()
            self._changed.notify()
        if self._thread:
            self._thread.join(within)
        with self._changed:
            self.dropped += len(self._waiting)
            self._waiting.clear()

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="events", daemon=True)
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        while batch := self._next():
            try:
                self._deliver(batch)
                self._complained = False
            except Exception as error:  # noqa: BLE001 - the thread must outlive whatever goes wrong
                with self._changed:
                    self.dropped += len(batch)
                self._complain(error, len(batch))
        self._finish()

    def _next(self) -> list[Event]:
        """The next batch: when it is full, or when its first event has waited long enough. Empty: that was all."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.closing.is_set())
            self._changed.wait_for(lambda: len(self._waiting) >= self._full or self.closing.is_set(), self._every)
            return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _complain(self, error: Exception, events: int) -> None:
        """Once, until it works again."""
        if not self._complained:
            self._complained = True
            log.warning("events_lost", extra={"reason": str(error), "events": events})


class JsonlSink:
    """Appends events to a file, a line of JSON each. The file may be moved away at any time: a new one is begun."""

    def __init__(self, path: Path, *, memory: int = MEMORY) -> None:
        self._path = path
        self._torn = False
        self._thread = _Thread(self._append, memory=memory, every=FILE_EVERY_SECONDS)

    @property
    def dropped(self) -> int:
        """How many events were lost so far."""
        return self._thread.dropped

    def record(self, event: Event) -> None:
        self._thread.take(event)

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.close, FAREWELL_SECONDS)

    def _append(self, events: Sequence[Event]) -> None:
        lines = b"".join(encoded(event) + b"\n" for event in events)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # What people ask is theirs: nobody else on this machine need read it.
        opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            left = b"\n" + lines if self._torn else lines
            self._torn = True
            while left:
                left = left[os.write(opened, left) :]
            self._torn = False
        finally:
            os.close(opened)


class HttpSink:
    """Posts events to a URL, a JSON array of at most a hundred at a time. A batch that is refused is tried once more
    where that may help, and then lost."""

    def __init__(self, url: str, *, memory: int = MEMORY, every: float = EVERY_SECONDS) -> None:
        """Raises Invalid for what is no http(s) URL."""
        self._url = url
        self._where = _shown(url)
        self._client: httpx.Client | None = None
        self._thread = _Thread(self._post, memory=memory, every=every, finish=self._hang_up)

    @property
    def dropped(self) -> int:
        """How many events were lost so far."""
        return self._thread.dropped

    def record(self, event: Event) -> None:
        self._thread.take(event)

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.close, FAREWELL_SECONDS)

    def _hang_up(self) -> None:
        if self._client:
            self._client.close()

    def _post(self, events: Sequence[Event]) -> None:
        body = b"[" + b",".join(map(encoded, events)) + b"]"
        reason, may_pass = self._try(body)
        if reason and may_pass:
            self._thread.closing.wait(AGAIN_AFTER_SECONDS)
            reason, _ = self._try(body)
        if reason:
            raise OSError(f"{self._where} did not take them: {reason}")

    def _try(self, body: bytes) -> tuple[str | None, bool]:
        """Why it went wrong, if it did, and whether that may pass."""
        import httpx  # slow to import: only where events go to a service

        if self._client is None:
            self._client = httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=False)
        said = {"Content-Type": "application/json"}
        patience = FAREWELL_SECONDS / 2 if self._thread.closing.is_set() else TIMEOUT_SECONDS
        try:
            with self._client.stream("POST", self._url, content=body, headers=said, timeout=patience) as answer:
                status = answer.status_code
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError, OSError) as error:
            return type(error).__name__, True
        return None if status in GOOD else f"status {status}", status >= SERVER_FAULT or status == TOO_MANY


class Sinks:
    """Several sinks as one."""

    def __init__(self, sinks: Sequence[EventSink]) -> None:
        self._sinks = tuple(sinks)

    @property
    def dropped(self) -> int:
        """How many events were lost so far, in all of them together."""
        return sum(getattr(sink, "dropped", 0) for sink in self._sinks)

    def record(self, event: Event) -> None:
        for sink in self._sinks:
            with suppress(Exception):
                sink.record(event)

    async def close(self) -> None:
        await asyncio.gather(*(sink.close() for sink in self._sinks), return_exceptions=True)


def encoded(event: Event) -> bytes:
    """An event as JSON, whatever its values are: those that JSON does not know become text, numbers that are none
    become null."""
    try:
        text = json.dumps(event, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(_plain(event, DEEPEST), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace")


def _plain(value: Any, deep: int) -> Any:
    if value is None or isinstance(value, bool) or (isinstance(value, int) and value.bit_length() <= LONGEST_NUMBER):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str) or deep == 0:
        return _text(value)
    if isinstance(value, Mapping):
        return {_text(key): _plain(each, deep - 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, deep - 1) for each in value]
    return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - whatever an object of somebody else's may raise
        return f"[{type(value).__name__} that cannot be shown: {type(error).__name__}]"


def _shown(url: str) -> str:
    """A URL as it may be shown: without user, password and query. Raises Invalid."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.scheme not in {"http", "https"}:
        raise Invalid(
            "TOOLSCRIPT_EVENTS is not usable: give the path of a .jsonl file, or an http(s) URL that takes JSON",
            details={"field": "TOOLSCRIPT_EVENTS"},
        )
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
