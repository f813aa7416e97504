"""Times queries of the audit and writing it, with ten million events."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.hierarchical import run_postgres
from benchmarks.timing import Sample, Table, format_duration
from toolscript.adapters.observability.audit_sink import AuditSink
from toolscript.adapters.sql.audit import SqlAudit
from toolscript.domain.audit import UNIQUE_BITS, AuditEvent, AuditKind, AuditQuery, first_id
from toolscript.domain.requests import RequestContext
from toolscript.domain.search import SearchReport
from toolscript.services.support.call_log import CallLog
from toolscript.services.support.search_events import describe_arguments, measure_json, record_search

EVENTS = 10_000_000
ROUNDS = 15
DAYS = 15.0
BATCH = 100
# 1 000 tools of 50 servers, 20 callers, one error in 40, one search in 10; one caller with a single call.
COLUMNS = (
    "id, kind, tool, server, caller, profile, surface, outcome, ms, bytes, hits, request_id, details",
    "(({first} + i * {step}) << {bits}) + i % 1000000, CASE WHEN i % 10 = 9 THEN 1 ELSE 0 END, "
    "'server' || (i * 7919 % 1000 % 50) || '__tool' || (i * 7919 % 1000), 'server' || (i * 7919 % 1000 % 50), "
    "CASE WHEN i = {count} / 2 THEN 'rare' ELSE 'caller' || (i * 31 % 20) END, '', 'http', "
    "CASE WHEN i % 40 = 0 THEN CASE WHEN i % 10000 = 0 THEN 'RATE_LIMITED' ELSE 'TIMED_OUT' END ELSE 'ok' END, "
    "i % 300 + 0.5, i % 5000, i % 10, 'request' || i, 'sha256:' || (i * 104729)",
)
NOTE = (
    "A page of 50 by every filter, at 15 times within 15 days; 1 000 tools of 50 servers, 20 callers, one error in 40. "
    "*Nothing in common* has filters that match many thousands of events each and none together: one page looks at "
    "5 000 of them. Summary: the newest 10 000 events by tool. Writing: a batch of 100 with all indexes. The last row "
    "is what a call itself does for its event, on the event loop, with arguments of 10 fields and a result of 10 kB."
)


async def run(quick: bool) -> list[Table]:
    """SQLite in a file, and PostgreSQL."""
    count = 50_000 if quick else EVENTS
    start = time.time() - DAYS * 86_400
    with TemporaryDirectory() as folder:
        place = Path(folder)
        file = place / "audit.db"
        embedded = SqlAudit(f"sqlite:///{file}", max_days=30, max_bytes=2**40)
        await embedded.list_events(AuditQuery())
        fill_sqlite(file, count, start)
        ours = await _measure(embedded, start)
        await embedded.close()
        size = file.stat().st_size / count
        with run_postgres(place / "postgres") as url:
            shared = SqlAudit(url, max_days=30, max_bytes=2**40)
            await shared.list_events(AuditQuery())
            fill_postgres(url, count, start)
            theirs = await _measure(shared, start)
            await shared.close()
    rows = [
        (what, *(format_duration(seconds) for each in (sample, theirs[what]) for seconds in (each.p50, each.p95)))
        for what, sample in ours.items()
    ]
    own = _measure_recording()
    rows.append(("recording a call", format_duration(own.p50), format_duration(own.p95), "", ""))
    title = f"Audit, {count:,} events ({size:.0f} bytes each in SQLite)"
    return [Table(title, ("What", "SQLite p50", "p95", "PostgreSQL p50", "p95"), rows, NOTE)]


def fill_sqlite(file: Path, count: int, start: float) -> None:
    """Adds events up to now, the indexes afterwards."""
    columns, values = COLUMNS[0], _format_values(count, start)
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
        with _without_indexes(found.fetchall(), connection.execute, "{}"):
            connection.execute(
                f"WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
                f"INSERT INTO audit_events ({columns}) SELECT {values} FROM n"
            )
        connection.commit()


def fill_postgres(url: str, count: int, start: float) -> None:
    """The same in PostgreSQL."""
    import psycopg

    columns, values = COLUMNS[0], _format_values(count, start)
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'mcp' AND tablename = 'audit_events' "
            "AND indexname NOT LIKE '%pkey'"
        )
        with _without_indexes(found.fetchall(), lambda sql: connection.execute(sql.encode()), "mcp.{}"):
            connection.execute(
                f"INSERT INTO mcp.audit_events ({columns}) "
                f"SELECT {values} FROM generate_series(1::bigint, {count}) AS n (i)".encode()
            )
        connection.execute("VACUUM ANALYZE mcp.audit_events")


@contextmanager
def _without_indexes(found: list[tuple[str, str]], execute: Callable[[str], object], place: str) -> Iterator[None]:
    for name, _ in found:
        execute(f"DROP INDEX {place.format(name)}")
    yield
    for _, sql in found:
        execute(sql)


def _format_values(count: int, start: float) -> str:
    step = max(1, int(DAYS * 86_400_000 / count))
    return COLUMNS[1].format(first=int(start * 1000), step=step, bits=UNIQUE_BITS, count=count)


async def _measure(store: SqlAudit, start: float) -> dict[str, Sample]:
    middle = start + DAYS / 2 * 86_400
    queries = {
        "newest": AuditQuery(),
        "searches": AuditQuery(AuditKind.SEARCHES),
        "a tool": AuditQuery(tool="server7__tool7"),
        "a server": AuditQuery(server="server7"),
        "a caller": AuditQuery(caller="caller3"),
        "errors": AuditQuery(outcome="error"),
        "a rare error": AuditQuery(outcome="RATE_LIMITED"),
        "a tool that does not exist": AuditQuery(tool="none__such"),
        "a caller with a single call": AuditQuery(caller="rare"),
        "nothing in common: a server and errors": AuditQuery(server="server7", outcome="error"),
        "nothing in common: a server and a caller": AuditQuery(server="server7", caller="caller5"),
    }
    samples = {}
    for what, query in queries.items():
        seconds = []
        for number in range(ROUNDS):
            until = start + DAYS * 86_400 * (number + 1) / ROUNDS
            request = AuditQuery(query.kind, query.tool, query.server, query.caller, query.outcome, until=until)
            began = time.perf_counter()
            await store.list_events(request)
            seconds.append(time.perf_counter() - began)
        samples[what] = Sample(seconds)
    seconds = []
    for number in range(3):
        began = time.perf_counter()
        await CallLog(store).summarize(AuditQuery(until=middle + number * 3600))
        seconds.append(time.perf_counter() - began)
    samples["summary of 10 000 events"] = Sample(seconds)
    samples[f"writing {BATCH} events"] = Sample([_write(store, number) for number in range(ROUNDS)])
    return samples


def _write(store: SqlAudit, number: int) -> float:
    now = time.time()
    events = [
        AuditEvent(
            first_id(now + 1) + number * BATCH + each,
            AuditKind.CALLS,
            f"server{each % 50}__tool{each}",
            f"server{each % 50}",
            f"caller{each % 20}",
            "",
            "http",
            "ok",
            1.0,
            1,
            0,
            "r",
            "sha256:0",
        )
        for each in range(BATCH)
    ]
    began = time.perf_counter()
    store.add(events)
    return time.perf_counter() - began


class _NoStore:
    """Takes no time."""

    def add(self, events: object) -> None: ...


def _measure_recording() -> Sample:
    sink = AuditSink(_NoStore())  # type: ignore[arg-type]
    arguments = {f"field{n}": f"a value of some words, number {n}" for n in range(10)}
    result = {"content": [{"type": "text", "text": "x" * 10_000}]}
    seconds = []
    for _ in range(500):
        began = time.perf_counter()
        event: dict[str, object] = {"tool": "git__log", "server": "git", "arguments_checked": True}
        with record_search(sink.record, "tools.call", SearchReport(), event.copy, RequestContext()):
            event |= {"arguments": describe_arguments(arguments, as_digest=True), "bytes": measure_json(result)}
        seconds.append(time.perf_counter() - began)
    return Sample(seconds)
