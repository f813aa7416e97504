"""Times `/health` of a gateway while hostile programs run in it."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.gateway import start_gateway
from benchmarks.timing import Table, format_duration
from tests.contracts.sandbox import python_escapes, typescript_escapes
from toolscript.domain.programs import Language
from toolscript.services.code.run import MAX_SOURCE_BYTES

NOTE = (
    "The programs of the escape suites that would run, grow or print for ever, in `toolscript gateway start` as a "
    "process of its own, each with one second of processor time. Meanwhile one client asks `GET /health`, every 5 ms. "
    "*Above 100 ms* counts the programs, or groups, with a single response that took longer."
)
LIMITS = {"seconds": 4, "cpu_seconds": 1, "calls": 50}
COLUMNS = ("Programs", "Requests", "p50", "p99", "Slowest", "Slowest beside", "Above 100 ms")
MAX_SECONDS = 0.1
PAUSE_SECONDS = 0.005
TOGETHER = 8
GROUPS = 5


@dataclass(frozen=True, slots=True)
class _Program:
    name: str
    language: Language
    source: str


@dataclass(frozen=True, slots=True)
class _Responses:
    """The times of `/health` beside some programs."""

    name: str
    seconds: Sequence[float]


async def run(quick: bool) -> list[Table]:
    """The times alone, beside each program, and beside several at once."""
    programs = _list_programs()
    if quick:
        programs = programs[::10]
    with TemporaryDirectory() as folder:
        place = Path(folder)
        (place / ".toolscript.json").write_text('{"mcpServers": {}}', encoding="utf-8")
        with start_gateway(place, 0, settings={"TOOLSCRIPT_CODE": ",".join(Language)}) as gateway:
            for language in Language:
                _run_program(gateway.url, _Program("first", language, "return 1"))
            alone = [_Responses("nothing", _measure_beside(gateway.url, [], seconds=3.0))]
            single = {
                language: [
                    _Responses(each.name, _measure_beside(gateway.url, [each]))
                    for each in programs
                    if each.language is language
                ]
                for language in Language
            }
            groups = [Random(seed).sample(programs, min(TOGETHER, len(programs))) for seed in range(GROUPS)]
            together = [
                _Responses(f"group {number}", _measure_beside(gateway.url, group))
                for number, group in enumerate(groups, 1)
            ]
    rows = [
        _format_row("none", alone),
        *[_format_row(f"each of {len(found)} in {language}", found) for language, found in single.items()],
        _format_row(f"{GROUPS} groups of {TOGETHER} at once", together),
    ]
    return [Table("Health beside hostile programs", COLUMNS, rows, NOTE)]


def _list_programs() -> list[_Program]:
    # Types are not what is measured: eval hides the host's function from the check.
    python = {name: text.replace("call_host(", 'eval("call_host")(') for name, text in python_escapes.ENDLESS.items()}
    sources = {Language.PYTHON: python, Language.TYPESCRIPT: typescript_escapes.ENDLESS}
    return [
        _Program(name, language, text)
        for language, programs in sources.items()
        for name, text in programs.items()
        if len(text) <= MAX_SOURCE_BYTES
    ]


def _measure_beside(url: str, programs: Sequence[_Program], *, seconds: float = 0.0) -> list[float]:
    """The seconds of every response until the programs have ended, or that long."""
    times: list[float] = []
    has_ended = threading.Event()
    connection = http.client.HTTPConnection(url.removeprefix("http://"))

    def ask() -> None:
        while not has_ended.wait(PAUSE_SECONDS):
            began = time.perf_counter()
            connection.request("GET", "/health")
            connection.getresponse().read()
            times.append(time.perf_counter() - began)

    with ThreadPoolExecutor(TOGETHER + 1) as threads:
        asking = threads.submit(ask)
        running = [threads.submit(_run_program, url, program) for program in programs]
        try:
            time.sleep(seconds)
            for each in running:
                each.result()
        finally:
            has_ended.set()
        asking.result()
    connection.close()
    return times


def _run_program(url: str, program: _Program) -> None:
    body = {"code": program.source, "language": program.language.value, "limits": LIMITS}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/v1/run", json.dumps(body).encode(), headers)
    urllib.request.urlopen(request).read()


def _format_row(name: str, found: Sequence[_Responses]) -> list[str]:
    times = [seconds for each in found for seconds in each.seconds]
    slowest = max(found, key=lambda each: max(each.seconds, default=0.0))
    return [
        name,
        f"{len(times):,}",
        format_duration(float(np.percentile(times, 50))),
        format_duration(float(np.percentile(times, 99))),
        format_duration(max(times)),
        slowest.name,
        str(sum(max(each.seconds, default=0.0) > MAX_SECONDS for each in found)),
    ]
