"""Keeps a cancellation inside the test or fixture that it belongs to, and ends async tests that wait for ever.

anyio runs all async fixtures and tests of a process in one task. A CancelledError that leaves one of them, or a group
with a failure of pytest's own, ends that task, and every later async test of the process fails with
ClosedResourceError. So each test runs in a task of its own,
and a fixture that is cancelled fails as any other does.

A test that waits for what never comes fails with the stack of its wait, and the process goes on to the next one. What
blocks the event loop itself is left to tests/time_limit.py, which ends the process.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

# The longest async test takes 46 s.
MAX_SECONDS = 300.0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return (yield)

    @functools.wraps(test)
    async def run_in_own_task(**arguments: Any) -> None:
        task = asyncio.create_task(test(**arguments))
        await _cancel_if_it_hangs(task)
        await _refuse_cancellation(task)
        # On Python before 3.11.3 a task with a request left over turns its next TimeoutError into a CancelledError.
        assert not task.cancelling(), "a request to cancel the task was neither followed nor taken back (uncancel)"

    pyfuncitem.obj = run_in_own_task
    try:
        return (yield)
    finally:
        pyfuncitem.obj = test


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    fixture = fixturedef.func
    if inspect.isasyncgenfunction(fixture):
        guarded: Callable[..., Any] = _guard_generator(fixture)
    elif inspect.iscoroutinefunction(fixture):
        guarded = _guard_coroutine(fixture)
    else:
        return (yield)
    fixturedef.func = guarded  # type: ignore[misc]
    try:
        return (yield)
    finally:
        fixturedef.func = fixture  # type: ignore[misc]


def _guard_coroutine(fixture: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    @functools.wraps(fixture)
    async def run(**arguments: Any) -> T:
        return await _refuse_cancellation(fixture(**arguments))

    return run


def _guard_generator(fixture: Callable[..., AsyncGenerator[T, None]]) -> Callable[..., AsyncGenerator[T, None]]:
    @functools.wraps(fixture)
    async def run(**arguments: Any) -> AsyncGenerator[T, None]:
        generator = fixture(**arguments)
        yield await _refuse_cancellation(anext(generator))
        try:
            await _refuse_cancellation(anext(generator))
        except StopAsyncIteration:
            return
        pytest.fail("the fixture yields more than once")

    return run


async def _refuse_cancellation(work: Awaitable[T]) -> T:
    try:
        return await work
    except asyncio.CancelledError as error:
        raise RuntimeError("a CancelledError left the test or fixture") from error
    except BaseExceptionGroup as group:
        if isinstance(group, Exception):
            raise
        raise AssertionError("a test failed in a task group") from group  # anyio's task ends by any other BaseException


async def _cancel_if_it_hangs(task: asyncio.Task[None]) -> None:
    """Raises TimeoutError, caused by where the task has waited."""
    end = time.monotonic() + MAX_SECONDS
    # Tests put the clock of the event loop forward, which ends a wait of asyncio early.
    while (left := end - time.monotonic()) > 0:
        if (await asyncio.wait([task], timeout=left))[0]:
            return
    task.cancel()
    try:
        await task
    except asyncio.CancelledError as error:
        raise TimeoutError(f"the test takes more than {MAX_SECONDS:g} seconds") from error
