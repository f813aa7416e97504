"""Items in SQL, with their term counts and the assignments that skills make."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

from toolscript.adapters.sql.catalogue_version import SCOPE, write_catalogue
from toolscript.adapters.sql.database import Database, upsert
from toolscript.adapters.sql.session import Row, Session, load
from toolscript.adapters.sql.skills import read_assignments, withdraw_suggestions
from toolscript.adapters.sql.terms import change_counts, count_terms, pack_terms, unpack_terms, write_scope
from toolscript.domain.catalog import Item, ItemFingerprint, ItemType, Schemas, StoredItem
from toolscript.domain.search import TermCounts


class SqlItems:
    """The items of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save_items(self, items: Sequence[tuple[Item, frozenset[int]]]) -> None:
        def work(session: Session) -> None:
            old = _active_rows(session, [item.id for item, _ in items])
            upsert(session, "tools", [_item_row(item, terms) for item, terms in items], keys=["item_id"])
            change_counts(session, SCOPE, removed=_terms(old), added=(terms for _, terms in items))

        await write_catalogue(self._database, work)

    async def deactivate(self, item_ids: Sequence[str]) -> None:
        def work(session: Session) -> None:
            old = _active_rows(session, item_ids)
            numbers = [row["id"] for row in old]
            session.run(
                # An item that returns without a skill must be classified again: its suggestion is withdrawn below.
                "UPDATE tools SET is_active = FALSE, updated_at = CURRENT_TIMESTAMP, classified = CASE "
                "WHEN id IN (SELECT tool_id FROM tool_skill_assignments) THEN classified ELSE '' END "
                f"WHERE {session.among('id', 'numbers')}",
                numbers=numbers,
            )
            withdraw_suggestions(session, numbers)
            change_counts(session, SCOPE, removed=_terms(old))

        await write_catalogue(self._database, work)

    async def get_items(self, item_ids: Sequence[str] | None = None, *, active_only: bool = True) -> list[StoredItem]:
        def work(session: Session) -> list[StoredItem]:
            condition = "TRUE" if item_ids is None else session.among("item_id", "ids")
            activity = "is_active" if active_only else "TRUE"
            ids = {} if item_ids is None else {"ids": list(item_ids)}
            rows = session.rows(f"SELECT * FROM tools WHERE {condition} AND {activity}", **ids)
            return sorted(_load_items(session, rows, all_items=item_ids is None), key=lambda s: s.item.id)

        return await self._database.read(work)

    async def get_items_of_skill(self, skill_id: str) -> list[StoredItem]:
        def work(session: Session) -> list[StoredItem]:
            rows = session.rows(
                "SELECT t.*, a.confidence FROM tools t JOIN tool_skill_assignments a ON a.tool_id = t.id "
                "WHERE a.skill_id = :skill AND t.is_active",
                skill=skill_id,
            )
            return _load_items(session, sorted(rows, key=lambda row: (-row["confidence"], row["item_id"])))

        return await self._database.read(work)

    async def get_schemas(self, item_ids: Sequence[str]) -> dict[str, Schemas]:
        def work(session: Session) -> dict[str, Schemas]:
            columns, condition = "item_id, input_schema, output_schema, annotations", session.among("item_id", "ids")
            rows = session.rows(f"SELECT {columns} FROM tools WHERE {condition} AND is_active", ids=list(item_ids))
            return {row["item_id"]: (row["input_schema"], row["output_schema"], row["annotations"]) for row in rows}

        return await self._database.read(work)

    async def get_fingerprints(
        self, servers: Collection[str] | None = None, *, item_ids: Collection[str] | None = None
    ) -> list[ItemFingerprint]:
        def work(session: Session) -> list[ItemFingerprint]:
            given = {"server": servers, "item_id": item_ids}
            parameters = {column: sorted(values) for column, values in given.items() if values is not None}
            condition = " AND ".join(session.among(column, column) for column in parameters) or "TRUE"
            columns = "item_id AS id, server, id AS number, digest, is_active, classified, type"
            rows = session.rows(f"SELECT {columns} FROM tools WHERE {condition}", **parameters)
            assigned = read_assignments(session, [row["number"] for row in rows] if parameters else None)
            found = (
                {**row, "type": ItemType(row["type"]), "assignments": assigned.get(row["number"], ())} for row in rows
            )
            return sorted((load(ItemFingerprint, row) for row in found), key=lambda f: f.id)

        return await self._database.read(work)

    async def set_servers(
        self, configuration: str, servers: Collection[str], *, only: bool, now: float, max_age: float
    ) -> frozenset[str]:
        def work(session: Session) -> frozenset[str]:
            session.run("UPDATE configured_servers SET seen_at = :now WHERE seen_at = 0", now=now)
            session.run(
                "DELETE FROM configured_servers WHERE configuration = :configuration OR seen_at < :oldest",
                configuration=configuration,
                oldest=float("inf") if only else now - max_age,
            )
            columns = "(server, configuration, seen_at) VALUES (:server, :configuration, :now)"
            session.run_many(
                f"INSERT INTO configured_servers {columns}",
                [{"server": name, "configuration": configuration, "now": now} for name in sorted(set(servers))],
            )
            return _read_servers(session)

        return await write_scope(self._database, SCOPE, work)

    async def list_configurations(self) -> dict[str, frozenset[str]]:
        statement = "SELECT configuration, server FROM configured_servers ORDER BY configuration"
        servers: dict[str, set[str]] = {}
        for row in await self._database.read(lambda session: session.rows(statement)):
            servers.setdefault(row["configuration"], set()).add(row["server"])
        return {configuration: frozenset(names) for configuration, names in servers.items()}

    async def forget_configuration(self, configuration: str) -> frozenset[str]:
        def work(session: Session) -> frozenset[str]:
            statement = "DELETE FROM configured_servers WHERE configuration = :configuration"
            session.run(statement, configuration=configuration)
            return _read_servers(session)

        return await write_scope(self._database, SCOPE, work)

    async def count_terms(self, terms: Sequence[int]) -> TermCounts:
        return await self._database.read(lambda session: count_terms(session, SCOPE, terms))

    async def count_definition_characters(self) -> int:
        texts = ["name", "description", "CAST(input_schema AS TEXT)", "CAST(output_schema AS TEXT)"]
        size = " + ".join(f"COALESCE(LENGTH({text}), 0)" for text in texts)
        statement = f"SELECT COALESCE(SUM({size}), 0) AS size FROM tools WHERE is_active"
        return await self._database.read(lambda session: int(session.rows(statement)[0]["size"]))

    async def ping(self) -> None:
        await self._database.ping()

    async def close(self) -> None:
        await self._database.close()


