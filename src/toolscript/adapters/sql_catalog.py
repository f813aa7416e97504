"""The catalogue in SQL: items, skills, assignments and suggestions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from toolscript.adapters.sql_database import Database, upsert
from toolscript.adapters.sql_session import Row, Session
from toolscript.adapters.sql_terms import change_counts, count_terms, packed, take_turns, unpacked
from toolscript.domain.catalog import (
    Assignment,
    Item,
    ItemMark,
    ItemType,
    Origin,
    Skill,
    StoredItem,
    Suggestion,
    SuggestionStatus,
)
from toolscript.domain.errors import NotFound
from toolscript.ports import TermCounts

SCOPE = "catalogue"


class SqlCatalog:
    """The catalogue of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save_items(self, items: Sequence[tuple[Item, frozenset[int]]]) -> None:
        def work(session: Session) -> None:
            take_turns(session, SCOPE)
            old = _active_terms(session, [item.id for item, _ in items])
            upsert(session, "tools", [_item_row(item, terms) for item, terms in items], keys=["item_id"])
            change_counts(session, SCOPE, removed=old.values(), added=(terms for _, terms in items))

        await self._database.write(work)

    async def deactivate(self, item_ids: Sequence[str]) -> None:
        def work(session: Session) -> None:
            take_turns(session, SCOPE)
            old = _active_terms(session, item_ids)
            session.run(
                "UPDATE tools SET is_active = FALSE, updated_at = CURRENT_TIMESTAMP "
                f"WHERE {session.among('item_id', 'ids')}",
                ids=list(old),
            )
            change_counts(session, SCOPE, removed=old.values())

        await self._database.write(work)

    async def items(self, item_ids: Sequence[str] | None = None, *, active_only: bool = True) -> list[StoredItem]:
        def work(session: Session) -> list[StoredItem]:
            named = "TRUE" if item_ids is None else session.among("item_id", "ids")
            activity = "is_active" if active_only else "TRUE"
            ids = {} if item_ids is None else {"ids": list(item_ids)}
            rows = session.rows(f"SELECT * FROM tools WHERE {named} AND {activity}", **ids)
            assigned = _assignments(session, None if item_ids is None else [row["id"] for row in rows])
            return sorted((_stored(row, assigned.get(row["id"], ())) for row in rows), key=lambda s: s.item.id)

        return await self._database.read(work)

    async def marks(self, servers: Collection[str] | None = None) -> list[ItemMark]:
        def work(session: Session) -> list[ItemMark]:
            named = "TRUE" if servers is None else session.among("server", "servers")
            given = {} if servers is None else {"servers": sorted(servers)}
            rows = session.rows(f"SELECT id, item_id, server, digest, is_active FROM tools WHERE {named}", **given)
            assigned = _assignments(session, None if servers is None else [row["id"] for row in rows])
            return sorted((_mark(row, assigned.get(row["id"], ())) for row in rows), key=lambda m: m.id)

        return await self._database.read(work)

    async def term_counts(self, terms: Sequence[int]) -> TermCounts:
        return await self._database.read(lambda session: count_terms(session, SCOPE, terms))

    async def save_skills(self, skills: Sequence[Skill]) -> None:
        rows = [_skill_row(s) for s in skills]
        await self._database.write(lambda session: upsert(session, "skill_categories", rows, keys=["id"]))

    async def delete_skill(self, skill_id: str) -> None:
        statement = "DELETE FROM skill_categories WHERE id = :id"
        if not await self._database.write(lambda session: session.run(statement, id=skill_id)):
            raise NotFound(f"there is no skill {skill_id!r}", details={"skill_id": skill_id})

    async def skills(self, *, active_only: bool = True) -> list[Skill]:
        activity = "is_active" if active_only else "TRUE"
        statement = f"SELECT * FROM skill_categories WHERE {activity} ORDER BY id"
        return await self._database.read(lambda session: [_skill(row) for row in session.rows(statement)])

    async def assign(self, item_id: str, assignments: Sequence[Assignment]) -> None:
        def work(session: Session) -> None:
            number = _number(session, item_id)
            wanted = {a.skill_id for a in assignments}
            known = session.rows(
                f"SELECT id FROM skill_categories WHERE {session.among('id', 'ids')}",
                ids=sorted(wanted),
            )
            unknown = wanted - {row["id"] for row in known}
            if unknown:
                raise NotFound(f"there is no skill {min(unknown)!r}", details={"skill_ids": sorted(unknown)})
            session.run("DELETE FROM tool_skill_assignments WHERE tool_id = :number", number=number)
            session.run_many(
                "INSERT INTO tool_skill_assignments (tool_id, skill_id, confidence, is_primary, origin) "
                "VALUES (:tool_id, :skill_id, :confidence, :is_primary, :origin)",
                [_assignment_row(number, a) for a in assignments],
            )

        await self._database.write(work)

    async def suggest(self, suggestion: Suggestion) -> Suggestion:
        def work(session: Session) -> Suggestion:
            source = suggestion.source_item_id
            made = session.rows(
                "INSERT INTO skill_suggestions (suggested_name, suggested_description, source_tool_id, status) "
                "VALUES (:name, :description, :source, :status) RETURNING id",
                name=suggestion.name,
                description=suggestion.description,
                source=_number(session, source) if source else None,
                status=suggestion.status.value,
            )
            return _suggestions(session, "s.id = :number", number=made[0]["id"])[0]

        return await self._database.write(work)

    async def suggestions(self, status: SuggestionStatus | None = None) -> list[Suggestion]:
        if status is None:
            return await self._database.read(lambda session: _suggestions(session, "TRUE"))
        return await self._database.read(
            lambda session: _suggestions(session, "s.status = :status", status=status.value)
        )

    async def review(self, number: int, status: SuggestionStatus, reviewed_by: str | None = None) -> Suggestion:
        def work(session: Session) -> Suggestion:
            touched = session.run(
                "UPDATE skill_suggestions SET status = :status, reviewed_by = :who WHERE id = :number",
                status=status.value,
                who=reviewed_by,
                number=number,
            )
            if not touched:
                raise NotFound(f"there is no suggestion {number}", details={"suggestion": number})
            return _suggestions(session, "s.id = :number", number=number)[0]

        return await self._database.write(work)

    async def ping(self) -> None:
        await self._database.read(lambda session: session.rows("SELECT 1 AS one"))

    async def close(self) -> None:
        await self._database.close()


