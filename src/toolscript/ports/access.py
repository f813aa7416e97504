"""Who is calling."""

from __future__ import annotations

from typing import Protocol

from toolscript.domain.access import Principal


class TokenVerifier(Protocol):
    """Knows whom to believe."""

    async def verify(self, token: str) -> Principal:
        """Who a bearer token speaks for. Raises Unauthorized, and Unavailable when the keys cannot be had."""

    async def close(self) -> None: ...
