"""The catalogue in SQL: items, skills, assignments and suggestions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from toolscript.adapters.sql import skills as sql_skills
from toolscript.adapters.sql.database import Database, upsert
from toolscript.adapters.sql.session import Row, Session
from toolscript.adapters.sql.terms import change_counts, count_terms, packed, take_turns, unpacked
from toolscript.domain.catalog import (
    Assignment,
    ClassificationRecord,
    Item,
    ItemFingerprint,
    ItemType,
    Schemas,
    Skill,
    SkillMember,
    StoredItem,
    Suggestion,
    SuggestionStatus,
)
from toolscript.domain.search import TermCounts

T = TypeVar("T")

SCOPE = "catalogue"


class SqlCatalog:
    """The catalogue of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save_items(self, items: Sequence[tuple[Item, frozenset[int]]]) -> None:
        def work(session: Session) -> None:
            old = _active_items(session, [item.id for item, _ in items])
            upsert(session, "tools", [_item_row(item, terms) for item, terms in items], keys=["item_id"])
            change_counts(session, SCOPE, removed=_terms(old), added=(terms for _, terms in items))

        await self._write(work)

    async def deactivate(self, item_ids: Sequence[str]) -> None:
        def work(session: Session) -> None:
            old = _active_items(session, item_ids)
            numbers = [row["id"] for row in old]
            session.run(
                # What is withdrawn here is to be suggested again, should the item return.
                "UPDATE tools SET is_active = FALSE, updated_at = CURRENT_TIMESTAMP, classified = CASE "
                "WHEN id IN (SELECT tool_id FROM tool_skill_assignments) THEN classified ELSE '' END "
                f"WHERE {session.among('id', 'numbers')}",
                numbers=numbers,
            )
            sql_skills.withdraw(session, numbers)
            change_counts(session, SCOPE, removed=_terms(old))

        await self._write(work)

    async def items(self, item_ids: Sequence[str] | None = None, *, active_only: bool = True) -> list[StoredItem]:
        def work(session: Session) -> list[StoredItem]:
            named = "TRUE" if item_ids is None else session.among("item_id", "ids")
            activity = "is_active" if active_only else "TRUE"
            ids = {} if item_ids is None else {"ids": list(item_ids)}
            rows = session.rows(f"SELECT * FROM tools WHERE {named} AND {activity}", **ids)
            return sorted(_stored(session, rows, everything=item_ids is None), key=lambda s: s.item.id)

        return await self._database.read(work)

    async def schemas(self, item_ids: Sequence[str]) -> dict[str, Schemas]:
        def work(session: Session) -> dict[str, Schemas]:
            return _schemas(session, session.among("item_id", "ids"), ids=list(item_ids))

        return await self._database.read(work)

    async def schemas_after(self, item_id: str, limit: int) -> dict[str, Schemas]:
        def work(session: Session) -> dict[str, Schemas]:
            return _schemas(session, "item_id > :last", "ORDER BY item_id LIMIT :most", last=item_id, most=limit)

        return await self._database.read(work)

    async def marks(
        self, servers: Collection[str] | None = None, *, item_ids: Collection[str] | None = None
    ) -> list[ItemFingerprint]:
        def work(session: Session) -> list[ItemFingerprint]:
            given = {"server": servers, "item_id": item_ids}
            asked = {column: sorted(among) for column, among in given.items() if among is not None}
            named = " AND ".join(session.among(column, column) for column in asked) or "TRUE"
            columns = "id, item_id, server, digest, is_active, classified"
            rows = session.rows(f"SELECT {columns} FROM tools WHERE {named}", **asked)
            assigned = sql_skills.read_assignments(session, [row["id"] for row in rows] if asked else None)
            return sorted((_mark(row, assigned.get(row["id"], ())) for row in rows), key=lambda m: m.id)

        return await self._database.read(work)

    async def term_counts(self, terms: Sequence[int]) -> TermCounts:
        return await self._database.read(lambda session: count_terms(session, SCOPE, terms))

    async def size_of_definitions(self) -> int:
        texts = ["name", "description", "CAST(input_schema AS TEXT)", "CAST(output_schema AS TEXT)"]
        size = " + ".join(f"COALESCE(LENGTH({text}), 0)" for text in texts)
        statement = f"SELECT COALESCE(SUM({size}), 0) AS size FROM tools WHERE is_active"
        return await self._database.read(lambda session: int(session.rows(statement)[0]["size"]))

    async def add_skill(self, skill: Skill) -> None:
        await self._write(lambda session: sql_skills.add_skill(session, skill))

    async def save_skills(self, skills: Sequence[Skill]) -> None:
        await self._write(lambda session: sql_skills.save_skills(session, skills))

    async def seed_skills(self, digest: str, skills: Sequence[Skill]) -> bool:
        return await self._write(lambda session: sql_skills.seed_skills(session, digest, skills))

    async def delete_skill(self, skill_id: str) -> None:
        await self._write(lambda session: sql_skills.remove_skill(session, skill_id))

    async def skills(self, *, active_only: bool = True) -> list[Skill]:
        return await self._database.read(lambda session: sql_skills.read_skills(session, active_only=active_only))

    async def items_in(self, skill_id: str) -> list[StoredItem]:
        def work(session: Session) -> list[StoredItem]:
            rows = session.rows(
                "SELECT t.*, a.confidence FROM tools t JOIN tool_skill_assignments a ON a.tool_id = t.id "
                "WHERE a.skill_id = :skill AND t.is_active",
                skill=skill_id,
            )
            return _stored(session, sorted(rows, key=lambda row: (-row["confidence"], row["item_id"])))

        return await self._database.read(work)

    async def tool_counts(self) -> dict[str, int]:
        return await self._database.read(sql_skills.count_tools)

    async def members(self, skill_ids: Collection[str] | None = None) -> dict[str, list[SkillMember]]:
        return await self._database.read(lambda session: sql_skills.read_members(session, skill_ids))

    async def classify(self, decisions: Sequence[ClassificationRecord], *, over_people: bool = False) -> None:
        await self._write(lambda session: sql_skills.classify(session, decisions, over_people=over_people))

    async def stamp(self, stamps: Mapping[str, tuple[str, str]]) -> None:
        await self._write(lambda session: sql_skills.stamp(session, stamps))

    async def assign(self, item_id: str, assignments: Sequence[Assignment]) -> None:
        await self._write(lambda session: sql_skills.assign(session, item_id, assignments))

    async def suggest(self, suggestion: Suggestion) -> Suggestion:
        return await self._write(lambda session: sql_skills.suggest(session, suggestion))

    async def suggestions(self, status: SuggestionStatus | None = None) -> list[Suggestion]:
        if status is None:
            return await self._database.read(lambda session: sql_skills.read_suggestions(session, "TRUE"))
        return await self._database.read(
            lambda session: sql_skills.read_suggestions(session, "s.status = :status", status=status.value)
        )

    async def review(
        self,
        number: int,
        status: SuggestionStatus,
        reviewed_by: str | None = None,
        *,
        into: Skill | str | None = None,
    ) -> Suggestion:
        return await self._write(lambda session: sql_skills.review(session, number, status, reviewed_by, into))

    async def ping(self) -> None:
        await self._database.read(lambda session: session.rows("SELECT 1 AS one"))

    async def close(self) -> None:
        await self._database.close()

    async def _write(self, work: Callable[[Session], T]) -> T:
        """Writers of the catalogue take turns: none sees what another is about to change, none waits in a circle."""

        def in_turn(session: Session) -> T:
            take_turns(session, SCOPE)
            return work(session)

        return await self._database.write(in_turn)


