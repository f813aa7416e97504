"""Registries and their entries in SQL, with the counts of terms that ranking by words needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from toolscript.adapters.sql.database import Database, upsert
from toolscript.adapters.sql.session import Row, Session
from toolscript.adapters.sql.terms import change_counts, count_terms, pack_terms, unpack_terms, write_scope
from toolscript.domain.registry.entry import RegistryEntry, RegistryStatus
from toolscript.domain.search import TermCounts

SCOPE = "registry"


class SqlRegistries:
    """The registries of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_registries(self) -> dict[str, str]:
        rows = await self._database.read(lambda session: session.rows("SELECT * FROM registries ORDER BY url"))
        return {row["url"]: row["changed_until"] for row in rows}

    async def save(
        self,
        registry: str,
        changed_until: str,
        entries: Sequence[RegistryEntry],
        terms: Mapping[str, frozenset[int]],
        removed: Collection[str],
    ) -> None:
        def work(session: Session) -> None:
            _remove(session, sorted({*removed, *(entry.id for entry in entries)}))
            rows = [{**_to_row(entry), "terms": pack_terms(terms[entry.id])} for entry in entries]
            upsert(session, "registry_entries", rows, ["id"])
            change_counts(session, SCOPE, added=(terms[entry.id] for entry in entries))
            upsert(session, "registries", [{"url": registry, "changed_until": changed_until}], ["url"])

        await write_scope(self._database, SCOPE, work)

    async def remove_registry(self, registry: str) -> bool:
        def work(session: Session) -> bool:
            rows = session.rows("SELECT id FROM registry_entries WHERE registry = :registry", registry=registry)
            _remove(session, [row["id"] for row in rows])
            return session.run("DELETE FROM registries WHERE url = :registry", registry=registry) > 0

        return await write_scope(self._database, SCOPE, work)

    async def list_entries(self, registry: str | None = None) -> list[RegistryEntry]:
        return await self._read("TRUE" if registry is None else "registry = :registry", registry=registry)

    async def get_entries(self, ids: Collection[str]) -> dict[str, RegistryEntry]:
        def work(session: Session) -> list[Row]:
            return [
                *session.rows(f"SELECT * FROM registry_entries WHERE {session.among('id', 'ids')}", ids=sorted(ids))
            ]

        return {row["id"]: _load(row) for row in await self._database.read(work)}

    async def find_by_name(self, name: str) -> list[RegistryEntry]:
        return await self._read("lower(name) = lower(:name)", name=name)

    async def count_terms(self, terms: Sequence[int]) -> TermCounts:
        return await self._database.read(lambda session: count_terms(session, SCOPE, terms))

    async def _read(self, where: str, **given: object) -> list[RegistryEntry]:
        statement = f"SELECT * FROM registry_entries WHERE {where} ORDER BY id"
        used = {name: value for name, value in given.items() if value is not None}
        return [_load(row) for row in await self._database.read(lambda session: session.rows(statement, **used))]


def _remove(session: Session, ids: Sequence[str]) -> None:
    where = session.among("id", "ids")
    rows = session.rows(f"SELECT terms FROM registry_entries WHERE {where}", ids=ids)
    change_counts(session, SCOPE, removed=[unpack_terms(row["terms"]) for row in rows])
    session.run(f"DELETE FROM registry_entries WHERE {where}", ids=ids)


def _to_row(entry: RegistryEntry) -> Row:
    return {
        "id": entry.id,
        "registry": entry.registry,
        "name": entry.name,
        "version": entry.version,
        "title": entry.title,
        "description": entry.description,
        "status": entry.status.value,
        "status_message": entry.status_message,
        "changed_at": entry.updated_at,
        "is_latest": entry.is_latest,
        "definition": dict(entry.definition),
    }


def _load(row: Row) -> RegistryEntry:
    return RegistryEntry(
        row["registry"],
        row["name"],
        row["version"],
        row["title"],
        row["description"],
        RegistryStatus(row["status"]),
        row["status_message"],
        row["changed_at"],
        bool(row["is_latest"]),
        row["definition"],
    )
