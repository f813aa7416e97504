"""Knowledge in SQL: the embedded default, in the file or database that holds the rest. Every write is one
transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from toolscript.adapters.knowledge_records import is_text, metadata_of, no_such_source, record_of, records_of
from toolscript.adapters.sql.database import Database, upsert
from toolscript.adapters.sql.session import Row, Session
from toolscript.domain.knowledge import Chunk, Extraction, KnowledgeRecords, Position, Source


class SqlKnowledgeReader:
    """The knowledge of one database, to be read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_records(
        self, source_ids: Collection[str], chunk_ids: Collection[str], extraction_ids: Collection[str]
    ) -> KnowledgeRecords:
        def work(session: Session) -> KnowledgeRecords:
            return KnowledgeRecords(
                {row["id"]: _source(row) for row in _named(session, "knowledge_sources", source_ids)},
                {row["id"]: _chunk(row) for row in _named(session, "knowledge_chunks", chunk_ids)},
                {row["id"]: _extraction(row) for row in _named(session, "knowledge_extractions", extraction_ids)},
            )

        return await self._database.read(work)

    async def list_sources(self) -> list[Source]:
        found = await self._database.read(lambda session: session.rows("SELECT * FROM knowledge_sources"))
        return sorted(map(_source, found), key=lambda source: (source.title, source.id))

    async def get_contents(self, source_id: str) -> tuple[list[Chunk], list[Extraction]]:
        def work(session: Session) -> tuple[list[Chunk], list[Extraction]]:
            own = "WHERE source_id = :source_id"
            chunks = session.rows(f"SELECT * FROM knowledge_chunks {own} ORDER BY number", source_id=source_id)
            extractions = session.rows(f"SELECT * FROM knowledge_extractions {own}", source_id=source_id)
            return [*map(_chunk, chunks)], sorted(map(_extraction, extractions), key=lambda each: each.id)

        return await self._database.read(work) if is_text(source_id) else ([], [])

    async def count_contents(self) -> dict[str, tuple[int, int]]:
        own = "WHERE source_id = knowledge_sources.id"
        statement = (
            f"SELECT id, (SELECT count(*) FROM knowledge_chunks {own}) AS chunks, "
            f"(SELECT count(*) FROM knowledge_extractions {own}) AS extractions FROM knowledge_sources"
        )
        found = await self._database.read(lambda session: session.rows(statement))
        return {row["id"]: (row["chunks"], row["extractions"]) for row in found}

    async def ping(self) -> None:
        await self._database.ping()

    async def close(self) -> None:
        await self._database.close()


class SqlKnowledge(SqlKnowledgeReader):
    """The same, for the pipeline that writes it."""

    async def replace(self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> None:
        kept = record_of(source)
        parts = [{**_flat(each), "number": number} for number, each in enumerate(records_of(source.id, chunks))]
        drawn = records_of(source.id, extractions)

        def work(session: Session) -> None:
            _take_turns(session, source.id)
            upsert(session, "knowledge_sources", [kept], keys=["id"])
            for table in ("knowledge_chunks", "knowledge_extractions"):
                session.run(f"DELETE FROM {table} WHERE source_id = :source_id", source_id=source.id)
            upsert(session, "knowledge_chunks", parts, keys=["id"])
            upsert(session, "knowledge_extractions", drawn, keys=["id"])

        await self._database.write(work)

    async def add_extractions(self, source_id: str, extractions: Sequence[Extraction]) -> None:
        drawn = records_of(source_id, extractions)
        if not is_text(source_id):
            raise no_such_source(source_id)

        def work(session: Session) -> None:
            _take_turns(session, source_id)
            if not _named(session, "knowledge_sources", [source_id]):
                raise no_such_source(source_id)
            upsert(session, "knowledge_extractions", drawn, keys=["id"])

        await self._database.write(work)

    async def set_status(self, source_id: str, status: str, metadata: Mapping[str, Any] | None = None) -> None:
        values: dict[str, Any] = {"status": str(status)}
        if metadata is not None:
            values["metadata"] = metadata_of(source_id, metadata)
        statement = f"UPDATE knowledge_sources SET {', '.join(f'{name} = :{name}' for name in values)} WHERE id = :id"
        await self._database.write(lambda session: session.run(statement, id=source_id, **values))

    async def remove(self, source_id: str) -> bool:
        def work(session: Session) -> bool:
            _take_turns(session, source_id)
            return session.run("DELETE FROM knowledge_sources WHERE id = :id", id=source_id) > 0

        return is_text(source_id) and await self._database.write(work)


def _take_turns(session: Session, source_id: str) -> None:
    session.lock(f"knowledge {source_id}")


def _named(session: Session, table: str, ids: Collection[str]) -> list[dict[str, Any]]:
    known = [each for each in ids if is_text(each)]
    return session.rows(f"SELECT * FROM {table} WHERE {session.among('id', 'ids')}", ids=known) if known else []


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    position = record.pop("position")
    return {**record, **position}


def _source(row: Row) -> Source:
    return Source(
        row["id"],
        row["type"],
        row["title"],
        tuple(row["authors"]),
        row["path"],
        row["ingested_at"],
        row["status"],
        row["metadata"],
        row["schema_version"],
    )


def _chunk(row: Row) -> Chunk:
    position = Position(row["chapter"], row["section"], row["page"])
    return Chunk(row["id"], row["source_id"], row["content"], position, row["token_count"], row["schema_version"])


def _extraction(row: Row) -> Extraction:
    return Extraction(
        row["id"],
        row["source_id"],
        row["chunk_id"],
        row["type"],
        row["content"],
        tuple(row["topics"]),
        row["extracted_at"],
        row["schema_version"],
    )
