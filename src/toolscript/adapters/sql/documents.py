"""Documents in SQL, one tenant at a time. The transaction that changes a text also updates the tenant's term counts and
marks the document as pending: the index has to be updated."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolscript.adapters.sql.database import Database, upsert
from toolscript.adapters.sql.session import Session, load
from toolscript.adapters.sql.terms import change_counts, count_terms, pack_terms, unpack_terms, write_scope
from toolscript.domain.documents import TERMS_VERSION, Document, StoredDocument
from toolscript.domain.search import TermCounts

# A writer needs minutes at most from storing a document to indexing it. A mark older than this is of a writer that no
# longer runs, and any other may remove it.
ABANDONED_AFTER_SECONDS = 3_600.0


class SqlDocuments:
    """The documents of one database. Each instance counts as one writer."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._writer = uuid.uuid4().hex

    async def save_documents(self, tenant: str, documents: Sequence[StoredDocument]) -> None:
        def work(session: Session) -> None:
            ids = [d.document.id for d in documents]
            old = _select(session, "terms", tenant, ids)
            upsert(session, "documents", [_document_row(tenant, d) for d in documents], keys=["tenant", "id"])
            self._mark(session, tenant, ids)
            removed = [unpack_terms(row["terms"]) for row in old]
            change_counts(session, _scope(tenant), removed=removed, added=(d.terms for d in documents))

        await write_scope(self._database, _scope(tenant), work)

    async def save_terms(self, tenant: str, documents: Sequence[StoredDocument]) -> None:
        def work(session: Session) -> None:
            rows = _select(session, "id, digest, terms", tenant, [d.document.id for d in documents])
            old = {(row["id"], row["digest"]): unpack_terms(row["terms"]) for row in rows}
            same = {key: d for d in documents if (key := (d.document.id, d.document.digest)) in old}
            session.run_many(
                "UPDATE documents SET terms = :terms, terms_version = :version WHERE tenant = :tenant AND id = :id",
                [
                    {"tenant": tenant, "id": i, "terms": pack_terms(d.terms), "version": d.terms_version}
                    for (i, _), d in same.items()
                ],
            )
            self._mark(session, tenant, [i for i, _ in same])
            added = (d.terms for d in same.values())
            change_counts(session, _scope(tenant), removed=[old[key] for key in same], added=added)

        await write_scope(self._database, _scope(tenant), work)

    async def list_outdated(self, *, limit: int) -> dict[str, list[str]]:
        statement = "SELECT tenant, id FROM documents WHERE terms_version < :version LIMIT :size"
        outdated: dict[str, list[str]] = {}
        for row in await self._database.read(
            lambda session: session.rows(statement, version=TERMS_VERSION, size=limit)
        ):
            outdated.setdefault(row["tenant"], []).append(row["id"])
        return outdated

    async def delete_documents(self, tenant: str, ids: Sequence[str]) -> int:
        def work(session: Session) -> int:
            old = _select(session, "id, terms", tenant, ids)
            session.run(f"DELETE FROM documents WHERE {_condition(session)}", tenant=tenant, ids=list(ids))
            self._mark(session, tenant, [row["id"] for row in old])
            change_counts(session, _scope(tenant), removed=[unpack_terms(row["terms"]) for row in old])
            return len(old)

        return await write_scope(self._database, _scope(tenant), work)

    async def mark_pending(self, tenant: str, ids: Sequence[str]) -> None:
        await self._database.write(lambda session: self._mark(session, tenant, ids))

    async def mark_indexed(self, tenant: str, digests: Mapping[str, str | None]) -> None:
        def work(session: Session) -> None:
            mark = {"tenant": tenant, "writer": self._writer, "before": self._clock() - ABANDONED_AFTER_SECONDS}
            stored = "EXISTS (SELECT 1 FROM documents WHERE tenant = :tenant AND id = :id"
            own = "(writer = :writer OR since < :before)"
            delete = f"DELETE FROM documents_waiting WHERE tenant = :tenant AND id = :id AND {own}"
            session.run_many(
                f"{delete} AND {stored} AND digest = :digest)",
                [{**mark, "id": i, "digest": digest} for i, digest in digests.items() if digest is not None],
            )
            session.run_many(
                f"{delete} AND NOT {stored})", [{**mark, "id": i} for i, digest in digests.items() if digest is None]
            )

        # One after the other with writers of the tenant: documents of an unfinished one would look absent.
        await write_scope(self._database, _scope(tenant), work)

    async def list_pending(self) -> dict[str, list[str]]:
        statement = "SELECT DISTINCT tenant, id FROM documents_waiting"
        pending: dict[str, list[str]] = {}
        for row in await self._database.read(lambda session: session.rows(statement)):
            pending.setdefault(row["tenant"], []).append(row["id"])
        return {tenant: sorted(ids) for tenant, ids in sorted(pending.items())}

    async def list_tenants(self) -> list[str]:
        statement = "SELECT DISTINCT tenant FROM documents"
        rows = await self._database.read(lambda session: session.rows(statement))
        return sorted(row["tenant"] for row in rows)

    async def get_documents(self, tenant: str, ids: Sequence[str] | None = None) -> list[Document]:
        rows = await self._database.read(lambda session: _select(session, "*", tenant, ids))
        return sorted((load(Document, row) for row in rows), key=lambda d: d.id)

    async def list_documents(self, tenant: str, *, after: str | None = None, limit: int) -> list[Document]:
        return [load(Document, row) for row in await self._page("*", tenant, after, limit)]

    async def list_ids(self, tenant: str, *, after: str | None = None, limit: int) -> list[str]:
        return [row["id"] for row in await self._page("id", tenant, after, limit)]

    async def count(self, tenant: str) -> int:
        statement = "SELECT count(*) AS n FROM documents WHERE tenant = :tenant"
        return int((await self._database.read(lambda session: session.rows(statement, tenant=tenant)))[0]["n"])

    async def get_digests(self, tenant: str, ids: Sequence[str]) -> dict[str, str]:
        rows = await self._database.read(lambda session: _select(session, "id, digest", tenant, ids))
        return {row["id"]: row["digest"] for row in rows}

    async def count_terms(self, tenant: str, terms: Sequence[int]) -> TermCounts:
        return await self._database.read(lambda session: count_terms(session, _scope(tenant), terms))

    async def ping(self) -> None:
        await self._database.ping()

    async def _page(self, columns: str, tenant: str, after: str | None, limit: int) -> list[dict[str, Any]]:
        def work(session: Session) -> list[dict[str, Any]]:
            id_column = f"id {session.dialect.words['by_code_point']}"
            return session.rows(
                f"SELECT {columns} FROM documents WHERE tenant = :tenant AND {id_column} > :after "
                f"ORDER BY {id_column} LIMIT :size",
                tenant=tenant,
                after=after or "",
                size=limit,
            )

        return await self._database.read(work)

    def _mark(self, session: Session, tenant: str, ids: Sequence[str]) -> None:
        session.run_many(
            "INSERT INTO documents_waiting (tenant, id, writer, since) VALUES (:tenant, :id, :writer, :since) "
            "ON CONFLICT (tenant, id, writer) DO UPDATE SET since = excluded.since",
            [{"tenant": tenant, "id": i, "writer": self._writer, "since": self._clock()} for i in ids],
        )


def _select(session: Session, columns: str, tenant: str, ids: Sequence[str] | None) -> list[dict[str, Any]]:
    if ids is None:
        return session.rows(f"SELECT {columns} FROM documents WHERE tenant = :tenant", tenant=tenant)
    statement = f"SELECT {columns} FROM documents WHERE {_condition(session)}"
    return session.rows(statement, tenant=tenant, ids=list(ids))


def _condition(session: Session) -> str:
    return f"tenant = :tenant AND {session.among('id', 'ids')}"


def _scope(tenant: str) -> str:
    return f"tenant:{tenant}"


def _document_row(tenant: str, stored: StoredDocument) -> dict[str, Any]:
    document = stored.document
    return {
        "tenant": tenant,
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": dict(document.metadata),
        "digest": document.digest,
        "terms": pack_terms(stored.terms),
        "terms_version": stored.terms_version,
    }
