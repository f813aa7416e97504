"""Skills in SQL: their items (assignments) and what is suggested.

The work is in functions of a session, so that one transaction can use several of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from toolscript.adapters.sql.catalogue_version import write_catalogue
from toolscript.adapters.sql.database import Database, upsert
from toolscript.adapters.sql.session import Session, load
from toolscript.domain.catalog import (
    MAX_SKILLS,
    Assignment,
    ClassificationRecord,
    Origin,
    Skill,
    SkillMember,
    Suggestion,
    SuggestionStatus,
)
from toolscript.domain.errors import Conflict, NotFound

P = ParamSpec("P")
T = TypeVar("T")


def _save_skills(session: Session, skills: Sequence[Skill]) -> None:
    upsert(session, "skill_categories", [{**asdict(s), "is_seeded": False} for s in skills], keys=["id"])
    _reset_classification(session, [s.id for s in skills if not s.is_active])


def _is_seeded(session: Session, digest: str) -> bool:
    return bool(session.rows("SELECT digest FROM skill_seeds WHERE digest = :digest", digest=digest))


def _seed_skills(session: Session, digest: str, skills: Sequence[Skill]) -> bool:
    if _is_seeded(session, digest):  # another process was faster
        return False
    saved = "SELECT id FROM skill_categories WHERE NOT is_seeded"
    deleted = "SELECT id FROM seeded_skills WHERE is_removed"
    decided_by_people = {row["id"] for row in session.rows(f"{saved} UNION {deleted}")}
    _remove_seeds(session, {s.id for s in skills})
    rows = [{**asdict(s), "is_seeded": True} for s in skills if s.id not in decided_by_people]
    upsert(session, "skill_categories", rows, keys=["id"])
    ids = [{"id": s.id} for s in skills]
    session.run_many("INSERT INTO seeded_skills (id) VALUES (:id) ON CONFLICT (id) DO NOTHING", ids)
    session.run("DELETE FROM skill_seeds")
    session.run("INSERT INTO skill_seeds (digest) VALUES (:digest)", digest=digest)
    return True


def _delete_skill(session: Session, skill_id: str) -> None:
    if not _delete_skills(session, [skill_id]):
        raise _unknown_skill([skill_id])
    session.run("UPDATE seeded_skills SET is_removed = TRUE WHERE id = :id", id=skill_id)


def _remove_seeds(session: Session, kept: Collection[str]) -> None:
    """Removes the seeded skills except `kept`. A skill with items assigned by people becomes inactive, other skills are
    deleted."""
    by_people = "id IN (SELECT skill_id FROM tool_skill_assignments WHERE origin = 'human')"
    seeded = session.rows(f"SELECT id, {by_people} AS is_used FROM skill_categories WHERE is_seeded")
    gone = [row for row in seeded if row["id"] not in kept]
    used = [row["id"] for row in gone if row["is_used"]]
    _reset_classification(session, used)
    session.run(f"UPDATE skill_categories SET is_active = FALSE WHERE {session.among('id', 'ids')}", ids=used)
    _delete_skills(session, [row["id"] for row in gone if not row["is_used"]])


def _delete_skills(session: Session, skill_ids: Collection[str]) -> int:
    """Deletes skills and their assignments; returns their number. Items count as not classified, and the most confident
    of an item's other skills becomes primary where that one was."""
    ids = sorted(skill_ids)
    _reset_classification(session, ids)
    primaries = session.rows(
        f"SELECT tool_id FROM tool_skill_assignments WHERE is_primary AND {session.among('skill_id', 'ids')}", ids=ids
    )
    number = session.run(f"DELETE FROM skill_categories WHERE {session.among('id', 'ids')}", ids=ids)
    session.run(
        "UPDATE tool_skill_assignments SET is_primary = TRUE WHERE id IN (SELECT id FROM (SELECT id, ROW_NUMBER() "
        "OVER (PARTITION BY tool_id ORDER BY confidence DESC, skill_id) AS place FROM tool_skill_assignments "
        f"WHERE {session.among('tool_id', 'numbers')}) AS placed WHERE place = 1)",
        numbers=[row["tool_id"] for row in primaries],
    )
    return number


def _reset_classification(session: Session, skill_ids: Sequence[str]) -> None:
    """Makes the items of these skills count as not classified."""
    session.run(
        "UPDATE tools SET classified = '' WHERE id IN "
        f"(SELECT tool_id FROM tool_skill_assignments WHERE {session.among('skill_id', 'ids')})",
        ids=list(skill_ids),
    )


