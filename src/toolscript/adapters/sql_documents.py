"""Documents in SQL, one tenant at a time; a tenant's term counts change in the transaction that changes a text."""

from __future__ import annotations

from collections.abc import Sequence

from toolscript.adapters.sql_database import Database, upsert
from toolscript.adapters.sql_session import Session
from toolscript.adapters.sql_terms import change_counts, count_terms, packed, take_turns, unpacked
from toolscript.domain.documents import Document, StoredDocument
from toolscript.ports import TermCounts


class SqlDocuments:
    """The documents of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save_documents(self, tenant: str, documents: Sequence[StoredDocument]) -> None:
        def work(session: Session) -> None:
            take_turns(session, _scope(tenant))
            old = _terms(session, tenant, [d.document.id for d in documents])
            rows = [
                {
                    "tenant": tenant,
                    "id": d.document.id,
                    "title": d.document.title,
                    "text": d.document.text,
                    "metadata": dict(d.document.metadata),
                    "digest": d.document.digest,
                    "terms": packed(d.terms),
                }
                for d in documents
            ]
            upsert(session, "documents", rows, keys=["tenant", "id"])
            change_counts(session, _scope(tenant), removed=old, added=(d.terms for d in documents))

        await self._database.write(work)

    async def delete_documents(self, tenant: str, ids: Sequence[str]) -> int:
        def work(session: Session) -> int:
            take_turns(session, _scope(tenant))
            old = _terms(session, tenant, ids)
            session.run(f"DELETE FROM documents WHERE {_named(session)}", tenant=tenant, ids=list(ids))
            change_counts(session, _scope(tenant), removed=old)
            return len(old)

        return await self._database.write(work)

    async def tenants(self) -> list[str]:
        statement = "SELECT DISTINCT tenant FROM documents"
        found = await self._database.read(lambda session: session.rows(statement))
        return sorted(row["tenant"] for row in found)

    async def documents(self, tenant: str, ids: Sequence[str] | None = None) -> list[Document]:
        def work(session: Session) -> list[Document]:
            if ids is None:
                rows = session.rows("SELECT * FROM documents WHERE tenant = :tenant", tenant=tenant)
            else:
                statement = f"SELECT * FROM documents WHERE {_named(session)}"
                rows = session.rows(statement, tenant=tenant, ids=list(ids))
            found = (Document(r["id"], r["text"], r["title"], r["metadata"]) for r in rows)
            return sorted(found, key=lambda d: d.id)

        return await self._database.read(work)

    async def digests(self, tenant: str, ids: Sequence[str]) -> dict[str, str]:
        def work(session: Session) -> dict[str, str]:
            statement = f"SELECT id, digest FROM documents WHERE {_named(session)}"
            return {r["id"]: r["digest"] for r in session.rows(statement, tenant=tenant, ids=list(ids))}

        return await self._database.read(work)

    async def term_counts(self, tenant: str, terms: Sequence[int]) -> TermCounts:
        return await self._database.read(lambda session: count_terms(session, _scope(tenant), terms))


def _scope(tenant: str) -> str:
    return f"tenant:{tenant}"


def _named(session: Session) -> str:
    return f"tenant = :tenant AND {session.among('id', 'ids')}"


def _terms(session: Session, tenant: str, ids: Sequence[str]) -> list[frozenset[int]]:
    statement = f"SELECT terms FROM documents WHERE {_named(session)}"
    return [unpacked(row["terms"]) for row in session.rows(statement, tenant=tenant, ids=list(ids))]
