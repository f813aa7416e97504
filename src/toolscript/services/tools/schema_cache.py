"""Schemas of tools at hand: a search that finds a tool for the first time would otherwise wait for the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from toolscript.domain.catalog import Schemas
from toolscript.domain.errors import ToolscriptError
from toolscript.ports.stores import ItemStore
from toolscript.services.support.result_cache import ResultCache

# As many as there are of a large catalogue: a few kilobytes each.
ROOM = 16_384
# How often the store is asked before the rest is read without being asked for: a command asks once or twice.
ASKED_BEFORE = 32
# How many are read at a time then, and for how much longer than that took nothing is.
PAGE = 16
REST = 2.0

log = logging.getLogger(__name__)


class KnownSchemas:
    """What the catalogue says of the schemas of tools, for as long as nothing is written to it."""

    def __init__(
        self,
        item_store: ItemStore,
        *,
        oldest: float | None = None,
        asked_before: int | None = ASKED_BEFORE,
        room: int = ROOM,
    ) -> None:
        """`oldest` is how many seconds they are good for where others may write; then none are read ahead, nor with
        `asked_before` None."""
        self._item_store = item_store
        self._kept: ResultCache[str, Schemas] = ResultCache(oldest=oldest, room=room)
        self._room = room
        self._asked_before = asked_before if oldest is None else None
        self._left = self._asked_before
        self._reading: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """To be called when something was written to the catalogue."""
        self._kept.changed()
        self._left = self._asked_before

    async def of(self, item_ids: Sequence[str]) -> Mapping[str, Schemas | None]:
        """The schemas of those items; None for one that is not there any more. Raises what the store raises."""
        known = {i: self._kept.find(i) for i in item_ids}
        unknown = [i for i, schemas in known.items() if schemas is None]
        if unknown:
            at = self._kept.now()
            for item_id, (arguments, answer, annotations) in (await self._item_store.get_schemas(unknown)).items():
                known[item_id] = schemas = arguments, answer, annotations
                self._kept.keep(item_id, schemas, at)
            self._note_asked()
        return known

    async def settled(self) -> None:
        """Waits for the reading ahead."""
        if self._reading is not None:
            await self._reading

    async def close(self) -> None:
        """Ends the reading ahead."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _note_asked(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left <= 0 and (self._reading is None or self._reading.done()):
                self._left = None
                self._reading = asyncio.create_task(self._read_ahead())

    async def _read_ahead(self) -> None:
        at, last = self._kept.now(), ""
        try:
            for _ in range(0, self._room, PAGE):
                began = time.monotonic()
                page = await self._item_store.get_schemas_after(last, PAGE)
                for last, schemas in page.items():
                    self._kept.keep(last, schemas, at)
                if len(page) < PAGE or self._kept.now()[0] != at[0]:
                    return
                await asyncio.sleep(REST * (time.monotonic() - began))
        except ToolscriptError as error:  # then they are read when they are asked for
            log.debug("schemas_not_read_ahead", extra={"reason": error.message})
