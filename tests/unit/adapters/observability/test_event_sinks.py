"""The query log: every event arrives, and a failing target affects no request."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.http_services import HttpDouble
from tests.fixtures.limits import set_limits
from toolscript.adapters.observability.event_sinks import Sinks, open_http_sink, open_jsonl_sink
from toolscript.domain.errors import Invalid
from toolscript.ports.observability import EventSink

pytestmark = pytest.mark.req("D-12", "X-02")


class Collector(HttpDouble):
    """Accepts events unless `statuses` says otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[dict[str, Any]]] = []
        self.statuses: list[int] = []
        self.arrived = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.let_go.set()

    def __exit__(self, *raised: object) -> None:
        self.let_go.set()
        super().__exit__(*raised)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for batch in self.batches for event in batch]

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.arrived.release()
        self.let_go.wait(30)
        status = self.statuses.pop(0) if self.statuses else 204
        if status == 204:
            self.batches.append(json.loads(body))
        try:
            self.send(request, status, b"", {"Location": "/elsewhere"} if status == 302 else None)
        except OSError:
            request.close_connection = True


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as double:
        yield double


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Unreadable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no")

    def __len__(self) -> int:
        return 1


ROUND: dict[str, Any] = {"type": "round"}
ROUND["itself"] = ROUND
UNENCODABLE: list[Mapping[Any, Any]] = [
    *({"type": "strange", "value": value} for value in [Unshowable(), math.nan, math.inf, 10**5000]),
    {"type": "strange", (1, 2): "key"},
    ROUND,
]


@pytest.fixture(params=["file", "http", "both"])
async def sink(
    request: pytest.FixtureRequest, tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EventSink]:
    set_limits(monkeypatch, shutdown_events=60.0)
    file, http = open_jsonl_sink(tmp_path / "events.jsonl"), open_http_sink(collector.root, interval=0.05)
    made: dict[str, EventSink] = {"file": file, "http": http, "both": Sinks([file, http])}
    yield made[request.param]
    await file.close()
    await http.close()


def read_events(tmp_path: Path, collector: Collector) -> list[list[dict[str, Any]]]:
    file = tmp_path / "events.jsonl"
    return [events for events in (lines(file) if file.exists() else [], collector.events) if events]


async def test_every_event_arrives_once_and_in_order(sink: EventSink, tmp_path: Path, collector: Collector) -> None:
    for number in range(250):
        sink.record({"type": "search", "number": number, "query": "größer 日本語\n"})
    await sink.close()
    for events in read_events(tmp_path, collector):
        assert [event["number"] for event in events] == list(range(250))
        assert events[0]["query"] == "größer 日本語\n"
    assert getattr(sink, "dropped") == 0  # noqa: B009


async def test_values_of_types_that_json_does_not_have_become_strings(
    sink: EventSink, tmp_path: Path, collector: Collector
) -> None:
    for value in [datetime(2026, 1, 1, tzinfo=UTC), b"bytes", "\ud800 \x00 größer"]:
        sink.record({"type": "strange", "value": value})
    await sink.close()
    for events in read_events(tmp_path, collector):
        assert [event["value"] for event in events] == ["2026-01-01 00:00:00+00:00", "b'bytes'", "? \x00 größer"]


async def test_an_event_that_json_cannot_represent_is_dropped_and_the_others_arrive(
    sink: EventSink, tmp_path: Path, collector: Collector
) -> None:
    for event in (*UNENCODABLE, {"type": "fine"}):
        sink.record(event)
    await sink.close()
    assert read_events(tmp_path, collector)
    assert all(events == [{"type": "fine"}] for events in read_events(tmp_path, collector))
    assert getattr(sink, "dropped") in {len(UNENCODABLE), 2 * len(UNENCODABLE)}  # noqa: B009


async def test_an_event_that_cannot_be_read_is_dropped_without_an_error(sink: EventSink) -> None:
    sink.record(Unreadable())
    sink.record({"type": "fine"})
    await sink.close()
    assert getattr(sink, "dropped") in {1, 2}  # noqa: B009


async def test_an_event_after_closing_is_dropped_without_an_error(sink: EventSink) -> None:
    await sink.close()
    sink.record({"type": "late"})
    await sink.close()
    assert getattr(sink, "dropped") in {1, 2}  # noqa: B009


async def test_threads_can_record_concurrently(sink: EventSink, tmp_path: Path, collector: Collector) -> None:
    def talk(speaker: int) -> None:
        for number in range(200):
            sink.record({"speaker": speaker, "number": number})

    await asyncio.gather(*(asyncio.to_thread(talk, speaker) for speaker in range(4)))
    await sink.close()
    for events in read_events(tmp_path, collector):
        for speaker in range(4):
            assert [e["number"] for e in events if e["speaker"] == speaker] == list(range(200))


async def test_a_file_is_appended_to_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "events.jsonl"
    for number in range(2):
        sink = open_jsonl_sink(path)
        sink.record({"number": number})
        await sink.close()
    assert [event["number"] for event in lines(path)] == [0, 1]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_file_that_was_moved_away_is_created_again(tmp_path: Path) -> None:
    path, moved = tmp_path / "events.jsonl", tmp_path / "events.1.jsonl"
    sink = open_jsonl_sink(path)
    sink.record({"number": 1})
    await _until(path.exists)
    path.rename(moved)
    sink.record({"number": 2})
    await sink.close()
    assert (lines(moved), lines(path)) == ([{"number": 1}], [{"number": 2}])


