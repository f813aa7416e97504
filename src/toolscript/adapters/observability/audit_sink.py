"""Writes the events of calls and searches into the audit's store, in batches, without delaying a request.

While the store fails, because the disk is full or the database is down, the newest events wait; when too many wait, the
oldest are lost and counted.
"""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any

from toolscript.adapters.observability.event_sinks import QUEUE_SIZE, QueuedSink
from toolscript.domain.audit import (
    CALL_EVENTS,
    OK,
    REFUSAL_EVENT,
    SEARCH_EVENTS,
    SERVER_EVENT,
    UNIQUE_BITS,
    AuditEvent,
    AuditKind,
    AuditState,
)
from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits
from toolscript.ports.observability import AuditStore

RETRY_SECONDS = 1.0
_KINDS = (
    dict.fromkeys(CALL_EVENTS, AuditKind.CALLS)
    | dict.fromkeys(SEARCH_EVENTS, AuditKind.SEARCHES)
    | {REFUSAL_EVENT: AuditKind.REFUSALS, SERVER_EVENT: AuditKind.SERVERS}
)
_DETAILS = {
    AuditKind.CALLS: "arguments",
    AuditKind.SEARCHES: "query",
    AuditKind.REFUSALS: "reason",
    AuditKind.SERVERS: "about",
}

log = logging.getLogger(__name__)


class AuditSink(QueuedSink):
    """Takes the events that belong into the audit, and ignores the others."""

    def __init__(
        self, store: AuditStore, *, queue_size: int = QUEUE_SIZE, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        super().__init__(self._write, queue_size=queue_size, interval=current_limits().audit_interval)
        self._store = store
        self._retry_seconds = retry_seconds
        self._numbers = count(random.getrandbits(UNIQUE_BITS))

    @property
    def state(self) -> AuditState:
        """Whether events are written."""
        return AuditState(self.dropped, self.reason)

    def record(self, event: Mapping[str, Any]) -> None:
        """Queues the event. Never raises."""
        if event.get("type") in _KINDS:
            super().record(event)

    def _write(self, batch: Sequence[bytes], closing: threading.Event) -> None:
        events = [self._build_event(json.loads(each)) for each in batch]
        while True:
            try:
                return self._store.add(events)
            except Unavailable as error:
                if closing.is_set():
                    raise
                if self.reason is None:
                    log.warning("audit_not_written", extra={"reason": error.message})
                self.reason = error.message
            closing.wait(self._retry_seconds)

    def _build_event(self, event: Mapping[str, Any]) -> AuditEvent:
        kind = _KINDS[event["type"]]
        milliseconds = round(datetime.fromisoformat(event["time"]).timestamp() * 1000)
        # PostgreSQL's texts have no NUL.
        text = {name: value.replace("\0", "") for name, value in event.items() if isinstance(value, str)}
        return AuditEvent(
            id=(milliseconds << UNIQUE_BITS) | (next(self._numbers) % 2**UNIQUE_BITS),
            kind=kind,
            tool=text["type"] if kind is AuditKind.SEARCHES else text["tool"],
            server=text.get("server", ""),
            caller=text["caller"],
            profile=text["profile"],
            surface=text["surface"],
            outcome=event["error"] or OK,
            ms=event["took_ms"],
            bytes=event.get("bytes", 0),
            hits=event.get("hits", 0),
            request_id=text["request_id"],
            details=text[_DETAILS[kind]],
            called_by=text["called_by"],
        )
