"""Events for analysis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


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
