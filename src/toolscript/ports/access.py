"""Verification of bearer tokens."""

from __future__ import annotations

from typing import Protocol

from toolscript.domain.access import Principal


class TokenVerifier(Protocol):
    """Turns bearer tokens into principals.

    >>> import asyncio
    >>> from toolscript.adapters.tokens.jwt import JwtVerifier, sign_local_token
    >>> key = "a local key of at least thirty-two bytes"
    >>> verifier = JwtVerifier(None, None, local_key=key)
    >>> asyncio.run(verifier.verify(sign_local_token(key, "acme"))).tenant
    'acme'
    """

    async def verify(self, token: str) -> Principal:
        """The principal of a token. Raises Unauthorized, and Unavailable when the keys cannot be read."""

    async def close(self) -> None: ...
