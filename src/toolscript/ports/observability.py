"""Events for analysis, and the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toolscript.domain.audit import AuditEvent, AuditPage, AuditQuery, CallTime


class EventSink(Protocol):
    """Receives events. It may be down: callers never wait for it, and its errors never fail a request.

    >>> import asyncio, tempfile
    >>> from pathlib import Path
    >>> from toolscript.adapters.observability.event_sinks import open_jsonl_sink
    >>> file = Path(tempfile.mkdtemp()) / "events.jsonl"
    >>> sink = open_jsonl_sink(file)
    >>> sink.record({"type": "search", "query": "read a file"})
    >>> asyncio.run(sink.close())
    >>> file.read_text().strip()
    '{"type": "search", "query": "read a file"}'
    """

    def record(self, event: Mapping[str, Any]) -> None:
        """Takes one event: `type`, `time`, `request_id`, and the fields of that type. Never raises or waits."""

    async def close(self) -> None:
        """Writes the remaining events, within a time limit."""


class AuditStore(Protocol):
    """Keeps the events of calls and searches until they are too old or too many.

    >>> import asyncio
    >>> from toolscript.adapters.sql.audit import SqlAudit
    >>> from toolscript.domain.audit import AuditEvent, AuditKind, AuditQuery
    >>> event = AuditEvent(1 << 20, AuditKind.CALLS, "git__log", "git", "ci", "", "http", "ok", 1.5, 20, 0, "r1", "")
    >>> async def add_and_list():
    ...     store = SqlAudit("sqlite://")
    ...     store.add([event])
    ...     page = await store.list_events(AuditQuery(tool="git__log"))
    ...     await store.close()
    ...     return page.events == [event]
    >>> asyncio.run(add_and_list())
    True
    """

    def add(self, events: Sequence[AuditEvent]) -> None:
        """Writes events and deletes some old events; waits for the store, so not on the event loop. Raises
        Unavailable."""

    async def list_events(self, query: AuditQuery) -> AuditPage:
        """A page of the events that match. It can have fewer than the limit, and yet not be the last: the number of
        events that one query looks at is limited. Raises Unavailable."""

    async def list_times(self, query: AuditQuery, *, by_server: bool) -> Sequence[CallTime]:
        """The times of the newest `query.limit` matching events, by tool or server. Raises Unavailable."""

    async def close(self) -> None: ...
