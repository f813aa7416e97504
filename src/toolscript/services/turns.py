"""Turns at things that only one may change at a time, several things at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager


class Turns:
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
