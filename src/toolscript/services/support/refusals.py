"""Events of requests that were refused before they reached a use case: no valid key, or one that lacks the scope."""

from __future__ import annotations

from toolscript.domain.errors import ToolscriptError
from toolscript.domain.redaction import redact_text
from toolscript.domain.requests import current_request
from toolscript.domain.search import SearchReport
from toolscript.ports.access import RateBuckets
from toolscript.ports.observability import EventSink
from toolscript.services.support.search_events import MAX_NAME, build_event, record_event

# A stranger's request costs an event. With more of them, anyone could push the calls out of an audit of limited size.
MAX_PER_MINUTE = 10


class Refusals:
    """Records refused requests: at most ten a minute of each caller, and ten of all without a valid key together."""

    def __init__(self, events: EventSink, buckets: RateBuckets) -> None:
        self._events = events
        self._buckets = buckets

    async def record(self, request: str, error: ToolscriptError) -> None:
        """Records that the request, a method and a path, was refused with this error. Never raises."""
        context = current_request()
        if await self._buckets.take(context.caller_name or "", MAX_PER_MINUTE):
            return
        about = {"tool": redact_text(request)[:MAX_NAME], "reason": redact_text(error.message)}
        record_event(
            self._events, build_event("access.refused", SearchReport({"total": 0.0}), about, error.code, context)
        )
