"""The audit in SQL: a SQLite file of its own, so that it never waits for the catalogue, or tables in PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TypeVar

from toolscript.adapters.sql.database import AUDIT, Database
from toolscript.adapters.sql.session import Row, Session
from toolscript.domain.audit import (
    ANY_ERROR,
    MAX_ID,
    OK,
    AuditEvent,
    AuditKind,
    AuditPage,
    AuditQuery,
    CallTime,
    first_id,
)
from toolscript.domain.limits import current_limits

T = TypeVar("T")

_KINDS = (AuditKind.CALLS, AuditKind.SEARCHES, AuditKind.REFUSALS, AuditKind.SERVERS)
_COLUMNS = "id, kind, tool, server, caller, profile, surface, outcome, ms, bytes, hits, request_id, details, called_by"
_INSERT = (
    f"INSERT INTO audit_events ({_COLUMNS}) VALUES ({', '.join(f':{each}' for each in _COLUMNS.split(', '))}) "
    "ON CONFLICT (id) DO NOTHING"
)
# Of the events that an index finds, so many are compared with the other conditions: 5000 take some 10 ms.
WINDOW = 5000
DAY_SECONDS = 86_400.0
# Old events are deleted in transactions of 1000, which take some 10 ms, so that none waits long.
DELETED_AT_ONCE, MAX_DELETIONS = 1000, 5
# PostgreSQL's files do not shrink: the size is estimated from the number of rows.
ROW_BYTES = 500
_SQLITE_BYTES = (
    "SELECT (p.page_count - f.freelist_count) * s.page_size AS bytes "
    "FROM pragma_page_count() AS p, pragma_freelist_count() AS f, pragma_page_size() AS s"
)
_POSTGRES_BYTES = (
    f"SELECT COALESCE(SUM(n_live_tup), 0) * {ROW_BYTES} AS bytes FROM pg_stat_user_tables "
    "WHERE schemaname = 'mcp' AND relname = 'audit_events'"
)


class SqlAudit:
    """The events of one database. The first use opens the database: the thread that writes, or a query."""

    def __init__(
        self, url: str, *, max_days: float = 0, max_bytes: int = 0, clock: Callable[[], float] = time.time
    ) -> None:
        """Older events are deleted, and the oldest when all take more space; 0 is no limit."""
        self._url = url
        self._max_days, self._max_bytes = max_days, max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._opened: Database | None = None
        self._checked_at = float("-inf")

    def add(self, events: Sequence[AuditEvent]) -> None:
        rows = [asdict(event) | {"kind": _KINDS.index(event.kind)} for event in events]
        self._open().write_and_wait(lambda session: session.run_many(_INSERT, rows))
        if time.monotonic() - self._checked_at >= current_limits().audit_check:
            self._checked_at = time.monotonic()
            self._delete_old()

    async def list_events(self, query: AuditQuery) -> AuditPage:
        return await self._read(lambda session: _select(session, query))

    async def list_times(self, query: AuditQuery, *, by_server: bool) -> Sequence[CallTime]:
        return await self._read(lambda session: _select_times(session, query, by_server=by_server))

    async def close(self) -> None:
        if self._opened:
            await self._opened.close()

    async def _read(self, work: Callable[[Session], T]) -> T:
        def plan_and_work(session: Session) -> T:
            if _is_postgres(session):
                # A plan for any value reads the whole table for a caller with few events, because others have many.
                session.run("SET LOCAL plan_cache_mode = force_custom_plan")
            return work(session)

        database = await asyncio.to_thread(self._open)
        return await database.read(plan_and_work)

    def _open(self) -> Database:
        with self._lock:
            if self._opened is None:
                self._opened = Database(self._url, tables=AUDIT)
            return self._opened

    def _delete_old(self) -> None:
        database = self._open()
        for _ in range(MAX_DELETIONS):
            if database.write_and_wait(self._delete_some) < DELETED_AT_ONCE:
                return

    def _delete_some(self, session: Session) -> int:
        """Deletes the oldest events beyond the limits; returns their number."""
        condition, limits = "FALSE", {}
        if self._max_days:
            condition, limits = "id < :first", {"first": first_id(self._clock() - self._max_days * DAY_SECONDS)}
        if self._max_bytes and self._measure(session) > self._max_bytes:
            condition, limits = "TRUE", {}
        return session.run(
            "DELETE FROM audit_events WHERE id IN "
            f"(SELECT id FROM audit_events WHERE {condition} ORDER BY id LIMIT {DELETED_AT_ONCE})",
            **limits,
        )

    def _measure(self, session: Session) -> int:
        (row,) = session.rows(_POSTGRES_BYTES if _is_postgres(session) else _SQLITE_BYTES)
        return int(row["bytes"])


def _is_postgres(session: Session) -> bool:
    return session.dialect.notify is not None


def _select_times(session: Session, query: AuditQuery, *, by_server: bool) -> Sequence[CallTime]:
    found, compared, values = _build_conditions(query)
    rows = session.rows(
        f"SELECT {'server' if by_server else 'tool'} AS name, ms, outcome FROM (SELECT * FROM audit_events "
        f"WHERE {' AND '.join(found)} ORDER BY id DESC LIMIT :count) AS looked_at "
        f"WHERE {' AND '.join(compared) or 'TRUE'}",
        **values,
        count=query.limit,
    )
    return [CallTime(row["name"], row["ms"], row["outcome"]) for row in rows]


def _select(session: Session, query: AuditQuery) -> AuditPage:
    """A page of what one index finds, compared with the other conditions."""
    found, compared, values = _build_conditions(query)
    window = WINDOW if compared else query.limit
    source = f"SELECT {_COLUMNS} FROM audit_events WHERE {' AND '.join(found)} ORDER BY id DESC LIMIT :window"
    rows = session.rows(
        # In the order of the inner query. Ordered again, SQLite would read the whole window before it compares: 10 ms.
        f"SELECT * FROM ({source}) AS looked_at WHERE {' AND '.join(compared) or 'TRUE'} LIMIT :count",
        **values,
        window=window,
        count=query.limit,
    )
    events = [_load(row) for row in rows]
    if len(events) == query.limit:
        return AuditPage(events, events[-1].id)
    last = session.rows(
        f"SELECT id FROM audit_events WHERE {' AND '.join(found)} ORDER BY id DESC LIMIT 1 OFFSET :skipped",
        **values,
        skipped=window - 1,
    )
    return AuditPage(events, last[0]["id"] if last else None)


def _build_conditions(query: AuditQuery) -> tuple[list[str], list[str], dict[str, object]]:
    """The conditions that an index finds, in the order of ids, the conditions to compare with, and the values of
    both."""
    values: dict[str, object] = {
        "kind": _KINDS.index(query.kind),
        "since": 0 if query.since is None else first_id(query.since),
        "before": min(
            MAX_ID if query.before is None else query.before, MAX_ID if query.until is None else first_id(query.until)
        ),
    }
    found, compared = ["id < :before", "id >= :since"], ["kind = :kind"]
    given = {name: value for name in ("tool", "caller", "server") if (value := getattr(query, name)) is not None}
    values |= given
    equal = [f"{name} = :{name}" for name in given]
    if query.outcome == OK:
        compared.append("outcome = 'ok'")
    elif query.outcome is not None:
        found += ["kind = :kind", "outcome <> 'ok'"]
        compared = []
        if query.outcome != ANY_ERROR:
            compared.append("outcome = :outcome")
            values["outcome"] = query.outcome
    if query.kind is AuditKind.SERVERS:  # they have an index of their own, which needs the number itself
        found.append(f"kind = {_KINDS.index(query.kind)}")
        compared = [each for each in compared if each != "kind = :kind"]
    elif equal and (query.outcome is None or query.outcome == OK):
        found += ["kind = :kind", equal.pop(0)]
        compared.remove("kind = :kind")
    return found, compared + equal, values


def _load(row: Row) -> AuditEvent:
    return AuditEvent(**dict(row) | {"kind": _KINDS[row["kind"]]})
