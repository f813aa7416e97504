"""Used approvals, and calls that wait for one, in SQL."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Session
from toolscript.domain.access import PendingCall, PendingState

_COLUMNS = [each.name for each in fields(PendingCall)]


class SqlApprovals:
    """The approvals of one database, of all gateways that share it."""

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

    async def submit(self, call: PendingCall, *, limit: int) -> PendingCall | None:
        def work(session: Session) -> PendingCall | None:
            session.lock("pending calls")
            session.run("DELETE FROM pending_calls WHERE expires_at <= :now", now=call.created_at)
            same = "WHERE caller = :caller AND profile = :profile AND binding = :binding"
            found = _select(session, same, caller=call.caller, profile=call.profile, binding=call.binding)
            if found:
                if found[0].state is not PendingState.WAITING:
                    _delete(session, found[0].id)
                return found[0]
            if not _insert(session, call):
                return None
            calls = _select(session, "WHERE caller = :caller AND id <> :id", caller=call.caller, id=call.id)
            for each in calls[: max(0, len(calls) + 1 - limit)]:
                _delete(session, each.id)
            return call

        return await self._database.write(work)

    async def list_waiting(self, *, now: float) -> list[PendingCall]:
        where, state = "WHERE state = :state AND expires_at > :now", PendingState.WAITING.value
        return await self._database.read(lambda session: _select(session, where, state=state, now=now))

    async def find_call(self, call_id: str, *, now: float) -> PendingCall | None:
        where = "WHERE id = :id AND expires_at > :now"
        found = await self._database.read(lambda session: _select(session, where, id=call_id, now=now))
        return found[0] if found else None

    async def decide(self, call_id: str, state: PendingState, *, now: float, expires_at: float) -> bool:
        def work(session: Session) -> bool:
            return bool(
                session.run(
                    "UPDATE pending_calls SET state = :state, expires_at = :expires_at "
                    "WHERE id = :id AND state = :waiting AND expires_at > :now",
                    state=state.value,
                    expires_at=expires_at,
                    id=call_id,
                    waiting=PendingState.WAITING.value,
                    now=now,
                )
            )

        return await self._database.write(work)


def _select(session: Session, where: str, **parameters: Any) -> list[PendingCall]:
    rows = session.rows(
        f"SELECT {', '.join(_COLUMNS)} FROM pending_calls {where} ORDER BY created_at, id", **parameters
    )
    return [PendingCall(**row | {"state": PendingState(row["state"])}) for row in rows]


def _insert(session: Session, call: PendingCall) -> bool:
    values = ", ".join(f":{column}" for column in _COLUMNS)
    statement = f"INSERT INTO pending_calls ({', '.join(_COLUMNS)}) VALUES ({values}) ON CONFLICT (id) DO NOTHING"
    return bool(session.run(statement, **asdict(call) | {"state": call.state.value}))


def _delete(session: Session, call_id: str) -> None:
    session.run("DELETE FROM pending_calls WHERE id = :id", id=call_id)
