"""One event for analysis per search, successful or not."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from toolscript.domain.errors import ToolscriptError
from toolscript.domain.requests import caller_name, current_request_id
from toolscript.domain.search import SearchReport
from toolscript.ports.observability import EventSink

Event = Mapping[str, Any]

log = logging.getLogger(__name__)


@contextmanager
def record_search(
    record: Callable[[Event], None],
    kind: str,
    report: SearchReport,
    describe: Callable[[], Event],
    *,
    at_success: bool = True,
) -> Iterator[None]:
    """Adds the total time of the block to the report, and records an event of that kind when the block ends;
    unless `at_success`, only when it fails. `describe` returns what the event says beside times and errors."""
    began, code = time.perf_counter(), None
    earlier_ms = report.timings_ms.get("total", 0.0)
    try:
        yield
    except BaseException as error:
        code = _get_error_code(error)
        raise
    finally:
        report.timings_ms["total"] = earlier_ms + (time.perf_counter() - began) * 1000
        if code or at_success:
            timings = {name: round(ms, 3) for name, ms in report.timings_ms.items()}
            record(
                {
                    "type": kind,
                    "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    "request_id": current_request_id(),
                    **({"caller": caller} if (caller := caller_name.get()) else {}),
                    **describe(),
                    "took_ms": timings["total"],
                    "timings_ms": timings,
                    "degraded": list(report.degraded),
                    "error": code,
                }
            )


def record_event(events: EventSink, event: Event) -> None:
    """Records the event. Errors of the sink are logged and ignored: events must never fail a search."""
    try:
        events.record(event)
    except Exception as fault:
        log.debug("event_lost", exc_info=fault)


def _get_error_code(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "CANCELLED"
    return error.code if isinstance(error, ToolscriptError) else ToolscriptError.code
