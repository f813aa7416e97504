"""Runs the searches of an evaluation."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from toolscript.domain.errors import Invalid

DEPTH = 100
CONCURRENT_SEARCHES = 8

T = TypeVar("T")


async def search_each(
    search: Callable[[str], Awaitable[T]], texts: Sequence[str], slots: asyncio.Semaphore | None = None
) -> tuple[list[T | None], Mapping[str, int]]:
    """Searches for each text, a few at a time like a server with several clients, together with others that have the
    same `slots`; keeps the order. A text that the search refuses as a query gets None; the reasons are counted."""
    slots = slots or asyncio.Semaphore(CONCURRENT_SEARCHES)
    reasons: Counter[str] = Counter()

    async def run_one(text: str) -> T | None:
        async with slots:
            try:
                return await search(text)
            except Invalid as error:
                if error.details.get("field") != "query":
                    raise
                reasons[error.message] += 1
                return None

    return list(await asyncio.gather(*map(run_one, texts))), reasons
