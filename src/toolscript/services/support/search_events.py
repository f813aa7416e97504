"""How a search tells of itself when it is over: one event for analysis, whichever way it ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from toolscript.domain.errors import ToolscriptError
from toolscript.ports.observability import EventSink

log = logging.getLogger(__name__)


def record_event(events: EventSink, event: Mapping[str, Any]) -> None:
    """Records the event. A sink that fails is nobody's problem."""
    try:
        events.record(event)
    except Exception as fault:
        log.debug("event_lost", exc_info=fault)


def get_error_code(error: BaseException | None) -> str | None:
    """One word for how a search ended; None for well."""
    if error is None:
        return None
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "CANCELLED"
    return error.code if isinstance(error, ToolscriptError) else ToolscriptError.code
