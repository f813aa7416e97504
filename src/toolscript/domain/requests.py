"""The id of the current request, which log lines, events and responses contain."""

from __future__ import annotations

from contextvars import ContextVar
from uuid import uuid4

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def current_request_id() -> str:
    """Returns the id of the current request, or a new id outside of requests."""
    return request_id.get() or str(uuid4())