def _active_terms(session: Session, item_ids: Sequence[str]) -> dict[str, frozenset[int]]:
    found = session.rows(
        f"SELECT item_id, terms FROM tools WHERE is_active AND {session.among('item_id', 'ids')}",
        ids=list(item_ids),
    )
    return {row["item_id"]: unpacked(row["terms"]) for row in found}


def _number(session: Session, item_id: str) -> int:
    found = session.rows("SELECT id FROM tools WHERE item_id = :item_id", item_id=item_id)
    if not found:
        raise NotFound(f"there is no item {item_id!r}", details={"item_id": item_id})
    return int(found[0]["id"])


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


def _stored(row: Row, assignments: Sequence[Assignment]) -> StoredItem:
    item = Item(
        server=row["server"],
        name=row["name"],
        description=row["description"],
        type=ItemType(row["type"]),
        title=row["title"],
        input_schema=row["input_schema"],
        output_schema=row["output_schema"],
        annotations=row["annotations"],
    )
    return StoredItem(row["id"], item, unpacked(row["terms"]), row["is_active"], tuple(assignments))


def _mark(row: Row, assignments: Sequence[Assignment]) -> ItemMark:
    return ItemMark(row["item_id"], row["server"], row["id"], row["digest"], row["is_active"], tuple(assignments))


def _assignments(session: Session, numbers: Sequence[int] | None) -> dict[int, list[Assignment]]:
    named = "TRUE" if numbers is None else session.among("tool_id", "numbers")
    given = {} if numbers is None else {"numbers": list(numbers)}
    found: dict[int, list[Assignment]] = defaultdict(list)
    for row in session.rows(
        f"SELECT * FROM tool_skill_assignments WHERE {named} ORDER BY confidence DESC, skill_id",
        **given,
    ):
        assignment = Assignment(row["skill_id"], row["confidence"], row["is_primary"], Origin(row["origin"]))
        found[row["tool_id"]].append(assignment)
    return found


def _assignment_row(number: int, assignment: Assignment) -> dict[str, Any]:
    return {
        "tool_id": number,
        "skill_id": assignment.skill_id,
        "confidence": assignment.confidence,
        "is_primary": assignment.is_primary,
        "origin": assignment.origin.value,
    }


def _skill_row(skill: Skill) -> dict[str, Any]:
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "parent_domain": skill.parent_domain,
        "keywords": list(skill.keywords),
        "examples": list(skill.examples),
        "is_active": skill.is_active,
    }


def _skill(row: Row) -> Skill:
    return Skill(
        id=row["id"],
        name=row["name"],
        description=row["description"],
        parent_domain=row["parent_domain"],
        keywords=tuple(row["keywords"]),
        examples=tuple(row["examples"]),
        is_active=row["is_active"],
    )


def _suggestions(session: Session, wanted: str, **parameters: Any) -> list[Suggestion]:
    found = session.rows(
        "SELECT s.*, t.item_id FROM skill_suggestions s LEFT JOIN tools t ON t.id = s.source_tool_id "
        f"WHERE {wanted} ORDER BY s.id",
        **parameters,
    )
    return [
        Suggestion(
            name=row["suggested_name"],
            description=row["suggested_description"],
            source_item_id=row["item_id"],
            status=SuggestionStatus(row["status"]),
            reviewed_by=row["reviewed_by"],
            number=row["id"],
        )
        for row in found
    ]
