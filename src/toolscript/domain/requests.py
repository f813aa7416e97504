"""Which request something was done for: told with every log line, event and answer."""

from __future__ import annotations

from contextvars import ContextVar
from uuid import uuid4

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def current_request_id() -> str:
    """The id of the request under way, or a new one where nobody has given one."""
    return request_id.get() or str(uuid4())
