"""Opens the logins of MCP servers: their store, the key that encrypts them, and OAuth."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from pathlib import Path

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.logins import SqlLogins
from toolscript.adapters.storage.private_files import make_private_folder
from toolscript.adapters.storage.sealing import InstallationKey
from toolscript.app.extras import require_extra
from toolscript.app.knowledge import IN_MEMORY, store_url
from toolscript.domain.errors import Invalid
from toolscript.domain.logins import Login
from toolscript.domain.servers import ServerSpec
from toolscript.ports.logins import AuthorizationServers, Browser
from toolscript.services.access.logins import Logins
from toolscript.settings import Settings

KEY_FILE = "login.key"


class LateOAuthServers:
    """OAuth. The first use imports its package, in a thread: that takes a second."""

    async def authorize(self, spec: ServerSpec, browser: Browser, scopes: Sequence[str]) -> Login:
        return await (await self._open()).authorize(spec, browser, scopes)

    async def refresh(self, login: Login) -> Login:
        return await (await self._open()).refresh(login)

    async def revoke(self, login: Login) -> bool:
        return await (await self._open()).revoke(login)

    async def _open(self) -> AuthorizationServers:
        return await asyncio.to_thread(lambda: self._servers)

    @cached_property
    def _servers(self) -> AuthorizationServers:
        with require_extra("server", "logging in"):
            from toolscript.adapters.mcp.oauth.servers import OAuthServers
        return OAuthServers()


def build_logins(settings: Settings, database: Database) -> Logins:
    """The logins of a database. Raises Invalid for an unusable key."""
    key = InstallationKey(settings.login_key, settings.data / KEY_FILE)
    return Logins(SqlLogins(database, key), LateOAuthServers())


@asynccontextmanager
async def open_logins(settings: Settings) -> AsyncIterator[Logins]:
    """Opens the logins of the store, without an index or a model, also while gateways use that store: they follow
    within seconds. Raises Invalid or Unavailable."""
    url = store_url(settings)
    if url == IN_MEMORY:
        raise Invalid(
            "TOOLSCRIPT_STORE sqlite:// is in the memory of one process and has no logins for others: give "
            "sqlite:///FILE or postgresql://USER@HOST/NAME",
            details={"field": "TOOLSCRIPT_STORE", "allowed": ["sqlite:///FILE", "postgresql://…"]},
        )
    if not settings.store:
        with suppress(OSError):  # opening the database says what is wrong with the folder
            make_private_folder(settings.data)
    async with _open_store(settings, url) as logins:
        yield logins


@asynccontextmanager
async def find_logins(settings: Settings) -> AsyncIterator[Logins]:
    """The logins of the store, or none where no store exists yet: the store is not created."""
    url = store_url(settings)
    file = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None
    if file and not await asyncio.to_thread(file.exists):
        url = IN_MEMORY
    async with _open_store(settings, url) as logins:
        yield logins


@asynccontextmanager
async def _open_store(settings: Settings, url: str) -> AsyncIterator[Logins]:
    database = await Database.open(url)
    logins = build_logins(settings, database)
    try:
        yield logins
    finally:
        await logins.close()
        await database.close()