async def test_a_write_error_is_logged_once_and_later_events_are_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.jsonl"
    path.mkdir()
    sink = open_jsonl_sink(path)
    for lost in range(1, 4):
        sink.record({"lost": lost})
        await _until(lambda lost=lost: sink.dropped == lost)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == ["events_lost"]
    path.rmdir()
    sink.record({"kept": True})
    await sink.close()
    assert lines(path) == [{"kept": True}]
    assert sink.dropped == 3


async def test_a_partial_line_does_not_damage_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    sink = open_jsonl_sink(path)
    real_write = os.write

    def full(file: int, data: bytes) -> int:
        if b"torn" in data:
            real_write(file, data[:5])
            raise OSError(28, "No space left on device")
        return real_write(file, data)

    monkeypatch.setattr(os, "write", full)
    sink.record({"torn": 1})
    await _until(lambda: sink.dropped == 1)
    sink.record({"whole": 2})
    await sink.close()
    torn, whole = path.read_text().splitlines()
    assert (torn, json.loads(whole)) == ('{"tor', {"whole": 2})


async def test_a_batch_has_up_to_a_hundred_events(collector: Collector) -> None:
    sink = open_http_sink(collector.root, interval=60)
    for number in range(230):
        sink.record({"number": number})
    await sink.close()
    assert [len(batch) for batch in collector.batches] == [100, 100, 30]


async def test_a_full_batch_is_sent_at_once_and_a_partial_one_after_the_interval(collector: Collector) -> None:
    sink = open_http_sink(collector.root, interval=60)
    for number in range(101):
        sink.record({"number": number})
    await _until(lambda: len(collector.events) == 100)
    await sink.close()
    prompt = open_http_sink(collector.root, interval=0.01)
    prompt.record({"number": 101})
    await _until(lambda: len(collector.events) == 102)
    await prompt.close()


async def test_a_failed_batch_is_retried_once(collector: Collector) -> None:
    collector.statuses = [500]
    sink = open_http_sink(collector.root, interval=0.01)
    sink.record({"number": 1})
    await sink.close()
    assert (collector.events, sink.dropped) == ([{"number": 1}], 0)


@pytest.mark.slow
@pytest.mark.parametrize(("status", "tries"), [(500, 2), (503, 2), (429, 2), (400, 1), (404, 1), (302, 1)])
async def test_refused_events_are_dropped_and_counted(
    collector: Collector, status: int, tries: int, caplog: pytest.LogCaptureFixture
) -> None:
    collector.statuses = [status] * 4
    sink = open_http_sink(collector.root.replace("://", "://user:secret@") + "/in?token=secret", interval=0.01)
    sink.record({"number": 1})
    await _until(lambda: sink.dropped == 1)
    assert len(collector.requests) == tries
    await sink.close()
    warnings = [(r.getMessage(), r.__dict__["reason"]) for r in caplog.records if r.name.startswith("toolscript")]
    assert warnings == [("events_lost", f"{collector.root}/in did not accept them: status {status}")]


@pytest.mark.slow
async def test_a_collector_that_is_down_delays_nothing(caplog: pytest.LogCaptureFixture) -> None:
    sink = open_http_sink("http://127.0.0.1:9/", interval=0.01)
    for number in range(5):
        sink.record({"number": number})
    await _until(lambda: sink.dropped == 5)
    started = time.monotonic()
    await sink.close()
    assert time.monotonic() - started < 60
    assert sum(record.getMessage() == "events_lost" for record in caplog.records) == 1


async def test_a_collector_that_hangs_fills_the_queue_and_the_first_events_are_dropped(collector: Collector) -> None:
    collector.let_go.clear()
    sink = open_http_sink(collector.root, queue_size=50, interval=0.0)
    sink.record({"number": -1})
    assert await asyncio.to_thread(collector.arrived.acquire, timeout=60)
    started = time.thread_time()
    for number in range(1000):
        sink.record({"number": number})
    assert (time.thread_time() - started) / 1000 < 0.001
    assert sink.dropped == 950
    collector.let_go.set()
    await sink.close()
    assert [event["number"] for event in collector.events] == [-1, *range(950, 1000)]


@pytest.mark.slow
async def test_closing_waits_only_for_a_while_for_a_collector_that_hangs(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, shutdown_events=0.2)
    collector.let_go.clear()
    sink = open_http_sink(collector.root, interval=0.0)
    sink.record({"number": 1})
    assert await asyncio.to_thread(collector.arrived.acquire, timeout=60)
    sink.record({"number": 2})
    started = time.monotonic()
    await sink.close()
    assert time.monotonic() - started < 60
    assert sink.dropped == 1


@pytest.mark.parametrize("url", ["", "nowhere", "ftp://there", "http://", "http://[::1"])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_EVENTS is not a valid URL"):
        open_http_sink(url)


async def test_a_sink_that_raises_does_not_affect_the_others(tmp_path: Path) -> None:
    class Broken:
        def record(self, event: Mapping[str, Any]) -> None:
            raise RuntimeError("no")

        async def close(self) -> None:
            raise RuntimeError("no")

    file = open_jsonl_sink(tmp_path / "events.jsonl")
    sinks = Sinks([Broken(), file])
    sinks.record({"type": "kept"})
    await sinks.close()
    assert lines(tmp_path / "events.jsonl") == [{"type": "kept"}]


async def test_an_event_is_always_one_line(tmp_path: Path) -> None:
    sink = open_jsonl_sink(tmp_path / "events.jsonl")
    sink.record({"a": "line\nbreak", "b": {"c": [1, None, True]}})
    await sink.close()
    assert (tmp_path / "events.jsonl").read_bytes() == b'{"a": "line\\nbreak", "b": {"c": [1, null, true]}}\n'


async def _until(holds: Any) -> None:
    """Waits for another thread."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  (what is waited for happens in another thread)
            await asyncio.sleep(0.005)
