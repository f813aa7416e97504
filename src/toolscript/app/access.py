"""Who may call: verifies tokens with the keys that the settings name, opens the store of named keys, and says where
authentication may be bypassed.

The JWT package is imported with the first token. The bypass never works in production."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from toolscript.adapters.outgoing.remote_services import is_http_url
from toolscript.adapters.sql.access.keys import SqlKeys
from toolscript.adapters.sql.database import Database
from toolscript.adapters.storage.private_files import make_private_folder
from toolscript.app.extras import require_extra
from toolscript.app.knowledge import IN_MEMORY, store_url
from toolscript.app.stores import Stores
from toolscript.domain.access import TENANT_RULE, Grant, Principal, is_tenant_name
from toolscript.domain.errors import Forbidden, Invalid, Unauthorized
from toolscript.ports.access import RateBuckets, TokenVerifier
from toolscript.ports.observability import EventSink
from toolscript.services.access.keys import Keys
from toolscript.services.access.plans import Plans, load_plans
from toolscript.services.access.profiles import Profiles
from toolscript.services.access.rates import Buckets, Rates
from toolscript.services.support.refusals import Refusals
from toolscript.services.support.shares import MAX_SEARCHES, Shares
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.adapters.tokens.jwt import JwtVerifier

PRODUCTION = "production"
# How long the link of `toolscript open` works, and the page that it has signed in.
SIGN_IN_SECONDS = 300
SESSION_SECONDS = 12 * 3600


class AccessServices:
    """Who may call and how much: keys, plans, profiles and limits."""

    def __init__(self, settings: Settings, stores: Stores, buckets: RateBuckets, events: EventSink) -> None:
        """Raises Invalid for unusable keys or plans."""
        self.local_key = secrets.token_urlsafe(32)  # signs the tokens of this machine's own commands
        self.verifier: TokenVerifier = Verifier(settings, self.local_key)
        self.sign_ins = SignIns(self.local_key, settings.tenant)
        self.keys = Keys(stores.keys)
        self.plans = Plans(load_plans(settings.plans), buckets)
        self.profiles = Profiles()
        self.search_shares = Shares("searches", MAX_SEARCHES)
        self.knowledge_rates = Rates(settings.knowledge_rate, buckets)
        self.refusals = Refusals(events, Buckets())


class Verifier:
    """Verifies tokens signed with the configured keys, and tokens of this machine's own commands."""

    def __init__(self, settings: Settings, local_key: str) -> None:
        """Raises Invalid for unusable keys."""
        self._settings = settings
        self._local_key = local_key
        if settings.jwt_secret or settings.jwt_jwks:
            _ = self._tokens

    async def verify(self, token: str) -> Principal:
        return await self._tokens.verify(token)

    async def authorize(self, token: str) -> Grant:
        return await self._tokens.authorize(token)

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
            audience=settings.jwt_audience or settings.oauth_resource,
            tenant_claim=settings.jwt_tenant_claim,
            plan_claim=settings.jwt_plan_claim,
            local_key=self._local_key,
            has_scopes=settings.oauth_resource is not None,
        )


@asynccontextmanager
async def open_keys(settings: Settings, *, read_only: bool = False) -> AsyncIterator[Keys]:
    """Opens the named keys of the store, without an index or a model, also while gateways use that store: they follow
    within seconds. Raises Invalid or Unavailable."""
    url = store_url(settings)
    if url == IN_MEMORY:
        raise Invalid(
            "TOOLSCRIPT_STORE sqlite:// is in the memory of one process and has no keys for others: give "
            "sqlite:///FILE or postgresql://USER@HOST/NAME",
            details={"field": "TOOLSCRIPT_STORE", "allowed": ["sqlite:///FILE", "postgresql://…"]},
        )
    if not settings.store and not read_only:
        with suppress(OSError):  # opening the database says what is wrong with the folder
            make_private_folder(settings.data)
    database = await Database.open(url, read_only=read_only)
    try:
        yield Keys(SqlKeys(database))
    finally:
        await database.close()