def read_assignments(session: Session, numbers: Sequence[int] | None) -> dict[int, list[Assignment]]:
    """The assignments of the items with these numbers (None: of all), by falling confidence."""
    condition = "TRUE" if numbers is None else session.among("tool_id", "numbers")
    parameters = {} if numbers is None else {"numbers": list(numbers)}
    assignments: dict[int, list[Assignment]] = defaultdict(list)
    for row in session.rows(
        "SELECT tool_id, skill_id, confidence, is_primary, origin FROM tool_skill_assignments "
        f"WHERE {condition} ORDER BY confidence DESC, is_primary DESC, skill_id",
        **parameters,
    ):
        assignment = Assignment(row["skill_id"], row["confidence"], row["is_primary"], Origin(row["origin"]))
        assignments[row["tool_id"]].append(assignment)
    return assignments


def _assign(session: Session, item_id: str, assignments: Sequence[Assignment]) -> None:
    number = _item_number(session, item_id)
    _require_skills(session, {a.skill_id for a in assignments})
    _replace_assignments(session, {number: assignments})
    withdraw_suggestions(session, [number])
    if not assignments:
        session.run("UPDATE tools SET classified = '' WHERE id = :number", number=number)


def _save_classifications(
    session: Session, records: Sequence[ClassificationRecord], *, replace_human: bool = False
) -> None:
    decided = {d.item_id: d for d in records}
    by_people = "SELECT tool_id FROM tool_skill_assignments WHERE origin = 'human'"
    free = "TRUE" if replace_human else f"id NOT IN ({by_people})"
    found = session.rows(
        f"SELECT id, item_id FROM tools WHERE is_active AND {free} AND {session.among('item_id', 'ids')}",
        ids=sorted(decided),
    )
    by_number = {row["id"]: decided[row["item_id"]] for row in found}
    known = {row["id"] for row in session.rows("SELECT id FROM skill_categories")}
    kept = {n: [a for a in d.assignments if a.skill_id in known] for n, d in by_number.items()}
    _replace_assignments(session, kept)
    session.run_many(
        "UPDATE tools SET classified = :stamp WHERE id = :number",
        # An item that lost a skill in the meantime must be classified again.
        [{"number": n, "stamp": d.stamp if len(kept[n]) == len(d.assignments) else ""} for n, d in by_number.items()],
    )
    _replace_suggestions(session, {n: d.suggestion for n, d in by_number.items()})


def _replace_stamps(session: Session, stamps: Mapping[str, tuple[str, str]]) -> None:
    rows = [{"item_id": item_id, "old": old, "new": new} for item_id, (old, new) in stamps.items()]
    session.run_many("UPDATE tools SET classified = :new WHERE item_id = :item_id AND classified = :old", rows)


def _add_suggestion(session: Session, suggestion: Suggestion) -> Suggestion:
    source = suggestion.source_item_id
    row = _suggestion_row(_item_number(session, source) if source else None, suggestion)
    (inserted,) = session.rows(f"{INSERT_SUGGESTION} RETURNING id", **row)
    return _read_suggestions(session, "s.id = :number", number=inserted["id"])[0]


def withdraw_suggestions(session: Session, numbers: Sequence[int]) -> None:
    """Deletes the pending suggestions for the items with these numbers."""
    session.run(
        f"DELETE FROM skill_suggestions WHERE status = 'pending' AND {session.among('source_tool_id', 'numbers')}",
        numbers=list(numbers),
    )


def _review_suggestion(
    session: Session,
    number: int,
    status: SuggestionStatus,
    reviewed_by: str | None = None,
    *,
    into: Skill | str | None = None,
) -> Suggestion:
    was_pending = session.run(
        "UPDATE skill_suggestions SET status = :status, reviewed_by = :who WHERE id = :number AND status = 'pending'",
        status=status.value,
        who=reviewed_by,
        number=number,
    )
    found = _read_suggestions(session, "s.id = :number", number=number)
    if not found:
        raise NotFound(f"no such suggestion: {number}; see the list of suggestions", details={"suggestion": number})
    if not was_pending:
        raise Conflict(
            f"suggestion {number} is already {found[0].status}: only pending suggestions can be reviewed",
            details={"suggestion": number, "status": found[0].status.value},
        )
    if isinstance(into, Skill):
        _add_skill(session, into)
        into = into.id
    if into is not None:
        _require_skills(session, {into})
        _add_to_skill(session, into, found[0].item_ids)
        if source := found[0].source_item_id:
            _assign(session, source, [Assignment(into, 1.0, True, Origin.HUMAN)])
    return found[0]


