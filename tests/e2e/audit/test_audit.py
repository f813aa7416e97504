"""The audit when things go wrong: a process that is killed, a disk that is full, a store that is slow. Calls go on, and
what is lost is counted."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_full_disk import IN_NAMESPACE, MOUNT, fill_disk
from tests.fixtures.serving import serve
from toolscript.adapters.observability.audit_sink import AuditSink
from toolscript.adapters.observability.event_sinks import BATCH
from toolscript.adapters.sql.audit import SqlAudit
from toolscript.app.app import open_app
from toolscript.domain.audit import AuditEvent, AuditKind, AuditPage, AuditQuery, CallTime
from toolscript.domain.catalog import Item
from toolscript.domain.errors import Unavailable
from toolscript.domain.requests import RequestContext
from toolscript.domain.search import SearchReport
from toolscript.services.support.search_events import record_search
from toolscript.settings import load_settings

pytestmark = pytest.mark.req("G-16")

ROOT = Path(__file__).parents[3]
DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.e2e.audit.test_audit import {function}

{function}(Path(sys.argv[1]))
"""
TIMEOUT_SECONDS = 60.0


def record_call(record: Callable[[dict[str, Any]], None], number: int) -> None:
    event = {"tool": f"git__log{number}", "server": "git", "arguments": "", "arguments_checked": True, "bytes": 1}
    with record_search(record, "tools.call", SearchReport(), lambda: event, RequestContext()):  # type: ignore[arg-type]
        pass


def record_forever(folder: Path) -> None:
    sink = AuditSink(SqlAudit(f"sqlite:///{folder / 'audit.db'}"))
    number = 0
    while True:
        record_call(sink.record, number)
        sys.stdout.write(f"{number} {time.time()}\n")
        sys.stdout.flush()
        number += 1
        time.sleep(0.001)  # about as many as a busy gateway has


async def list_numbers(folder: Path) -> list[int]:
    store = SqlAudit(f"sqlite:///{folder / 'audit.db'}")
    numbers: list[int] = []
    before = None
    while True:
        page = await store.list_events(AuditQuery(limit=1000, before=before))
        numbers += [int(event.tool.removeprefix("git__log")) for event in page.events]
        before = page.next_before
        if before is None:
            break
    await store.close()
    return numbers[::-1]


