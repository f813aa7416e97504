"""Large results in SQL."""

from __future__ import annotations

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Session

# Compressed: some 1 GB of JSON.
MAX_TOTAL_BYTES = 128 * 2**20
# Of the total, an owner has at most a quarter: that is the largest result that is kept.
OWNER_SHARE = 4
MAX_OWNER_ROWS = 1000
_DELETE_EXCESS = """
DELETE FROM results WHERE handle IN (
    SELECT handle FROM (
        SELECT handle,
            SUM(bytes) OVER (ORDER BY expires_at DESC, handle DESC) AS bytes_so_far,
            ROW_NUMBER() OVER (ORDER BY expires_at DESC, handle DESC) AS place
        FROM results WHERE {condition}
    ) AS newest_first
    WHERE bytes_so_far > :bytes OR place > :rows
)"""


class SqlResults:
    """The results of one database."""

    def __init__(
        self, database: Database, *, max_total_bytes: int = MAX_TOTAL_BYTES, max_owner_rows: int = MAX_OWNER_ROWS
    ) -> None:
        self._database = database
        self._max_total_bytes = max_total_bytes
        self._max_owner_rows = max_owner_rows

    async def save(self, handle: str, owner: str, content: bytes, *, now: float, expires_at: float) -> None:
        def work(session: Session) -> None:
            session.lock("results")
            session.run(
                "DELETE FROM results WHERE expires_at <= :now OR (handle = :handle AND owner = :owner)",
                now=now,
                handle=handle,
                owner=owner,
            )
            self._make_room(session, owner, len(content))
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

    def _make_room(self, session: Session, owner: str, needed: int) -> None:
        """Deletes the owner's own results first, so that nobody pushes out the results of all others."""
        (own,) = session.rows(
            "SELECT COUNT(*) AS count, COALESCE(SUM(bytes), 0) AS bytes FROM results WHERE owner = :owner", owner=owner
        )
        owner_bytes = self._max_total_bytes // OWNER_SHARE
        if own["count"] >= self._max_owner_rows or own["bytes"] + needed > owner_bytes:
            session.run(
                _DELETE_EXCESS.format(condition="owner = :owner"),
                owner=owner,
                bytes=owner_bytes - needed,
                rows=self._max_owner_rows - 1,
            )
        (all_rows,) = session.rows("SELECT COUNT(*) AS count, COALESCE(SUM(bytes), 0) AS bytes FROM results")
        if all_rows["bytes"] + needed > self._max_total_bytes:
            session.run(
                _DELETE_EXCESS.format(condition="1 = 1"),
                bytes=self._max_total_bytes - needed,
                rows=all_rows["count"],
            )
