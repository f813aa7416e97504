"""Knowledge in SQL: the embedded default, in the same database as everything else. Every write is one transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from toolscript.adapters.sql.database import Database, upsert
from toolscript.adapters.sql.session import Row, Session, load
from toolscript.adapters.sql.terms import ALL_TEXTS
from toolscript.adapters.storage.knowledge_records import (
    build_record,
    build_records,
    build_status_values,
    is_storable,
    unknown_source,
)
from toolscript.domain.knowledge import Chunk, Extraction, KnowledgeRecords, Position, Source
from toolscript.domain.search import TermCounts


class SqlKnowledgeReader:
    """Reads the knowledge of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_records(
        self, source_ids: Collection[str], chunk_ids: Collection[str], extraction_ids: Collection[str]
    ) -> KnowledgeRecords:
        def work(session: Session) -> KnowledgeRecords:
            return KnowledgeRecords(
                {row["id"]: load(Source, row) for row in _find_by_id(session, "knowledge_sources", source_ids)},
                {row["id"]: _chunk(row) for row in _find_by_id(session, "knowledge_chunks", chunk_ids)},
                {
                    row["id"]: load(Extraction, row)
                    for row in _find_by_id(session, "knowledge_extractions", extraction_ids)
                },
            )

        return await self._database.read(work)

    async def has_sources(self) -> bool:
        return bool(await self._database.read(lambda session: session.rows("SELECT 1 FROM knowledge_sources LIMIT 1")))

    async def list_sources(self) -> list[Source]:
        found = await self._database.read(lambda session: session.rows("SELECT * FROM knowledge_sources"))
        return sorted((load(Source, row) for row in found), key=lambda source: (source.title, source.id))

    async def get_contents(self, source_id: str) -> tuple[list[Chunk], list[Extraction]]:
        def work(session: Session) -> tuple[list[Chunk], list[Extraction]]:
            own = "WHERE source_id = :source_id"
            chunks = session.rows(f"SELECT * FROM knowledge_chunks {own} ORDER BY number", source_id=source_id)
            extractions = session.rows(f"SELECT * FROM knowledge_extractions {own}", source_id=source_id)
            findings = (load(Extraction, row) for row in extractions)
            return [*map(_chunk, chunks)], sorted(findings, key=lambda each: each.id)

        return await self._database.read(work) if is_storable(source_id) else ([], [])

    async def count_contents(self) -> dict[str, tuple[int, int]]:
        own = "WHERE source_id = knowledge_sources.id"
        statement = (
            f"SELECT id, (SELECT count(*) FROM knowledge_chunks {own}) AS chunks, "
            f"(SELECT count(*) FROM knowledge_extractions {own}) AS extractions FROM knowledge_sources"
        )
        found = await self._database.read(lambda session: session.rows(statement))
        return {row["id"]: (row["chunks"], row["extractions"]) for row in found}

    async def count_terms(self, terms: Sequence[int]) -> TermCounts:
        def work(session: Session) -> TermCounts:
            found = session.rows(
                f"SELECT term, SUM(texts) AS texts FROM knowledge_terms WHERE {session.among('term', 'terms')} "
                "GROUP BY term",
                terms=[ALL_TEXTS, *terms],
            )
            counts = {row["term"]: int(row["texts"]) for row in found}
            return TermCounts(counts.pop(ALL_TEXTS, 0), counts)

        return await self._database.read(work)

    async def ping(self) -> None:
        await self._database.ping()

    async def close(self) -> None:
        await self._database.close()


class SqlKnowledge(SqlKnowledgeReader):
    """Reads and writes the knowledge of one database."""

    async def replace(self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> None:
        own = build_record(source)
        parts = [{**_flatten(each), "number": number} for number, each in enumerate(build_records(source.id, chunks))]
        findings = build_records(source.id, extractions)

        def work(session: Session) -> None:
            _lock(session, source.id)
            upsert(session, "knowledge_sources", [own], keys=["id"])
            for table in ("knowledge_chunks", "knowledge_extractions"):
                session.run(f"DELETE FROM {table} WHERE source_id = :source_id", source_id=source.id)
            upsert(session, "knowledge_chunks", parts, keys=["id"])
            upsert(session, "knowledge_extractions", findings, keys=["id"])

        await self._database.write(work)

    async def add_extractions(self, source_id: str, extractions: Sequence[Extraction]) -> None:
        records = build_records(source_id, extractions)
        if not is_storable(source_id):
            raise unknown_source(source_id)

        def work(session: Session) -> None:
            _lock(session, source_id)
            if not _find_by_id(session, "knowledge_sources", [source_id]):
                raise unknown_source(source_id)
            upsert(session, "knowledge_extractions", records, keys=["id"])

        await self._database.write(work)

    async def set_term_counts(self, source_id: str, counts: TermCounts) -> None:
        rows = [
            {"term": term, "source_id": source_id, "texts": texts}
            for term, texts in {ALL_TEXTS: counts.documents, **counts.documents_with_term}.items()
            if texts
        ]

        def work(session: Session) -> None:
            _lock(session, source_id)
            session.run("DELETE FROM knowledge_terms WHERE source_id = :source_id", source_id=source_id)
            if rows and _find_by_id(session, "knowledge_sources", [source_id]):
                session.run_many(
                    "INSERT INTO knowledge_terms (term, source_id, texts) VALUES (:term, :source_id, :texts)", rows
                )

        if is_storable(source_id):
            await self._database.write(work)

    async def set_status(self, source_id: str, status: str, metadata: Mapping[str, Any] | None = None) -> None:
        values = build_status_values(source_id, status, metadata)
        statement = f"UPDATE knowledge_sources SET {', '.join(f'{name} = :{name}' for name in values)} WHERE id = :id"
        await self._database.write(lambda session: session.run(statement, id=source_id, **values))

    async def remove(self, source_id: str) -> bool:
        def work(session: Session) -> bool:
            _lock(session, source_id)
            return session.run("DELETE FROM knowledge_sources WHERE id = :id", id=source_id) > 0

        return is_storable(source_id) and await self._database.write(work)


def _lock(session: Session, source_id: str) -> None:
    session.lock(f"knowledge {source_id}")


def _find_by_id(session: Session, table: str, ids: Collection[str]) -> list[dict[str, Any]]:
    possible = [each for each in ids if is_storable(each)]
    return session.rows(f"SELECT * FROM {table} WHERE {session.among('id', 'ids')}", ids=possible) if possible else []


def _flatten(record: dict[str, Any]) -> dict[str, Any]:
    position = record.pop("position")
    return {**record, "line": None, **position}


def _chunk(row: Row) -> Chunk:
    return load(Chunk, {**row, "position": load(Position, row)})