def kill_while_recording(folder: Path, lines: int) -> tuple[list[int], list[tuple[int, float]]]:
    """The numbers that a process has stored when it is killed, and those that it recorded, with their age."""
    command = [sys.executable, "-c", DRIVER.format(function="record_forever"), str(folder), str(ROOT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        output = "".join(process.stdout.readline() for _ in range(lines))
        killed_at = time.time()
        process.send_signal(signal.SIGKILL)
        output += process.stdout.read()
    words = [line.split() for line in output.splitlines()]
    recorded = [(int(pair[0]), killed_at - float(pair[1])) for pair in words[:-1]]
    return asyncio.run(list_numbers(folder)), recorded


@pytest.mark.extended
def test_a_killed_process_loses_no_more_than_its_last_second(tmp_path: Path) -> None:
    lost_ages = []
    for lines in (500, 1500, 2000):
        folder = tmp_path / str(lines)
        folder.mkdir()
        stored, recorded = kill_while_recording(folder, lines)
        assert stored == list(range(len(stored)))
        lost_ages.append(max((age for number, age in recorded if number >= len(stored)), default=0.0))
    # A busy machine may stop the thread that writes for some seconds, but not in every round.
    assert min(lost_ages) < 1, lost_ages
    assert max(lost_ages) < 11, lost_ages


def use_full_disk(folder: Path) -> None:
    asyncio.run(_use_full_disk(folder))


async def _use_full_disk(folder: Path) -> None:
    """Prints what calls answer and what the gateway says of its audit, before, while and after the disk is full."""
    settings = load_settings(data_dir=folder / "data", search_model="hashed-64")
    seen: dict[str, Any] = {}
    async with open_app(settings, serving=True) as app:
        await app.catalogue.sync.run([Item("git", "log", "Shows commits.")])
        sink = app.observability.audit_sink
        assert sink
        async with serve(app) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:

            async def use(moment: str, searches: int) -> None:
                statuses = {(await client.get("/search?q=commits&threshold=0")).status_code for _ in range(searches)}
                seen[moment] = {"statuses": sorted(statuses)}

            async def look(moment: str) -> None:
                lost = next(
                    line.split()[1]
                    for line in (await client.get("/metrics")).text.splitlines()
                    if line.startswith("toolscript_audit_lost_total ")
                )
                seen[moment] |= {"health": (await client.get("/health")).json(), "lost": float(lost)}

            async def wait_for(holds: Callable[[], bool]) -> None:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    while not holds():  # noqa: ASYNC110
                        await asyncio.sleep(0.01)

            sink._waiting = type(sink._waiting)(maxlen=200)  # instead of 10 000 searches
            await use("before", 20)
            await wait_for(lambda: not sink._waiting)
            await look("before")
            fill_disk(folder / "ballast", 0)
            await use("full", 450)
            await wait_for(lambda: sink.dropped > 0)
            await look("full")
            (folder / "ballast").unlink()
            await wait_for(lambda: sink.reason is None and not sink._waiting)
            await use("after", 1)
            await wait_for(lambda: not sink._waiting)
            await look("after")
    async with open_app(settings) as app:
        events = (await app.tools.call_log.list_events(AuditQuery(AuditKind.SEARCHES, limit=1000))).events
        seen["kept"] = len(events)
    sys.stdout.write(json.dumps(seen))


@pytest.mark.extended
def test_on_a_full_disk_calls_go_on_and_lost_events_are_counted(tmp_path: Path) -> None:
    command = ["unshare", "-rm", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*command, MOUNT, tmp_path], check=False).returncode:
        pytest.skip("a disk of a few megabytes needs Linux and the right to mount one: unshare -rm")
    done = subprocess.run(
        [*command, IN_NAMESPACE, "sh", tmp_path, sys.executable, DRIVER.format(function="use_full_disk"), ROOT],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    seen = json.loads(done.stdout)
    assert {moment: seen[moment]["statuses"] for moment in ("before", "full", "after")} == {
        "before": [200],
        "full": [200],
        "after": [200],
    }
    assert ("audit" in seen["before"]["health"], seen["before"]["lost"]) == (False, 0)
    lost = seen["full"]["lost"]
    assert lost > 0
    assert seen["full"]["health"]["audit"] == {"lost": lost, "failing": True}
    assert seen["after"]["health"]["audit"] == {"lost": seen["after"]["lost"], "failing": False}
    assert seen["kept"] + seen["after"]["lost"] == 20 + 450 + 1


class StuckStore:
    """Takes no event until it may."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.written: list[AuditEvent] = []

    def add(self, events: Sequence[AuditEvent]) -> None:
        if not self.may_go_on.is_set():
            raise Unavailable("the disk is full")
        self.written += events

    async def list_events(self, _: AuditQuery) -> AuditPage:
        return AuditPage(self.written[::-1])

    async def list_times(self, _: AuditQuery, *, by_server: bool) -> Sequence[CallTime]:
        return ()

    async def close(self) -> None: ...


async def test_while_the_store_fails_the_newest_events_wait_and_recording_takes_microseconds() -> None:
    store = StuckStore()
    sink = AuditSink(store, queue_size=500, retry_seconds=0.01)
    started = time.process_time()
    for number in range(5000):
        record_call(sink.record, number)
    per_event = (time.process_time() - started) / 5000
    assert per_event < 0.001
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while sink.reason is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    lost = sink.state.lost
    assert 5000 - 500 - BATCH <= lost <= 4500
    store.may_go_on.set()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(store.written) + sink.dropped < 5000 or sink.reason:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await sink.close()
    assert sink.state.reason is None
    assert [event.tool for event in store.written[-500:]] == [f"git__log{n}" for n in range(4500, 5000)]
