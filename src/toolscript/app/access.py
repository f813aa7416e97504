"""Verifies tokens with the keys that the settings name. Imports the JWT package with the first token."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from toolscript.app.extras import require_extra
from toolscript.domain.access import Principal
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.adapters.tokens.jwt import JwtVerifier


class Verifier:
    """Verifies tokens signed with the configured keys, and those of this machine's own commands."""

    def __init__(self, settings: Settings, local_key: str) -> None:
        """Raises Invalid for unusable keys."""
        self._settings = settings
        self._local_key = local_key
        if settings.jwt_secret or settings.jwt_jwks:
            _ = self._tokens

    async def verify(self, token: str) -> Principal:
        return await self._tokens.verify(token)

    async def close(self) -> None:
        if "_tokens" in self.__dict__:
            await self._tokens.close()

    @cached_property
    def _tokens(self) -> JwtVerifier:
        with require_extra("server", "verifying tokens"):
            from toolscript.adapters.tokens.jwt import JwtVerifier
        settings = self._settings
        return JwtVerifier(
            settings.jwt_secret,
            settings.jwt_jwks,
            issuer=settings.jwt_issuer,
            audience=settings.jwt_audience,
            tenant_claim=settings.jwt_tenant_claim,
            plan_claim=settings.jwt_plan_claim,
            local_key=self._local_key,
        )


def local_token(key: str, tenant: str) -> str:
    """A short-lived token, signed with the key that a gateway leaves in the data folder for its owner."""
    from toolscript.adapters.tokens.jwt import sign_local_token

    return sign_local_token(key, tenant)


def is_local_token(key: str, token: str) -> bool:
    """Whether a token is one of `local_token`: of a command of the data folder's owner."""
    from toolscript.adapters.tokens.jwt import is_local_token as is_signed

    return is_signed(key, token)
