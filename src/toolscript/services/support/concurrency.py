"""Turns at things that only one may change at a time, several things at once; and a few pieces of work at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


class KeyedLocks:
    """Whoever comes with things that others have in hand waits until all of them are free."""

    def __init__(self) -> None:
        self._in_hand: set[Hashable] = set()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def of(self, things: Iterable[Hashable]) -> AsyncIterator[None]:
        """Has the things in hand for as long as the block lasts. Whoever holds some must not ask for others."""
        wanted = set(things)
        while not self._in_hand.isdisjoint(wanted):
            await self._freed.wait()
        self._in_hand |= wanted
        try:
            yield
        finally:
            self._in_hand -= wanted
            self._freed.set()
            self._freed = asyncio.Event()


async def run_concurrently(batches: AsyncIterator[T], work: Callable[[T], Awaitable[None]], *, most: int) -> None:
    """Works on a few batches at a time. When one fails no other is begun; those under way end, and the failure is
    told."""
    under_way: set[asyncio.Task[None]] = set()
    try:
        async for batch in batches:
            under_way.add(asyncio.ensure_future(work(batch)))
            if len(under_way) == most:
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        for task in list(under_way):
            await task
    except asyncio.CancelledError:
        for task in under_way:
            task.cancel()
        raise
    finally:
        await asyncio.gather(*under_way, return_exceptions=True)


async def iterate_async(things: Iterable[T]) -> AsyncIterator[T]:
    """Things that are there already, as those that come."""
    for thing in things:
        yield thing
