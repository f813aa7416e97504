"""Approved definitions, and definitions in quarantine, in SQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from toolscript.adapters.sql.database import Database, upsert
from toolscript.adapters.sql.session import Row, Session
from toolscript.domain.catalog import Item
from toolscript.domain.quarantine import (
    Pin,
    QuarantineCause,
    QuarantineState,
    describe_definition,
    parse_definition,
)


class SqlPins:
    """The pins of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_approved_digests(self, servers: Collection[str]) -> dict[str, str]:
        def work(session: Session) -> dict[str, str]:
            rows = session.rows(
                f"SELECT item_id, approved_digest, offered_digest FROM pins WHERE {session.among('server', 'servers')}",
                servers=sorted(servers),
            )
            return {row["item_id"]: "" if row["offered_digest"] else row["approved_digest"] for row in rows}

        return await self._database.read(work)

    async def get_pins(self, item_ids: Collection[str] | None = None, *, only_quarantined: bool = False) -> list[Pin]:
        def work(session: Session) -> list[Pin]:
            where = "TRUE" if item_ids is None else session.among("item_id", "ids")
            where += " AND offered_digest <> ''" if only_quarantined else ""
            ids = {} if item_ids is None else {"ids": sorted(item_ids)}
            rows = session.rows(f"SELECT * FROM pins WHERE {where}", **ids)
            return sorted(map(_load, rows), key=lambda pin: pin.item_id)

        return await self._database.read(work)

    async def get_unreviewed_pins(self, *, after: str, limit: int) -> list[Pin]:
        def work(session: Session) -> list[Pin]:
            rows = session.rows(
                "SELECT * FROM pins WHERE awaits_review AND offered_digest = '' AND item_id > :after "
                "ORDER BY item_id LIMIT :limit",
                after=after,
                limit=limit,
            )
            return [_load(row) for row in rows]

        return await self._database.read(work)

    async def save_pins(self, pins: Sequence[Pin]) -> None:
        def work(session: Session) -> None:
            upsert(session, "pins", [_row(pin) for pin in pins], keys=["item_id"])

        await self._database.write(work)


def _row(pin: Pin) -> dict[str, Any]:
    approved, offered = pin.approved, pin.offered
    return {
        "item_id": pin.item_id,
        "server": pin.server,
        "approved": _describe(approved),
        "approved_digest": approved.digest if approved else "",
        "offered": _describe(offered),
        "offered_digest": offered.digest if offered else "",
        "cause": pin.cause.value if pin.cause else "",
        "reason": pin.reason,
        "passage": pin.passage,
        "state": pin.state.value,
        "since": pin.since,
        "awaits_review": pin.awaits_review,
    }


def _describe(item: Item | None) -> dict[str, Any] | None:
    return describe_definition(item) if item else None


def _load(row: Row) -> Pin:
    return Pin(
        row["item_id"],
        row["server"],
        parse_definition(row["approved"]) if row["approved"] else None,
        parse_definition(row["offered"]) if row["offered"] else None,
        QuarantineCause(row["cause"]) if row["cause"] else None,
        row["reason"],
        row["passage"],
        QuarantineState(row["state"]),
        row["since"],
        bool(row["awaits_review"]),
    )
