"""Documents in SQL, one tenant at a time; a tenant's term counts change in the transaction that changes a text, and so
does the note that the index is behind on it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from toolscript.adapters.sql.database import Database, upsert
from toolscript.adapters.sql.session import Row, Session
from toolscript.adapters.sql.terms import change_counts, count_terms, pack_terms, unpack_terms, write_scope
from toolscript.domain.documents import Document, StoredDocument
from toolscript.domain.search import TermCounts

# A writer needs minutes at most from storing a document to having indexed it. A mark that is older than this is of one
# that is no longer alive, and whoever has brought the index up to date may take it away.
ABANDONED_AFTER_SECONDS = 3_600.0


class SqlDocuments:
    """The documents of one database. Each instance is a writer of its own."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._writer = uuid.uuid4().hex

    async def save_documents(self, tenant: str, documents: Sequence[StoredDocument]) -> None:
        def work(session: Session) -> None:
            old = _terms(session, tenant, [d.document.id for d in documents])
            rows = [
                {
                    "tenant": tenant,
                    "id": d.document.id,
                    "title": d.document.title,
                    "text": d.document.text,
                    "metadata": dict(d.document.metadata),
                    "digest": d.document.digest,
                    "terms": pack_terms(d.terms),
                }
                for d in documents
            ]
            upsert(session, "documents", rows, keys=["tenant", "id"])
            self._wait(session, tenant, [d.document.id for d in documents])
            change_counts(session, _scope(tenant), removed=old, added=(d.terms for d in documents))

        await write_scope(self._database, _scope(tenant), work)

    async def delete_documents(self, tenant: str, ids: Sequence[str]) -> int:
        def work(session: Session) -> int:
            statement = f"SELECT id, terms FROM documents WHERE {_named(session)}"
            old = session.rows(statement, tenant=tenant, ids=list(ids))
            session.run(f"DELETE FROM documents WHERE {_named(session)}", tenant=tenant, ids=list(ids))
            self._wait(session, tenant, [row["id"] for row in old])
            change_counts(session, _scope(tenant), removed=[unpack_terms(row["terms"]) for row in old])
            return len(old)

        return await write_scope(self._database, _scope(tenant), work)

    async def mark_pending(self, tenant: str, ids: Sequence[str]) -> None:
        await self._database.write(lambda session: self._wait(session, tenant, ids))

    async def mark_indexed(self, tenant: str, digests: Mapping[str, str | None]) -> None:
        def work(session: Session) -> None:
            # In turn with other writers of the tenant: the documents of an unfinished one would look absent.
            mark = {"tenant": tenant, "writer": self._writer, "before": self._clock() - ABANDONED_AFTER_SECONDS}
            kept = "EXISTS (SELECT 1 FROM documents WHERE tenant = :tenant AND id = :id"
            own = "(writer = :writer OR since < :before)"
            settled = f"DELETE FROM documents_waiting WHERE tenant = :tenant AND id = :id AND {own}"
            session.run_many(
                f"{settled} AND {kept} AND digest = :digest)",
                [{**mark, "id": i, "digest": digest} for i, digest in digests.items() if digest is not None],
            )
            session.run_many(
                f"{settled} AND NOT {kept})", [{**mark, "id": i} for i, digest in digests.items() if digest is None]
            )

        await write_scope(self._database, _scope(tenant), work)

    async def list_pending(self) -> dict[str, list[str]]:
        statement = "SELECT DISTINCT tenant, id FROM documents_waiting"
        found: dict[str, list[str]] = {}
        for row in await self._database.read(lambda session: session.rows(statement)):
            found.setdefault(row["tenant"], []).append(row["id"])
        return {tenant: sorted(ids) for tenant, ids in sorted(found.items())}

    async def list_tenants(self) -> list[str]:
        statement = "SELECT DISTINCT tenant FROM documents"
        found = await self._database.read(lambda session: session.rows(statement))
        return sorted(row["tenant"] for row in found)

    async def get_documents(self, tenant: str, ids: Sequence[str] | None = None) -> list[Document]:
        def work(session: Session) -> list[Document]:
            if ids is None:
                rows = session.rows("SELECT * FROM documents WHERE tenant = :tenant", tenant=tenant)
            else:
                statement = f"SELECT * FROM documents WHERE {_named(session)}"
                rows = session.rows(statement, tenant=tenant, ids=list(ids))
            return sorted(map(_document, rows), key=lambda d: d.id)

        return await self._database.read(work)

    async def list_documents(self, tenant: str, *, after: str | None = None, limit: int) -> list[Document]:
        def work(session: Session) -> list[Document]:
            own_id = f"id {session.words['by_code_point']}"
            statement = (
                f"SELECT * FROM documents WHERE tenant = :tenant AND {own_id} > :after ORDER BY {own_id} LIMIT :most"
            )
            return [*map(_document, session.rows(statement, tenant=tenant, after=after or "", most=limit))]

        return await self._database.read(work)

    async def list_ids(self, tenant: str, *, after: str | None = None, limit: int) -> list[str]:
        def work(session: Session) -> list[str]:
            own_id = f"id {session.words['by_code_point']}"
            statement = (
                f"SELECT id FROM documents WHERE tenant = :tenant AND {own_id} > :after ORDER BY {own_id} LIMIT :most"
            )
            return [row["id"] for row in session.rows(statement, tenant=tenant, after=after or "", most=limit)]

        return await self._database.read(work)

    async def count(self, tenant: str) -> int:
        statement = "SELECT count(*) AS n FROM documents WHERE tenant = :tenant"
        return int((await self._database.read(lambda session: session.rows(statement, tenant=tenant)))[0]["n"])

    async def get_digests(self, tenant: str, ids: Sequence[str]) -> dict[str, str]:
        def work(session: Session) -> dict[str, str]:
            statement = f"SELECT id, digest FROM documents WHERE {_named(session)}"
            return {r["id"]: r["digest"] for r in session.rows(statement, tenant=tenant, ids=list(ids))}

        return await self._database.read(work)

    async def count_terms(self, tenant: str, terms: Sequence[int]) -> TermCounts:
        return await self._database.read(lambda session: count_terms(session, _scope(tenant), terms))

    async def ping(self) -> None:
        await self._database.ping()

    def _wait(self, session: Session, tenant: str, ids: Sequence[str]) -> None:
        session.run_many(
            "INSERT INTO documents_waiting (tenant, id, writer, since) VALUES (:tenant, :id, :writer, :since) "
            "ON CONFLICT (tenant, id, writer) DO UPDATE SET since = excluded.since",
            [{"tenant": tenant, "id": i, "writer": self._writer, "since": self._clock()} for i in ids],
        )


def _document(row: Row) -> Document:
    return Document(row["id"], row["text"], row["title"], row["metadata"])


def _scope(tenant: str) -> str:
    return f"tenant:{tenant}"


def _named(session: Session) -> str:
    return f"tenant = :tenant AND {session.among('id', 'ids')}"


def _terms(session: Session, tenant: str, ids: Sequence[str]) -> list[frozenset[int]]:
    statement = f"SELECT terms FROM documents WHERE {_named(session)}"
    return [unpack_terms(row["terms"]) for row in session.rows(statement, tenant=tenant, ids=list(ids))]
