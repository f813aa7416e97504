"""Has a language model read the definitions that the rules let through, in the background.

Definitions can be used before they are reviewed: a model takes seconds for each prompt, and servers are listed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from toolscript.domain.quarantine import Finding, Pin
from toolscript.ports.stores import PinStore
from toolscript.services.support.background_run import BackgroundRun
from toolscript.services.trust.definition_reader import DefinitionReader

BATCH = 128
INTERVAL_SECONDS = 30.0

RecordVerdicts = Callable[[Sequence[tuple[Pin, Finding | None]]], Awaitable[None]]


class DefinitionReview:
    """Reviews every approved definition once. One run at a time."""

    def __init__(
        self, pins: PinStore, reader: DefinitionReader, record: RecordVerdicts, *, interval: float = INTERVAL_SECONDS
    ) -> None:
        """`record` gets the verdicts of a batch. In the background a run starts at most every `interval` seconds."""
        self._pins = pins
        self._reader = reader
        self._record = record
        self._running = asyncio.Lock()
        self._background = BackgroundRun(self.run, name="reviewing definitions", interval=interval)
        self._unanswered: set[str] = set()
        """Digests of definitions about which the model has given no usable answer: the next start asks again."""

    async def run(self) -> None:
        """Reviews all definitions that await it. Ends when the model does not respond: the next run continues."""
        async with self._running:
            after = ""
            while pins := await self._pins.get_unreviewed_pins(after=after, limit=BATCH):
                after = pins[-1].item_id
                items = [(p, p.approved) for p in pins if p.approved and p.approved.digest not in self._unanswered]
                verdicts = await self._reader.read([item for _, item in items])
                read = [(pin, item, verdict) for (pin, item), verdict in zip(items, verdicts, strict=True) if verdict]
                self._unanswered |= {item.digest for _, item, verdict in read if not verdict.is_usable}
                await self._record([(pin, verdict.finding) for pin, _, verdict in read if verdict.is_usable])
                if len(read) < len(items):
                    return

    def start_soon(self) -> None:
        """Reviews new definitions in the background."""
        self._background.start_soon()

    async def close(self) -> None:
        """Ends the run in the background."""
        await self._background.close()
