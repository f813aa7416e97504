"""Where events go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class EventSink(Protocol):
    """Takes what happened, for analysis. It may be down: nobody waits for it, and nothing fails because of it."""

    def record(self, event: Mapping[str, Any]) -> None:
        """Takes one event: `type`, `time`, `request_id`, and whatever belongs to that type. Never raises or waits."""

    async def close(self) -> None:
        """Gives what is left a moment to be written."""
