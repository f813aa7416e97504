"""Structured log lines on standard error; standard output is only for results.

Other modules log events as `log.warning("event_name", extra={...})`. Each becomes one line with the id of its request,
and with everything redacted that looks like a secret.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from toolscript.domain.quarantine import make_visible
from toolscript.domain.redaction import REDACTED, is_secret_name, redact_secrets
from toolscript.domain.requests import current_request

# Silenced: their lines about requests may contain secrets, and Toolscript logs the important events itself.
_SILENCED_LIBRARIES = ("mcp", "client", "httpx", "httpx2", "httpcore", "httpcore2", "uvicorn")
# Logged from level warning: only the exporter itself reports that spans cannot be sent.
_LOGGED_LIBRARY = "opentelemetry"

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

REPEAT_SECONDS, MAX_REMEMBERED = 60.0, 1000
MAX_DEPTH = 8


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, event, request id, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": redact_secrets(record.getMessage()),
            **_collect_fields(record),
        }
        if record.exc_info:
            line["exception"] = redact_secrets(self.formatException(record.exc_info))
        return json.dumps(line, default=str, ensure_ascii=False)


class PlainLines(logging.Formatter):
    """One readable line per event, for terminals."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "  ".join(f"{k}: {v}" for k, v in _collect_fields(record).items())
        event = redact_secrets(record.getMessage()).replace("_", " ")
        # Texts of servers and registries must not control the terminal.
        line = make_visible(f"{record.levelname.lower()}: {event}  {fields}".rstrip(), keep="")
        exception = f"\n{redact_secrets(self.formatException(record.exc_info))}" if record.exc_info else ""
        return line + make_visible(exception)


class RepeatFilter(logging.Filter):
    """Passes a warning once a minute while it repeats: during an outage every request would log it."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        text = f"{record.getMessage()} {[(k, v) for k, v in vars(record).items() if k not in _STANDARD_FIELDS]}"
        if record.created - self._passed_at.get(text, -math.inf) < REPEAT_SECONDS:
            return False
        if len(self._passed_at) >= MAX_REMEMBERED:
            self._passed_at.clear()
        self._passed_at[text] = record.created
        return True


def configure_logging(level: str) -> logging.Handler:
    """Sends log lines from this level on to standard error: plain on a terminal, otherwise as JSON. Returns what writes
    them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainLines() if sys.stderr.isatty() else JsonLines())
    handler.addFilter(RepeatFilter())
    ours = logging.getLogger("toolscript")
    ours.handlers = [handler]
    ours.propagate = False
    ours.setLevel(level.upper())
    for library in (*_SILENCED_LIBRARIES, _LOGGED_LIBRARY):
        theirs = logging.getLogger(library)
        theirs.handlers = [handler if library == _LOGGED_LIBRARY else logging.NullHandler()]
        theirs.propagate = False
    logging.getLogger(_LOGGED_LIBRARY).setLevel(max(logging.WARNING, ours.level))
    return handler


def _collect_fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = {k: _redact(k, v, MAX_DEPTH) for k, v in vars(record).items() if k not in _STANDARD_FIELDS}
    current = current_request().request_id
    return {"request_id": current, **fields} if current else fields


def _redact(name: str, value: Any, depth: int) -> Any:
    """Redacts the secrets in a value. Strings in a field with the name of a secret are always redacted."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if is_secret_name(name):
        return REDACTED
    if isinstance(value, Mapping) and depth:
        return {key: _redact(str(key), each, depth - 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth:
        return [_redact("", each, depth - 1) for each in value]
    return redact_secrets(value if isinstance(value, str) else str(value))
