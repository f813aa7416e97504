"""Structured log lines on standard error, so that standard output stays the answer.

Everywhere else an event is logged as `log.warning("event_name", extra={...})`; here it becomes a line, with the id of
the request that it belongs to, and without secrets: what looks like one is replaced, wherever in a line it stands.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from toolscript.domain.requests import request_id

# What these say of requests may hold secrets, and what matters of it is told by us.
_LIBRARIES = ("mcp", "client", "httpx", "httpx2", "httpcore", "httpcore2", "uvicorn")
# What these have to say is about where spans go, and nobody else says it.
_HEARD = ("opentelemetry",)

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

REDACTED = "[redacted]"
DEEPEST = 8
_NAMES = r"(?:[\w-]*(?:authorization|api[-_]?key|[-_]key|password|passwd|secret|credentials?|token)|(?:set-)?cookie)"
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|(?:bearer +|basic +)?[^\s\"',;&`]+)"
_NAMED = re.compile(_NAMES, re.IGNORECASE)
_SECRETS = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        # https://user:password@host
        (r"(?<=://)[^\s/?#\"']*@", f"{REDACTED}@"),
        # ?token=...&
        (rf"([?&;](?:{_NAMES}|key|code|[\w-]*sig(?:nature)?)=)[^\s&#\"']+", rf"\1{REDACTED}"),
        # password=...
        (rf"(?<![\w-])({_NAMES}\s*=\s*)(?!\[redacted\]){_VALUE}", rf"\1{REDACTED}"),
        # "api_key": "..."
        (rf"([\"']{_NAMES}[\"']\s*:\s*){_VALUE}", rf"\1{REDACTED}"),
        # Authorization: Bearer ...
        (rf"(?<![\w-])((?:[\w-]*authorization|[\w-]*api-key|(?:set-)?cookie):\s*){_VALUE}", rf"\1{REDACTED}"),
        (r"\b(bearer)\s+(?!(?:key|tokens?|auth\w*)\b)[\w.~+/=-]+", rf"\1 {REDACTED}"),
        # signed tokens and API keys, which say themselves what they are
        (r"\beyJ[\w-]{6,}\.[\w-]+\.[\w-]*", REDACTED),
        (r"\b(?:sk|pk|rk)-[\w-]{16,}", REDACTED),
        (r"\b(?:gh[pousr]|github_pat|glpat|hf|xox[abpr])[-_]\w{16,}", REDACTED),
    )
)
# Most lines hold nothing of the kind: one look tells.
_SUSPECT = re.compile(
    r"://|[?&;]\w|auth|key|pass|secret|credential|token|cookie|bearer|eyJ|[spr]k-|gh|gl|hf|xox", re.IGNORECASE
)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, the request's id, and whatever the event brought along."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": redact_secrets(record.getMessage()),
            **_brought(record),
        }
        if record.exc_info:
            line["exception"] = redact_secrets(self.formatException(record.exc_info))
        return json.dumps(line, default=str, ensure_ascii=False)


class PlainLines(logging.Formatter):
    """For people at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        told = "  ".join(f"{k}: {v}" for k, v in _brought(record).items())
        event = redact_secrets(record.getMessage()).replace("_", " ")
        line = f"{record.levelname.lower()}: {event}  {told}".rstrip()
        return f"{line}\n{redact_secrets(self.formatException(record.exc_info))}" if record.exc_info else line


def configure_logging(level: str) -> None:
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
    for library in _HEARD:
        theirs = logging.getLogger(library)
        theirs.handlers = [handler]
        theirs.propagate = False
        theirs.setLevel(max(logging.WARNING, ours.level))


def redact_secrets(text: str) -> str:
    """The text with everything replaced that looks like a secret: tokens, keys, passwords."""
    if not _SUSPECT.search(text):
        return text
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def _brought(record: logging.LogRecord) -> dict[str, Any]:
    brought = {k: _clean(k, v, DEEPEST) for k, v in vars(record).items() if k not in _USUAL}
    known = request_id.get()
    return {"request_id": known, **brought} if known else brought


def _clean(name: str, value: Any, deep: int) -> Any:
    """A value as it may be told. What is in a place that is named for secrets is one, whatever it looks like."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if _NAMED.fullmatch(name):
        return REDACTED
    if isinstance(value, Mapping) and deep:
        return {key: _clean(str(key), each, deep - 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and deep:
        return [_clean("", each, deep - 1) for each in value]
    return redact_secrets(value if isinstance(value, str) else str(value))
