"""Logins in SQL, encrypted."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Session
from toolscript.adapters.storage.sealing import InstallationKey
from toolscript.domain.logins import Login, LoginName, StoredLogin

_WHERE = "WHERE server = :server AND address = :address AND user_name = :user"


class SqlLogins:
    """The logins of one database. A login is encrypted together with its name: a row that is copied to another name, or
    the row of a server with a new address, cannot be decrypted."""

    def __init__(self, database: Database, key: InstallationKey) -> None:
        self._database = database
        self._key = key

    async def read(self, name: LoginName) -> StoredLogin | None:
        def work(session: Session) -> StoredLogin | None:
            rows = session.rows(f"SELECT version, wanted_scope, sealed FROM logins {_WHERE}", **asdict(name))
            if not rows:
                return None
            content = self._key.open(bytes(rows[0]["sealed"]), _describe(name))
            return StoredLogin(Login(**json.loads(content)), rows[0]["version"], rows[0]["wanted_scope"])

        return await self._database.read(work)

    async def list_ids(self) -> Mapping[LoginName, str]:
        rows = await self._database.read(
            lambda session: session.rows("SELECT server, address, user_name, login_id FROM logins")
        )
        return {LoginName(row["server"], row["address"], row["user_name"]): row["login_id"] for row in rows}

    async def save(self, name: LoginName, login: Login, *, replacing: int | None = None) -> bool:
        def work(session: Session) -> bool:
            sealed = self._key.seal(json.dumps(asdict(login)).encode(), _describe(name))
            values: dict[str, Any] = {**asdict(name), "id": login.id, "sealed": sealed}
            changes = "login_id = :id, version = version + 1, claimed_until = 0, sealed = :sealed"
            if replacing is not None:
                return bool(
                    session.run(
                        f"UPDATE logins SET {changes} {_WHERE} AND version = :version", version=replacing, **values
                    )
                )
            session.lock("logins")
            if not session.run(f"UPDATE logins SET {changes}, wanted_scope = '' {_WHERE}", **values):
                session.run(
                    "INSERT INTO logins (server, address, user_name, login_id, version, claimed_until, wanted_scope, "
                    "sealed) VALUES (:server, :address, :user, :id, :first, 0, '', :sealed)",
                    first=secrets.randbits(48),  # never the version of a login that was deleted
                    **values,
                )
            return True

        return await self._database.write(work)

    async def claim(self, name: LoginName, version: int, *, now: float, until: float) -> bool:
        sql = f"UPDATE logins SET claimed_until = :until {_WHERE} AND version = :version AND claimed_until <= :now"
        return await self._write(sql, name, version=version, now=now, until=until)

    async def release(self, name: LoginName, version: int) -> None:
        await self._write(f"UPDATE logins SET claimed_until = 0 {_WHERE} AND version = :version", name, version=version)

    async def want_scope(self, name: LoginName, scope: str) -> None:
        await self._write(f"UPDATE logins SET wanted_scope = :scope {_WHERE}", name, scope=scope)

    async def forget(self, name: LoginName, *, version: int | None = None) -> bool:
        if version is None:
            return await self._write(f"DELETE FROM logins {_WHERE}", name)
        return await self._write(f"DELETE FROM logins {_WHERE} AND version = :version", name, version=version)

    async def _write(self, sql: str, name: LoginName, **values: Any) -> bool:
        return bool(await self._database.write(lambda session: session.run(sql, **asdict(name), **values)))


def _describe(name: LoginName) -> bytes:
    return json.dumps([name.server, name.address, name.user]).encode()
