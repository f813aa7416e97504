"""Locks over sets of keys, a bounded number of tasks at a time, and work that is not left half done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Gets the done and total counts of a long piece of work.
Progress = Callable[[int, int], None]


class KeyedLocks:
    """Locks several keys at once: a caller waits until all of its keys are free."""

    def __init__(self) -> None:
        self._locked: set[Hashable] = set()
        self._released = asyncio.Event()

    @asynccontextmanager
    async def lock(self, keys: Iterable[Hashable]) -> AsyncIterator[None]:
        """Locks the keys for as long as the block lasts. Locking more keys inside the block may deadlock."""
        wanted = set(keys)
        while not self._locked.isdisjoint(wanted):
            await self._released.wait()
        self._locked |= wanted
        try:
            yield
        finally:
            self._locked -= wanted
            self._released.set()
            self._released = asyncio.Event()


async def run_concurrently(
    batches: AsyncIterator[T], work: Callable[[T], Awaitable[None]], *, max_concurrent: int
) -> None:
    """Works on at most `max_concurrent` batches at a time. When one fails, no further batch is started, running batches
    finish, and the error is raised."""
    running: set[asyncio.Task[None]] = set()
    try:
        async for batch in batches:
            running.add(asyncio.ensure_future(work(batch)))
            if len(running) == max_concurrent:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        for task in list(running):
            await task
    except asyncio.CancelledError:
        for task in running:
            task.cancel()
        raise
    finally:
        await asyncio.gather(*running, return_exceptions=True)


def finish_when_cancelled(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Lets the work go on to its end when its caller is cancelled. Nobody is told of an error then."""

    @wraps(work)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.shield(asyncio.ensure_future(work(*args, **kwargs)))

    return run


async def iterate_async(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


async def run_all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs all pieces of work concurrently. When one fails the others are cancelled, and its error is raised.

    Not a TaskGroup: on Python 3.11 one that fails leaves a request to cancel on the task that waits for it.
    """
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