def _add_to_skill(session: Session, skill_id: str, item_ids: Collection[str]) -> None:
    """Adds the skill to the items, except items that have vanished or have the maximum number of skills from people.
    Where an item would have too many skills, the least confident skills that no person has decided are removed."""
    rows = session.rows(f"SELECT id FROM tools WHERE {session.among('item_id', 'ids')}", ids=sorted(item_ids))
    numbers = [row["id"] for row in rows]
    known = read_assignments(session, numbers)
    wanted: dict[int, list[Assignment]] = {}
    for number in numbers:
        others = [a for a in known.get(number, []) if a.skill_id != skill_id]
        if sum(a.origin is Origin.HUMAN for a in others) >= MAX_SKILLS:
            continue
        kept = sorted(others, key=lambda a: (a.origin is not Origin.HUMAN, not a.is_primary))[: MAX_SKILLS - 1]
        is_primary = not any(a.is_primary for a in kept)
        wanted[number] = [*kept, Assignment(skill_id, 1.0, is_primary, Origin.HUMAN)]
    _replace_assignments(session, wanted)
    withdraw_suggestions(session, list(wanted))


def _read_suggestions(session: Session, condition: str, **parameters: Any) -> list[Suggestion]:
    rows = session.rows(
        "SELECT s.suggested_name AS name, s.suggested_description AS description, t.item_id AS source_item_id, "
        "s.status, s.reviewed_by, s.id AS number, s.keywords, s.examples, s.item_ids "
        f"FROM skill_suggestions s LEFT JOIN tools t ON t.id = s.source_tool_id WHERE {condition} ORDER BY s.id",
        **parameters,
    )
    return [
        load(Suggestion, {**row, "status": SuggestionStatus(row["status"]), "item_ids": row["item_ids"] or []})
        for row in rows
    ]


INSERT_SUGGESTION = (
    "INSERT INTO skill_suggestions "
    "(suggested_name, suggested_description, keywords, examples, item_ids, source_tool_id, status) "
    "VALUES (:name, :description, :keywords, :examples, :item_ids, :source, :status)"
)


def _replace_suggestions(session: Session, wanted: Mapping[int, Suggestion | None]) -> None:
    """Replaces the pending suggestions for the items with these numbers, without suggestions that people have rejected.
    A suggestion that is already pending under its name stays: a reviewer may be about to use its number."""
    numbers = list(wanted)
    named = {(n, s.name.casefold()): s for n, s in wanted.items() if s}
    for rejected in _find_suggestions(session, numbers, SuggestionStatus.REJECTED):
        named.pop(rejected, None)
    pending = _find_suggestions(session, numbers, SuggestionStatus.PENDING)
    stale = [row for key, rows in pending.items() for row in rows[key in named :]]
    session.run(f"DELETE FROM skill_suggestions WHERE {session.among('id', 'stale')}", stale=stale)
    new = [_suggestion_row(key[0], s) for key, s in named.items() if key not in pending]
    session.run_many(INSERT_SUGGESTION, new)


def _suggestion_row(source: int | None, suggestion: Suggestion) -> dict[str, Any]:
    return {
        "name": suggestion.name,
        "description": suggestion.description,
        "keywords": suggestion.keywords,
        "examples": suggestion.examples,
        "item_ids": suggestion.item_ids,
        "source": source,
        "status": suggestion.status.value,
    }


def _find_suggestions(
    session: Session, numbers: Sequence[int], status: SuggestionStatus
) -> dict[tuple[int, str], list[int]]:
    """The numbers of the suggestions of that status, by item and name."""
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in session.rows(
        "SELECT id, source_tool_id, suggested_name FROM skill_suggestions "
        f"WHERE status = :status AND {session.among('source_tool_id', 'numbers')} ORDER BY id",
        status=status.value,
        numbers=list(numbers),
    ):
        found[row["source_tool_id"], row["suggested_name"].casefold()].append(row["id"])
    return found


def _replace_assignments(session: Session, wanted: Mapping[int, Sequence[Assignment]]) -> None:
    session.run(f"DELETE FROM tool_skill_assignments WHERE {session.among('tool_id', 'numbers')}", numbers=list(wanted))
    session.run_many(
        "INSERT INTO tool_skill_assignments (tool_id, skill_id, confidence, is_primary, origin) "
        "VALUES (:tool_id, :skill_id, :confidence, :is_primary, :origin)",
        [{"tool_id": number, **asdict(a)} for number, assignments in wanted.items() for a in assignments],
    )


def _item_number(session: Session, item_id: str) -> int:
    found = session.rows("SELECT id FROM tools WHERE item_id = :item_id", item_id=item_id)
    if not found:
        raise NotFound(
            f"no such item: {item_id!r}; searches and lists of tools show the ids", details={"item_id": item_id}
        )
    return int(found[0]["id"])


def _require_skills(session: Session, wanted: set[str]) -> None:
    known = session.rows(f"SELECT id FROM skill_categories WHERE {session.among('id', 'ids')}", ids=sorted(wanted))
    unknown = wanted - {row["id"] for row in known}
    if unknown:
        raise _unknown_skill(unknown)


