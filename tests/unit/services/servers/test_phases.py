"""The phases of a connection: whatever happens in whatever order, it takes the ways that are drawn in `Phase`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.coroutines import put_clock_forward
from toolscript.domain.errors import LoginRequired, Unavailable
from toolscript.domain.limits import Limits
from toolscript.domain.servers import ServerListing, ServerSpec, ServerStart, ServerState, Transport
from toolscript.services.catalogue.indexing import SyncReport
from toolscript.services.servers.connection import ServerConnection
from toolscript.services.servers.phases import Phase

pytestmark = [pytest.mark.req("G-02", "G-03", "G-04"), pytest.mark.slow]

DRAWN = {
    Phase.CONNECTING: {Phase.LISTING, Phase.FAILED, Phase.ASLEEP},
    Phase.LISTING: {Phase.READY, Phase.LOST, Phase.UNUSED},
    Phase.READY: {Phase.LOST, Phase.UNUSED},
    Phase.LOST: {Phase.FAILED, Phase.CONNECTING},
    Phase.UNUSED: {Phase.ASLEEP, Phase.CONNECTING},
    Phase.FAILED: {Phase.CONNECTING, Phase.ASLEEP},
    Phase.ASLEEP: {Phase.CONNECTING},
    Phase.STOPPED: {Phase.CONNECTING},
}
SPECS = [
    ServerSpec("box", Transport.STDIO, command="box"),
    ServerSpec("box", Transport.STDIO, command="box", idle_minutes=1e-9),
    ServerSpec("box", Transport.STDIO, command="box", start=ServerStart.LAZY),
    ServerSpec("box", Transport.STDIO, command="box", start=ServerStart.LAZY, idle_minutes=1e-9),
]


class Connection(ServerConnection):
    """Notes the ways that it takes."""

    def _enter(self, phase: Phase, reason: str | None = None) -> None:
        if phase is not self._phase and phase is not Phase.STOPPED:
            assert phase in DRAWN[self._phase], f"{self._phase} to {phase} is not drawn"
        super()._enter(phase, reason)
        self.check()

    def check(self) -> None:
        assert (self._server is not None) == (self._phase in {Phase.LISTING, Phase.READY})
        assert self._server is None or not self._attempt.given_up.done()
        assert self.is_stopped == (self._phase is Phase.STOPPED)
        assert not (self.is_asleep and self._server)


class World:
    """A server that does as it is told, a connection to it, and those who use the connection."""

    def __init__(self, spec: ServerSpec, *, listed: bool) -> None:
        self.connects = self.lists = self.works = True
        self.needs_login = False
        self.answers = asyncio.Event()
        self.answers.set()
        self.faults: list[object] = []
        self.lost = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()
        self.released = asyncio.Event()
        self.tasks: set[asyncio.Task[object]] = set()
        asyncio.get_running_loop().set_exception_handler(lambda _, about: self.faults.append(about))
        servers: Any = SimpleNamespace(connect=self.connect)
        sync: Any = SimpleNamespace(run=self.sync, start_model_work=lambda: None)
        limits, slots = Limits(first_pause=1.0, max_pause=2.0, heartbeat=5.0, debounce=0.0), asyncio.Semaphore(1)
        self.connection: Connection = Connection(
            spec, servers, sync, limits, lambda _: None, slots, {"tool": 1} if listed else None
        )

    @asynccontextmanager
    async def connect(self, *_: object, **__: object) -> AsyncIterator[World]:
        await asyncio.sleep(0)
        await self.answers.wait()
        if not self.connects:
            raise LoginRequired("log in") if self.needs_login else Unavailable("it is down")
        self.lost = asyncio.get_running_loop().create_future()
        yield self
        await asyncio.sleep(0)

    async def list_items(self) -> ServerListing:
        await asyncio.sleep(0)
        await self.answers.wait()
        if not self.lists:
            raise Unavailable("it lists nothing")
        return ServerListing(items=())

    async def sync(self, *_: object, **__: object) -> SyncReport:
        await asyncio.sleep(0)
        if not self.works:
            raise Unavailable("the store is down")
        return SyncReport()

    async def ping(self) -> None:
        if not self.connects:
            raise Unavailable("no answer to a ping")

    async def wait_for_change(self) -> None:
        await self.changed.wait()
        self.changed.clear()

    async def wait_for_disconnect(self) -> str:
        return str(await asyncio.shield(self.lost))

    async def use(self) -> None:
        with suppress(Unavailable, LoginRequired):
            async with self.connection.use():
                await self.released.wait()

    def begin(self, work: Coroutine[Any, Any, object]) -> None:
        self.tasks.add(asyncio.create_task(work))

    def end(self) -> None:
        if not self.lost.done():
            self.lost.set_result("it ended")

    async def release(self) -> None:
        self.released.set()
        await self.pass_steps(2)
        self.released.clear()

    async def wait(self) -> None:
        put_clock_forward(10.0)
        await self.pass_steps(3)

    def switch(self, name: str) -> None:
        setattr(self, name, not getattr(self, name))

    async def pass_steps(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)
            self.connection.check()

    async def close(self) -> None:
        await self.connection.halt("the end")
        for task in self.tasks:
            task.cancel()
        results = await asyncio.gather(*self.tasks, return_exceptions=True)
        assert [r for r in results if isinstance(r, Exception)] == []
        assert (self.faults, self.connection.status.state.value) == ([], "stopped")


EVENTS: Mapping[str, Callable[[World], object]] = {
    "it is used": lambda world: world.begin(world.use()),
    "it is released": lambda world: world.release(),
    "it is started": lambda world: world.connection.start(),
    "it is stopped": lambda world: world.connection.halt("somebody stopped it"),
    "it is restarted": lambda world: world.connection.restart("somebody restarted it"),
    "it is listed": lambda world: world.begin(world.connection.refresh()),
    "a call finds it gone": lambda world: world.connection.abandon(world, "gone"),  # type: ignore[arg-type]
    "its login is new": lambda world: world.connection.reconnect("its login is new"),
    "it ends": lambda world: world.end(),
    "its tools change": lambda world: world.changed.set(),
    "it connects or not": lambda world: world.switch("connects"),
    "it lists or not": lambda world: world.switch("lists"),
    "it needs a login or not": lambda world: world.switch("needs_login"),
    "the catalogue works or not": lambda world: world.switch("works"),
    "one step": lambda world: world.pass_steps(1),
    "many steps": lambda world: world.pass_steps(20),
    "time passes": lambda world: world.wait(),
}


@given(st.sampled_from(SPECS), st.booleans(), st.lists(st.sampled_from(list(EVENTS)), max_size=40))
def test_no_order_of_events_leaves_the_drawing(spec: ServerSpec, listed: bool, events: list[str]) -> None:
    async def run() -> None:
        world = World(spec, listed=listed)
        for event in events:
            if asyncio.iscoroutine(work := EVENTS[event](world)):
                await work
            world.connection.check()
        await world.close()

    asyncio.run(run())


@asynccontextmanager
async def open_world(spec: ServerSpec, *, listed: bool = False, connects: bool = True) -> AsyncIterator[World]:
    world = World(spec, listed=listed)
    world.connects = connects
    await world.pass_steps(20)
    yield world
    await world.close()


@pytest.mark.parametrize("waits", ["a refresh", "a call"])
async def test_who_waits_for_a_server_that_is_closed_gets_an_answer(waits: str) -> None:
    async with open_world(SPECS[2], listed=True) as world, asyncio.timeout(10):
        world.answers.clear()
        work = world.connection.refresh() if waits == "a refresh" else world.connection.use().__aenter__()
        waiting = asyncio.create_task(work)
        await world.pass_steps(20)
        assert (waiting.done(), world.connection.status.state) == (False, ServerState.CONNECTING)
        await world.connection.stop()
        (result,) = await asyncio.gather(waiting, return_exceptions=True)
        assert "closed" in str(result)


@pytest.mark.parametrize("phase", [Phase.CONNECTING, Phase.LISTING])
async def test_a_lazy_server_that_is_started_while_it_is_tried_stays_awake_once(phase: Phase) -> None:
    async with open_world(SPECS[2], connects=False) as world:
        connection = world.connection
        assert (connection.status.state, connection.status.attempts) == (ServerState.FAILED, 1)
        world.connects = True
        world.answers.clear()
        await world.wait()
        await world.pass_steps(10)
        if phase is Phase.LISTING:
            world.answers.set()
            while connection._phase is not phase:
                await world.pass_steps(1)
            world.answers.clear()
        assert connection._phase is phase
        connection.start()
        world.answers.set()
        await world.pass_steps(20)
        assert connection.status.state is ServerState.READY
        world.end()
        await world.pass_steps(20)
        await world.wait()
        await world.pass_steps(20)
        assert connection.is_asleep
        await connection.refresh()
        await world.pass_steps(20)
        assert connection.is_asleep


async def test_a_connection_that_a_call_gives_up_while_it_is_listed_keeps_the_reason() -> None:
    async with open_world(SPECS[0], connects=False) as world:
        world.connects = True
        await world.wait()
        while world.connection._phase is not Phase.LISTING:
            await world.pass_steps(1)
        world.connection.abandon(world, "connection reset by peer")  # type: ignore[arg-type]
        await world.pass_steps(20)
        assert world.connection.status.reason == "connection reset by peer"
