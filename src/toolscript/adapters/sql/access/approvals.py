"""Used approvals in SQL."""

from __future__ import annotations

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Session


class SqlApprovals:
    """The used approvals of one database, of all gateways that share it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def use(self, ticket: str, *, now: float, expires_at: float) -> bool:
        def work(session: Session) -> bool:
            session.run("DELETE FROM used_approvals WHERE expires_at <= :now", now=now)
            return bool(
                session.run(
                    "INSERT INTO used_approvals (ticket, expires_at) VALUES (:ticket, :expires_at) "
                    "ON CONFLICT (ticket) DO NOTHING",
                    ticket=ticket,
                    expires_at=expires_at,
                )
            )

        return await self._database.write(work)