def _read_servers(session: Session) -> frozenset[str]:
    return frozenset(row["server"] for row in session.rows("SELECT server FROM configured_servers"))


def _active_rows(session: Session, item_ids: Sequence[str]) -> list[dict[str, Any]]:
    return session.rows(
        f"SELECT id, item_id, terms FROM tools WHERE is_active AND {session.among('item_id', 'ids')}",
        ids=list(item_ids),
    )


def _terms(rows: Sequence[Row]) -> list[frozenset[int]]:
    return [unpack_terms(row["terms"]) for row in rows]


def _item_row(item: Item, terms: frozenset[int]) -> dict[str, Any]:
    row = {each.name: getattr(item, each.name) for each in fields(Item)}
    stored = {"item_id": item.id, "digest": item.digest, "terms": pack_terms(terms), "is_active": True}
    return {**row, "type": item.type.value, **stored}


def _load_items(session: Session, rows: Sequence[Row], *, all_items: bool = False) -> list[StoredItem]:
    """The items of the rows, in order, each with its assignments."""
    assigned = read_assignments(session, None if all_items else [row["id"] for row in rows])
    return [
        StoredItem(
            row["id"],
            load(Item, {**row, "type": ItemType(row["type"])}),
            unpack_terms(row["terms"]),
            row["is_active"],
            tuple(assigned.get(row["id"], ())),
        )
        for row in rows
    ]
