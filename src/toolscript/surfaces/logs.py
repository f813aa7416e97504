"""Structured log lines on standard error, so that standard output stays the answer.

Everywhere else an event is logged as `log.warning("event_name", extra={...})`; here it becomes a line.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

# What these say of requests may hold secrets, and what matters of it is told by us.
_LIBRARIES = ("mcp", "client", "httpx", "httpx2", "httpcore", "httpcore2", "uvicorn")

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, and whatever the event brought along."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_brought(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class PlainLines(logging.Formatter):
    """For people at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        told = "  ".join(f"{k}: {v}" for k, v in _brought(record).items())
        line = f"{record.levelname.lower()}: {record.getMessage().replace('_', ' ')}  {told}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def write_logs(level: str) -> None:
    """Sends log lines of that level and above to standard error: plain on a terminal, as JSON elsewhere."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainLines() if sys.stderr.isatty() else JsonLines())
    ours = logging.getLogger("toolscript")
    ours.handlers = [handler]
    ours.propagate = False
    ours.setLevel(level.upper())
    for library in _LIBRARIES:
        theirs = logging.getLogger(library)
        theirs.handlers = [logging.NullHandler()]
        theirs.propagate = False


def _brought(record: logging.LogRecord) -> dict[str, Any]:
    return {k: v for k, v in vars(record).items() if k not in _USUAL}
