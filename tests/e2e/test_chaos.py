"""Many concurrent calls to many servers that are killed at random: whoever answers is the server that was called, with
the answer to that call, and nothing is left behind.

It runs for 8 seconds; `TOOLSCRIPT_TEST_CHAOS_SECONDS=180` makes it three minutes, and `-s` prints the figures.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.fixtures.serving import build_calls
from tests.servers import make_scripted_server
from toolscript.adapters.mcp.client import McpServers
from toolscript.app.app import App, open_app
from toolscript.domain.errors import TimedOut, Unavailable, UpstreamFailed
from toolscript.domain.limits import Limits
from toolscript.domain.servers import ServerSpec, ServerStart
from toolscript.services.servers.gateway import Gateway
from toolscript.services.tools.call import CallTool
from toolscript.settings import load_settings

SECONDS = float(os.environ.get("TOOLSCRIPT_TEST_CHAOS_SECONDS", "8"))
SERVERS, CALLERS = 20, 64
SEED = 20
TIMEOUTS = Limits(connect=30, call=30, reconnect=30, heartbeat=1, first_pause=0.05, max_pause=0.5)
MIN_ANSWERS = 400
# A leak has some for each of more than a hundred starts.
SPARE_DESCRIPTORS = 6


def make_server(number: int) -> ServerSpec:
    """Of four servers one is eager, one is lazy, and two stop after moments without a call."""
    name = f"s{number}"
    spec = make_scripted_server(name, name=name, signed=True, tools=["echo", "die"])
    start = ServerStart.EAGER if number % 4 in {0, 1} else ServerStart.LAZY
    return replace(spec, start=start, idle_minutes=0.1 / 60 if number % 2 else 0)


def count_descriptors() -> int:
    """Pipes and sockets: the store opens files for each of its threads."""
    process = psutil.Process()
    return int(process.num_fds()) - len(process.open_files())


def find_servers() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any("scripted.py" in word for word in process.cmdline()):
                found.append(process)
    return found


class Chaos:
    """Calls servers and kills them until the time is over."""

    def __init__(self, calls: CallTool) -> None:
        self._calls = calls
        self._random = random.Random(SEED)
        self._end = time.monotonic() + SECONDS
        self.outcomes: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.kills = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._kill())
            for caller in range(CALLERS):
                tasks.create_task(self._call(caller))

    def _is_over(self) -> bool:
        """On a machine that stalls, it goes on until every server was called often enough."""
        return time.monotonic() >= self._end and self.outcomes["answered"] >= MIN_ANSWERS

    async def _call(self, caller: int) -> None:
        number = 0
        while not self._is_over():
            number += 1
            # Some servers are hardly ever called, so that they fall asleep in between.
            server = f"s{int(SERVERS * self._random.random() ** 1.5)}"
            is_deadly = self._random.random() < 0.01
            nonce = f"{caller}-{number}"
            try:
                if is_deadly:
                    await self._calls.call(f"{server}__die", {})
                answer = await self._calls.call(f"{server}__echo", {"text": nonce})
            except (UpstreamFailed, Unavailable, TimedOut) as error:
                self.outcomes[type(error).__name__] += 1
            else:
                assert answer.structured == {"text": nonce, "server": server}
                self.outcomes["answered"] += 1
                self.answered[server] += 1

    async def _kill(self) -> None:
        while not self._is_over():
            await asyncio.sleep(0.1)
            if running := await asyncio.to_thread(find_servers):
                with suppress(psutil.Error):
                    self._random.choice(running).kill()
                    self.kills += 1


async def connect(app: App) -> tuple[Gateway, CallTool]:
    gateway = Gateway(McpServers(), app.catalogue.sync, TIMEOUTS)
    await gateway.apply([make_server(number) for number in range(SERVERS)])
    await gateway.settle(60)
    assert {status.reason for status in gateway.statuses} == {None}
    return gateway, build_calls(app, gateway)


@pytest.mark.extended
@pytest.mark.req("G-02", "G-05")
async def test_calls_are_answered_by_their_server_while_servers_are_killed(tmp_path: Path) -> None:
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64")
    async with open_app(settings) as app:
        gateway, calls = await connect(app)  # whatever is opened once is open before descriptors are counted
        await asyncio.gather(*(calls.call(f"s{n}__echo", {"text": "x"}) for n in range(SERVERS)))
        await gateway.close()
        descriptors, tasks = count_descriptors(), len(asyncio.all_tasks())
        gateway, calls = await connect(app)
        chaos = Chaos(calls)
        await chaos.run()
        starts = sum(status.attempts for status in gateway.statuses)
        await gateway.close()
        sys.stdout.write(
            f"\n{SECONDS:g} s: {dict(chaos.outcomes)}, {chaos.kills} killed, {starts} starts, descriptors "
            f"{descriptors} -> {count_descriptors()}, tasks {tasks} -> {len(asyncio.all_tasks())}\n"
        )
        assert find_servers() == []
        assert count_descriptors() <= descriptors + SPARE_DESCRIPTORS
        assert len(asyncio.all_tasks()) <= tasks
    assert chaos.answered.keys() == {f"s{number}" for number in range(SERVERS)}
    assert chaos.kills > 0
    assert chaos.outcomes["answered"] > 0.5 * chaos.outcomes.total()
