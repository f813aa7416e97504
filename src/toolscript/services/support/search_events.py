"""One event per search and per call, successful or not: for analysis, and for the audit."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from toolscript.domain.errors import ToolscriptError
from toolscript.domain.redaction import redact_arguments, redact_text
from toolscript.domain.requests import RequestContext
from toolscript.domain.search import SearchReport
from toolscript.ports.observability import EventSink

Event = Mapping[str, Any]

# Of the arguments of a call, events contain so many characters.
MAX_ARGUMENTS = 4000
# Callers choose the names that they ask for.
MAX_NAME = 256
# These take a millisecond.
MAX_PARTS = 1000

_Result = TypeVar("_Result")

log = logging.getLogger(__name__)


@contextmanager
def record_search(
    record: Callable[[Event], None],
    kind: str,
    report: SearchReport,
    describe: Callable[[], Event],
    context: RequestContext,
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
            record(build_event(kind, report, describe(), code, context))


def build_event(kind: str, report: SearchReport, about: Event, code: str | None, context: RequestContext) -> Event:
    """An event of that kind in the request; `code` is the code of its error."""
    timings = {name: round(ms, 3) for name, ms in report.timings_ms.items()}
    return {
        "type": kind,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request_id": context.get_or_create_id(),
        "caller": context.caller,
        "profile": context.profile or "",
        "surface": context.surface,
        "called_by": context.calling_program,
        **about,
        "took_ms": timings["total"],
        "timings_ms": timings,
        "degraded": list(report.degraded),
        "error": code,
    }


@contextmanager
def record_tool_search(
    events: EventSink | None, kind: str, query: str, report: SearchReport, context: RequestContext
) -> Iterator[None]:
    """Records a search for tools or skills: its words without secrets, and the number of its results."""
    if events is None:
        yield
        return

    def describe() -> Event:
        return {"query": redact_text(query), "hits": report.counts.get("returned", 0)}

    with record_search(partial(record_event, events), kind, report, describe, context):
        yield


def record_event(events: EventSink, event: Event) -> None:
    """Records the event. Errors of the sink are logged and ignored: events must never fail a search."""
    try:
        events.record(event)
    except Exception as fault:
        log.debug("event_lost", exc_info=fault)


def describe_arguments(arguments: Any, *, as_digest: bool, secrets: Sequence[str] = ()) -> str:
    """How events describe the arguments of a call: as JSON without secrets, including configured secrets, or as a
    digest of that JSON. So a secret that is short enough to be guessed cannot be found by comparing digests."""
    text = json.dumps(
        redact_arguments(arguments, secrets=secrets), ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )
    if as_digest:
        return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"
    return text if len(text) <= MAX_ARGUMENTS else f"{text[:MAX_ARGUMENTS]}…"


async def work_on(value: Any, work: Callable[[Any], _Result]) -> _Result:
    """What `work` makes of a value; in a thread if it has many parts, because the work may take a second."""
    return await asyncio.to_thread(work, value) if _has_many_parts(value) else work(value)


def _has_many_parts(value: Any) -> bool:
    stack, count = [value], 0
    while stack and count <= MAX_PARTS:
        part = stack.pop()
        if isinstance(part, Mapping | list | tuple):
            count += len(part)
            stack += (part.values() if isinstance(part, Mapping) else part) if count <= MAX_PARTS else []
    return count > MAX_PARTS


def measure_json(value: Any) -> int:
    """The bytes of a value as compact JSON, without writing it: a result of 5 MB has few, long strings."""
    match value:
        case str():
            return len(value) + 2 if value.isascii() else len(value.encode("utf-8", "replace")) + 2
        case Mapping():
            return 1 + sum(measure_json(key) + measure_json(member) + 2 for key, member in value.items()) + (not value)
        case list() | tuple():
            return 1 + sum(measure_json(member) + 1 for member in value) + (not value)
        case True | False | None:
            return 5 if value is False else 4
        case _:
            return len(str(value))


def _get_error_code(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "CANCELLED"
    return error.code if isinstance(error, ToolscriptError) else ToolscriptError.code
