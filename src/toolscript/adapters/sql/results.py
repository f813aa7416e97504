"""Large results in SQL."""

from __future__ import annotations

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Session

# Compressed: some 1 GB of JSON.
MAX_TOTAL_BYTES = 128 * 2**20


class SqlResults:
    """The results of one database."""

    def __init__(self, database: Database, *, max_total_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._database = database
        self._max_total_bytes = max_total_bytes

    async def save(self, handle: str, owner: str, content: bytes, *, now: float, expires_at: float) -> None:
        def work(session: Session) -> None:
            session.lock("results")
            session.run(
                "DELETE FROM results WHERE expires_at <= :now OR (handle = :handle AND owner = :owner)",
                now=now,
                handle=handle,
                owner=owner,
            )
            self._make_room(session, len(content))
            session.run(
                "INSERT INTO results (handle, owner, expires_at, bytes, content) "
                "VALUES (:handle, :owner, :expires_at, :bytes, :content)",
                handle=handle,
                owner=owner,
                expires_at=expires_at,
                bytes=len(content),
                content=content,
            )

        await self._database.write(work)

    async def read(self, handle: str, owner: str, *, now: float) -> bytes | None:
        rows = await self._database.read(
            lambda session: session.rows(
                "SELECT content FROM results WHERE handle = :handle AND owner = :owner AND expires_at > :now",
                handle=handle,
                owner=owner,
                now=now,
            )
        )
        return bytes(rows[0]["content"]) if rows else None

    def _make_room(self, session: Session, needed: int) -> None:
        rows = session.rows("SELECT handle, bytes FROM results ORDER BY expires_at DESC, handle DESC")
        total = needed
        for at, row in enumerate(rows):
            total += row["bytes"]
            if total > self._max_total_bytes:
                handles = [each["handle"] for each in rows[at:]]
                session.run(f"DELETE FROM results WHERE {session.among('handle', 'handles')}", handles=handles)
                return
