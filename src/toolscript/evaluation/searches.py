"""Runs the searches of an evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from toolscript.domain.errors import Invalid

DEPTH = 100
# The default limit of the MCP tool search_tools.
AGENT_LIMIT = 5
CONCURRENT_SEARCHES = 8

T = TypeVar("T")


async def search_each(
    search: Callable[[str], Awaitable[T]], texts: Sequence[str], slots: asyncio.Semaphore | None = None
) -> tuple[list[T | None], list[str | None]]:
    """Searches for each text, a few at a time like a server with several clients, together with others that have the
    same `slots`; keeps the order. A text that the search refuses as a query gets None; the second list has the
    reason."""
    slots = slots or asyncio.Semaphore(CONCURRENT_SEARCHES)

    async def run_one(text: str) -> tuple[T | None, str | None]:
        async with slots:
            try:
                return await search(text), None
            except Invalid as error:
                if error.details.get("field") != "query":
                    raise
                return None, error.message

    done = await asyncio.gather(*map(run_one, texts))
    return [found for found, _ in done], [reason for _, reason in done]
