"""Limits of calls per key, server and tool, and the pause of servers that keep failing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.fixtures.clock import Clock
from tests.fixtures.requests import as_request
from tests.fixtures.serving import build_calls
from tests.servers import make_scripted_server as spec
from toolscript.adapters.mcp.client import McpServers
from toolscript.app.app import App
from toolscript.domain.access import CallLimit
from toolscript.domain.catalog import Item
from toolscript.domain.errors import LoginRequired, RateLimited, ToolscriptError, Unavailable, UpstreamFailed
from toolscript.domain.limits import Limits
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.services.access.rates import Buckets
from toolscript.services.servers.gateway import Gateway
from toolscript.services.support.call_admission import CallAdmission

pytestmark = pytest.mark.req("G-19")

TOOL, OTHER = Item("git", "log"), Item("git", "create_branch")
LIMITED = ServerSpec(
    "git",
    Transport.STDIO,
    limit=CallLimit(per_minute=3, concurrent=2),
    tool_limits=(("create_*", CallLimit(per_minute=1)), ("*", CallLimit())),
)
PLAIN = ServerSpec("git", Transport.STDIO)


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def call(admission: CallAdmission, item: Item = TOOL, to: ServerSpec = LIMITED) -> None:
    async with admission.admit(item, to, 60.0):
        pass


async def fail(
    admission: CallAdmission, error: BaseException, clock: Clock, seconds: float = 0.0, to: ServerSpec = PLAIN
) -> None:
    admitted = admission.admit(TOOL, to, 60.0)
    await admitted.__aenter__()
    clock.now += seconds
    assert not await admitted.__aexit__(type(error), error, None)


async def test_a_server_and_a_tool_take_so_many_calls_a_minute(clock: Clock) -> None:
    admission = CallAdmission(Buckets(clock), clock=clock)
    await call(admission, OTHER)
    with pytest.raises(RateLimited, match=r"^calls of git__create_branch are limited to 1 a minute: try again in 60 "):
        await call(admission, OTHER)
    await call(admission)
    with pytest.raises(
        RateLimited, match=r"^calls to the server git are limited to 3 a minute: try again in 20 "
    ) as one:
        await call(admission)
    assert one.value.details["retry_after_seconds"] == 20
    clock.now += 20
    await call(admission)


async def test_a_key_takes_so_many_calls_a_minute_and_others_are_not_affected(clock: Clock) -> None:
    admission = CallAdmission(Buckets(clock), clock=clock)
    for name in ("ci", "agent"):
        sentence = f"^calls with the key {name} are limited to 1 a minute: try again in 60 "
        with as_request(caller_name=name, limit=CallLimit(per_minute=1)):
            await call(admission, to=PLAIN)
            with pytest.raises(RateLimited, match=sentence):
                await call(admission, to=PLAIN)


async def test_a_server_takes_so_many_calls_at_a_time_and_again_when_one_ends(clock: Clock) -> None:
    admission = CallAdmission(Buckets(clock), clock=clock)
    unlimited = ServerSpec("git", Transport.STDIO, limit=CallLimit(concurrent=2))
    async with AsyncExitStack() as running:
        for _ in range(2):
            await running.enter_async_context(admission.admit(TOOL, unlimited, 60.0))
        with pytest.raises(RateLimited, match="limited to 2 at a time, and so many are running: try again when one"):
            await call(admission, to=unlimited)
    await call(admission, to=unlimited)
    for error in (UpstreamFailed("it refused"), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            async with admission.admit(TOOL, unlimited, 60.0):
                raise error
    async with admission.admit(TOOL, unlimited, 60.0):
        await call(admission, to=unlimited)


async def test_after_five_failures_calls_are_refused_until_one_that_is_tried_succeeds(clock: Clock) -> None:
    admission = CallAdmission(clock=clock)
    for _ in range(5):
        assert admission.find_pause("git") is None
        clock.now += 1
        await fail(admission, Unavailable("it exited with code 3"), clock)
    assert admission.find_pause("git") == 30
    with pytest.raises(Unavailable) as refused:
        await call(admission, to=PLAIN)
    assert refused.value.message == (
        "calls to the server git are paused after 5 failures in a row (it exited with code 3): it is tried again in 30 "
        "seconds"
    )
    clock.now += 30
    await fail(admission, Unavailable("it exited with code 3"), clock)
    assert admission.find_pause("git") == 30
    clock.now += 30
    async with admission.admit(TOOL, PLAIN, 60.0):
        with pytest.raises(Unavailable, match="it is tried again by a call that is running: wait for it"):
            await call(admission, to=PLAIN)
    assert admission.find_pause("git") is None
    await call(admission, to=PLAIN)


async def test_what_a_server_answers_is_no_failure_nor_is_an_impatient_caller(clock: Clock) -> None:
    admission = CallAdmission(clock=clock)
    harmless: list[ToolscriptError | BaseException] = [
        UpstreamFailed("the tool says no"),
        RateLimited("later"),
        LoginRequired("log in first"),
        asyncio.CancelledError(),
        TimeoutError(),
    ]
    for error in harmless * 5:
        clock.now += 1
        await fail(admission, error, clock, seconds=1)
    assert admission.find_pause("git") is None
    for _ in range(5):
        await fail(admission, asyncio.CancelledError(), clock, seconds=60)
    assert admission.find_pause("git") == 30


async def test_programs_that_take_too_long_do_not_pause_those_of_others(clock: Clock) -> None:
    admission, internal = CallAdmission(clock=clock), ServerSpec("workflows", Transport.INTERNAL)
    for _ in range(6):
        await fail(admission, TimeoutError(), clock, 60.0, internal)
    assert admission.find_pause("workflows") is None
    await call(admission, to=internal)


async def test_a_workflow_is_a_call_a_minute_and_takes_no_place_of_the_calls_inside(clock: Clock) -> None:
    admission, internal = CallAdmission(Buckets(clock), clock=clock), ServerSpec("workflows", Transport.INTERNAL)
    with as_request(caller_name="ci", limit=CallLimit(per_minute=2, concurrent=1)):
        async with admission.admit(Item("workflows", "both"), internal, 60.0):
            await call(admission, to=PLAIN)
            with pytest.raises(RateLimited, match="limited to 2 a minute"):
                await call(admission, to=PLAIN)


async def test_calls_that_fail_together_count_once(clock: Clock) -> None:
    admission = CallAdmission(clock=clock)
    running = [admission.admit(TOOL, PLAIN, 60.0) for _ in range(64)]
    for each in running:
        await each.__aenter__()
    clock.now += 1
    lost = Unavailable("it exited with code 3")
    for each in running:
        assert not await each.__aexit__(type(lost), lost, None)
    assert admission.find_pause("git") is None


@pytest.fixture
async def gateway(app: App) -> AsyncIterator[Gateway]:
    timeouts = Limits(connect=10, call=10, reconnect=10, first_pause=0.05, max_pause=0.2)
    gateway = Gateway(
        McpServers(), app.catalogue.sync, timeouts, CallAdmission(Buckets(), failures=2, pause_seconds=3600)
    )
    yield gateway
    await gateway.close()


@pytest.mark.slow
async def test_a_server_that_dies_with_every_call_is_paused_and_its_status_says_so(app: App, gateway: Gateway) -> None:
    calls = build_calls(app, gateway)
    await gateway.apply([spec("frail"), spec("good")])
    await gateway.settle(60)
    for _ in range(2):
        with pytest.raises(UpstreamFailed, match="was lost during the call"):
            await calls.call("frail__die", {})
    with pytest.raises(Unavailable, match="calls to the server frail are paused after 2 failures in a row"):
        await calls.call("frail__echo", {"text": "a"})
    paused = {status.name: status.calls_paused_seconds for status in gateway.statuses}
    assert paused["good"] is None
    assert 0 < (paused["frail"] or 0) <= 3600
    assert (await calls.call("good__echo", {"text": "a"})).text
    await gateway.apply([spec("frail", env={"NEW": "1"}), spec("good")])
    await gateway.settle(60)
    assert (await calls.call("frail__echo", {"text": "a"})).text