def _unknown_skill(unknown: Collection[str]) -> NotFound:
    return NotFound(f"no such skill: {min(unknown)!r}; see the list of skills", details={"skill_ids": sorted(unknown)})


def _add_skill(session: Session, skill: Skill) -> None:
    if session.rows("SELECT id FROM skill_categories WHERE id = :id", id=skill.id):
        raise Conflict(
            f"skill {skill.id!r} already exists: give another id, or use that skill",
            details={"skill_id": skill.id},
        )
    _save_skills(session, [skill])


def _as_transaction(
    work: Callable[Concatenate[Session, P], T],
) -> Callable[Concatenate[SqlSkills, P], Coroutine[Any, Any, T]]:
    """Makes a method of a function of a session."""

    async def method(self: SqlSkills, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await write_catalogue(self._database, lambda session: work(session, *arguments, **options))

    return method


class SqlSkills:
    """The skills of one database."""

    add_skill = _as_transaction(_add_skill)
    save_skills = _as_transaction(_save_skills)
    _write_seed = _as_transaction(_seed_skills)
    delete_skill = _as_transaction(_delete_skill)
    save_classifications = _as_transaction(_save_classifications)
    replace_stamps = _as_transaction(_replace_stamps)
    assign = _as_transaction(_assign)
    add_suggestion = _as_transaction(_add_suggestion)
    review_suggestion = _as_transaction(_review_suggestion)

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_seed(self) -> str | None:
        rows = await self._database.read(lambda session: session.rows("SELECT digest FROM skill_seeds"))
        return rows[0]["digest"] if rows else None

    async def seed_skills(self, digest: str, skills: Sequence[Skill]) -> bool:
        if await self._database.read(lambda session: _is_seeded(session, digest)):
            return False  # without a write: commands that only read seed too
        return await self._write_seed(digest, skills)

    async def list_skills(self, *, active_only: bool = True) -> list[Skill]:
        statement = f"SELECT * FROM skill_categories WHERE {'is_active' if active_only else 'TRUE'}"
        rows = await self._database.read(lambda session: session.rows(statement))
        return sorted((load(Skill, row) for row in rows), key=lambda s: s.id)

    async def get_update_time(self, skill_id: str) -> datetime | None:
        statement = "SELECT updated_at FROM skill_categories WHERE id = :id"
        rows = await self._database.read(lambda session: session.rows(statement, id=skill_id))
        if not rows:
            return None
        time = rows[0]["updated_at"]
        time = datetime.fromisoformat(time) if isinstance(time, str) else time
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)

    async def count_items(self) -> dict[str, int]:
        statement = (
            "SELECT a.skill_id, count(*) AS items FROM tool_skill_assignments a JOIN tools t ON t.id = a.tool_id "
            "WHERE t.is_active GROUP BY a.skill_id"
        )
        rows = await self._database.read(lambda session: session.rows(statement))
        return {row["skill_id"]: row["items"] for row in rows}

    async def get_members(self, skill_ids: Collection[str] | None = None) -> dict[str, list[SkillMember]]:
        def work(session: Session) -> list[dict[str, Any]]:
            condition = "TRUE" if skill_ids is None else session.among("a.skill_id", "ids")
            parameters = {} if skill_ids is None else {"ids": sorted(skill_ids)}
            rows = session.rows(
                "SELECT a.skill_id, a.confidence, a.is_primary, t.item_id, t.digest FROM tool_skill_assignments a "
                f"JOIN tools t ON t.id = a.tool_id WHERE t.is_active AND {condition}",
                **parameters,
            )
            if skill_ids is None or "" in skill_ids:
                rows += session.rows(
                    "SELECT '' AS skill_id, 1.0 AS confidence, TRUE AS is_primary, t.item_id, t.digest FROM tools t "
                    "WHERE t.is_active AND NOT EXISTS (SELECT 1 FROM tool_skill_assignments a JOIN skill_categories s "
                    "ON s.id = a.skill_id WHERE a.tool_id = t.id AND a.is_primary AND s.is_active)"
                )
            return rows

        members: dict[str, list[SkillMember]] = defaultdict(list)
        for row in await self._database.read(work):
            member = SkillMember(row["item_id"], row["digest"], float(row["confidence"]), bool(row["is_primary"]))
            members[row["skill_id"]].append(member)
        return {skill: sorted(items, key=lambda m: m.item_id) for skill, items in members.items()}

    async def list_suggestions(self, status: SuggestionStatus | None = None) -> list[Suggestion]:
        condition, parameters = ("TRUE", {}) if status is None else ("s.status = :status", {"status": status.value})
        return await self._database.read(lambda session: _read_suggestions(session, condition, **parameters))