def local_token(key: str, tenant: str) -> str:
    """A short-lived token, signed with the key that a gateway leaves in the data folder for its owner."""
    from toolscript.adapters.tokens.jwt import sign_local_token

    return sign_local_token(key, tenant)


class SignIns:
    """Signs pages in that `toolscript open` has opened: each code counts once."""

    def __init__(self, key: str, tenant: str) -> None:
        """The key is the one that a gateway leaves in the data folder for its owner."""
        self._key = key
        self._tenant = tenant
        self._used: dict[str, float] = {}

    def redeem(self, code: str) -> str:
        """Returns the owner's token for a page. Raises Forbidden for a code that is not valid or was used."""
        from toolscript.adapters.tokens.jwt import read_sign_in_code, sign_local_token

        try:
            name, until = read_sign_in_code(self._key, code)
        except Unauthorized:
            name, until = "", 0.0
        now = time.time()
        self._used = {each: end for each, end in self._used.items() if end + SIGN_IN_SECONDS > now}
        if not name or name in self._used:
            raise Forbidden(
                f"this link was used already, or is older than {SIGN_IN_SECONDS // 60} minutes: run `toolscript open` "
                "again"
            )
        self._used[name] = until
        return sign_local_token(self._key, self._tenant, seconds=SESSION_SECONDS)


def create_sign_in_code(key: str) -> str:
    """A code for `SignIns`, signed with the key that a gateway leaves in the data folder for its owner."""
    from toolscript.adapters.tokens.jwt import sign_sign_in_code

    return sign_sign_in_code(key, SIGN_IN_SECONDS)


def is_local_token(key: str, token: str) -> bool:
    """Whether a token is one of `local_token`: of a command of the data folder's owner."""
    from toolscript.adapters.tokens.jwt import is_local_token as is_signed

    return is_signed(key, token)


def check_environment(settings: Settings) -> None:
    """Raises Invalid for settings that contradict each other; call it before anything is opened."""
    if settings.debug_bypass_auth and settings.environment == PRODUCTION:
        raise Invalid(
            "TOOLSCRIPT_DEBUG_BYPASS_AUTH is on and TOOLSCRIPT_ENVIRONMENT is production, where every request needs a "
            "token: switch the bypass off, or set TOOLSCRIPT_ENVIRONMENT to development",
            details={"field": "TOOLSCRIPT_DEBUG_BYPASS_AUTH", "allowed": "false in production"},
        )
    if not is_tenant_name(settings.tenant):
        raise Invalid(
            f"TOOLSCRIPT_TENANT is not a valid tenant name: give {TENANT_RULE}",
            details={"field": "TOOLSCRIPT_TENANT", "allowed": TENANT_RULE},
        )
    if settings.oauth_resource is not None:
        _check_oauth(settings, settings.oauth_resource)


def _check_oauth(settings: Settings, resource: str) -> None:
    field = "TOOLSCRIPT_OAUTH_RESOURCE"
    if not is_http_url(resource) or "#" in resource or "?" in resource:
        raise Invalid(
            f"{field} is not the URL of an MCP endpoint: give its public address, such as https://tools.example.com/mcp",
            details={"field": field, "allowed": ["http", "https"]},
        )
    needed = {"TOOLSCRIPT_JWT_ISSUER": settings.jwt_issuer, "TOOLSCRIPT_JWT_JWKS": settings.jwt_jwks}
    if missing := [name for name, value in needed.items() if not value]:
        raise Invalid(
            f"{field} needs {' and '.join(missing)}: the authorization server that issues the access tokens, and its "
            "public keys",
            details={"field": missing[0]},
        )


def may_bypass(settings: Settings) -> bool:
    """Whether requests may bypass authentication."""
    return settings.debug_bypass_auth and settings.environment != PRODUCTION
