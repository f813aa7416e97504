"""The id and the caller of the current request, which log lines and events contain."""

from __future__ import annotations

from contextvars import ContextVar
from uuid import uuid4

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
caller_name: ContextVar[str | None] = ContextVar("caller_name", default=None)
"""The name of the key that the request was sent with, never the key itself."""


def current_request_id() -> str:
    """Returns the id of the current request, or a new id outside of requests."""
    return request_id.get() or str(uuid4())
