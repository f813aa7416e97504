"""One event for analysis per search, successful or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from toolscript.domain.errors import ToolscriptError
from toolscript.ports.observability import EventSink

log = logging.getLogger(__name__)


def record_event(events: EventSink, event: Mapping[str, Any]) -> None:
    """Records the event. Errors of the sink are logged and ignored: events must never fail a search."""
    try:
        events.record(event)
    except Exception as fault:
        log.debug("event_lost", exc_info=fault)


def get_error_code(error: BaseException | None) -> str | None:
    """The error's code, or CANCELLED; None without an error."""
    if error is None:
        return None
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "CANCELLED"
    return error.code if isinstance(error, ToolscriptError) else ToolscriptError.code