def _schemas(session: Session, which: str, order: str = "", **said: Any) -> dict[str, Schemas]:
    columns = "item_id, input_schema, output_schema, annotations"
    rows = session.rows(f"SELECT {columns} FROM tools WHERE {which} AND is_active {order}", **said)
    return {row["item_id"]: (row["input_schema"], row["output_schema"], row["annotations"]) for row in rows}


def _active_items(session: Session, item_ids: Sequence[str]) -> list[dict[str, Any]]:
    return session.rows(
        f"SELECT id, item_id, terms FROM tools WHERE is_active AND {session.among('item_id', 'ids')}",
        ids=list(item_ids),
    )


def _terms(rows: Sequence[Row]) -> list[frozenset[int]]:
    return [unpacked(row["terms"]) for row in rows]


def _item_row(item: Item, terms: frozenset[int]) -> dict[str, Any]:
    return {
        "item_id": item.id,
        "server": item.server,
        "type": item.type.value,
        "name": item.name,
        "title": item.title,
        "description": item.description,
        "input_schema": item.input_schema,
        "output_schema": item.output_schema,
        "annotations": item.annotations,
        "digest": item.digest,
        "terms": packed(terms),
        "is_active": True,
    }


def _stored(session: Session, rows: Sequence[Row], *, everything: bool = False) -> list[StoredItem]:
    """The items in those rows, in order, each with its assignments."""
    assigned = sql_skills.read_assignments(session, None if everything else [row["id"] for row in rows])
    return [
        StoredItem(row["id"], _item(row), unpacked(row["terms"]), row["is_active"], tuple(assigned.get(row["id"], ())))
        for row in rows
    ]


def _item(row: Row) -> Item:
    return Item(
        server=row["server"],
        name=row["name"],
        description=row["description"],
        type=ItemType(row["type"]),
        title=row["title"],
        input_schema=row["input_schema"],
        output_schema=row["output_schema"],
        annotations=row["annotations"],
    )


def _mark(row: Row, assignments: Sequence[Assignment]) -> ItemFingerprint:
    return ItemFingerprint(
        id=row["item_id"],
        server=row["server"],
        number=row["id"],
        digest=row["digest"],
        is_active=row["is_active"],
        assignments=tuple(assignments),
        classified=row["classified"],
    )
