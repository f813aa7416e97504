"""Named keys in SQL."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Session
from toolscript.domain.access import AccessKey, Scope
from toolscript.domain.errors import Conflict, NotFound

_COLUMNS = "name, digest, scopes, tenant, plan, created_at, expires_at, revoked_at, calls_per_minute, concurrent_calls"


class SqlKeys:
    """The keys of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_key(self, key: AccessKey) -> None:
        def work(session: Session) -> None:
            session.lock("keys")
            if _select(session, key.name):
                raise Conflict(f"a key with the name {key.name} already exists", details={"name": key.name})
            values = ", ".join(f":{column}" for column in _COLUMNS.split(", "))
            row = asdict(key) | {"scopes": sorted(scope.value for scope in key.scopes)}
            session.run(f"INSERT INTO access_keys ({_COLUMNS}) VALUES ({values})", **row)

        await self._database.write(work)

    async def list_keys(self) -> list[AccessKey]:
        rows = await self._database.read(lambda session: session.rows(f"SELECT {_COLUMNS} FROM access_keys"))
        return sorted(map(_load, rows), key=lambda key: key.name)

    async def revoke_key(self, name: str, at: float) -> AccessKey:
        def work(session: Session) -> AccessKey:
            session.run(
                "UPDATE access_keys SET revoked_at = :at WHERE name = :name AND revoked_at IS NULL", at=at, name=name
            )
            rows = _select(session, name)
            if not rows:
                raise NotFound(f"no such key: {name!r}. `toolscript keys list` lists all", details={"name": name})
            return _load(rows[0])

        return await self._database.write(work)


def _select(session: Session, name: str) -> list[dict[str, Any]]:
    return session.rows(f"SELECT {_COLUMNS} FROM access_keys WHERE name = :name", name=name)


def _load(row: dict[str, Any]) -> AccessKey:
    return AccessKey(**row | {"scopes": frozenset(map(Scope, row["scopes"]))})
