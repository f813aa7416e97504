"""Reads the audit: lists calls and searches, and sums calls up by tool or server."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from toolscript.domain.audit import ANY_ERROR, OK, AuditEvent, AuditKind, AuditPage, AuditQuery, CallTime
from toolscript.domain.errors import InvalidArguments, NotFound
from toolscript.domain.limits import current_limits
from toolscript.ports.observability import AuditStore

MAX_SUMMED = 10_000
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,6})([smhd])")
_MAX_DIGITS = 19


@dataclass(frozen=True, slots=True)
class CallSummary:
    """The calls of one tool or server."""

    name: str
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The newest calls by tool or server, the most used first."""

    rows: Sequence[CallSummary]


class CallLog:
    """The calls and searches of a gateway."""

    def __init__(self, store: AuditStore | None, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    async def list_events(self, query: AuditQuery) -> AuditPage:
        """The newest events that match, as many as the limit if they are found in time. Raises NotFound where the audit
        is switched off, and Unavailable."""
        query, deadline = _use_index(query), time.monotonic() + current_limits().call_log_page
        events: list[AuditEvent] = []
        while True:
            page = await self._get_store().list_events(replace(query, limit=query.limit - len(events)))
            events += page.events
            query = replace(query, before=page.next_before)
            if page.next_before is None or len(events) >= query.limit or time.monotonic() > deadline:
                return AuditPage(events, page.next_before)

    async def summarize(self, query: AuditQuery, *, by_server: bool = False) -> Summary:
        """The newest matching events, by tool or server. Raises as `list_events` does."""
        times = await self._get_store().list_times(replace(_use_index(query), limit=MAX_SUMMED), by_server=by_server)
        groups: dict[str, list[CallTime]] = defaultdict(list)
        for call_time in times:
            groups[call_time.name].append(call_time)
        rows = [_sum_up(name, group) for name, group in groups.items()]
        return Summary(sorted(rows, key=lambda row: (-row.calls, row.name)))

    def parse_time(self, text: str | None, field: str) -> float | None:
        """The seconds since 1970 of a time such as 2026-07-28T12:00 (UTC unless it says otherwise), or of the moment
        that long ago: 30m, 12h, 7d. Raises InvalidArguments."""
        if text is None:
            return None
        if match := _DURATION.fullmatch(text.strip()):
            return self._clock() - int(match[1]) * _UNITS[match[2]]
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise InvalidArguments(
                f"invalid {field} {text!r}: expected a time such as 2026-07-28T12:00, or how long ago: 30m, 12h or 7d",
                details={"field": field},
            ) from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def _get_store(self) -> AuditStore:
        if self._store is None:
            raise NotFound("the audit is switched off: set TOOLSCRIPT_AUDIT=true where the gateway runs")
        return self._store


def parse_page_token(token: str | None) -> int | None:
    """Where a page begins. Raises InvalidArguments."""
    if token is None:
        return None
    if not token.isascii() or not token.isdigit() or len(token) > _MAX_DIGITS:
        raise InvalidArguments(
            "the page token cannot be used: give the next_page_token of the answer before, for the same filters",
            details={"field": "page_token"},
        )
    return int(token)


def _use_index(query: AuditQuery) -> AuditQuery:
    """All refusals are errors, and errors have an index: few are found among millions of calls."""
    is_refusals = query.kind is AuditKind.REFUSALS and query.outcome is None
    return replace(query, outcome=ANY_ERROR) if is_refusals else query


def _sum_up(name: str, events: Sequence[CallTime]) -> CallSummary:
    times = sorted(event.ms for event in events)
    errors = sum(event.outcome != OK for event in events)
    p50, p95 = (times[len(times) * percent // 100] for percent in (50, 95))
    return CallSummary(name, len(events), errors, p50, p95)
