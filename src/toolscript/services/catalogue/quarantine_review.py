"""What a person decides about definitions in quarantine, and what a language model says of approved definitions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from toolscript.domain.catalog import Item
from toolscript.domain.errors import Conflict, NotFound, Unavailable
from toolscript.domain.quarantine import Finding, Pin, QuarantineCause, QuarantineState
from toolscript.domain.tool_overrides import apply_override, find_override
from toolscript.ports.stores import ItemStore, PinStore
from toolscript.retrieval.text.item_text import count_item_terms
from toolscript.retrieval.text.words import replace_unencodable
from toolscript.services.catalogue.indexing import CatalogueIndex, IndexPass
from toolscript.services.catalogue.snapshot import Change
from toolscript.services.trust.screening import report_quarantined

log = logging.getLogger(__name__)


class QuarantineReview:
    """Lists, approves and rejects definitions in quarantine."""

    def __init__(self, pins: PinStore, item_store: ItemStore, index: CatalogueIndex, *, lock: asyncio.Lock) -> None:
        """`lock` is held while a sync runs, and while a decision is written."""
        self._pins = pins
        self._item_store = item_store
        self._index = index
        self._lock = lock

    async def list_waiting(self, server: str | None = None) -> list[Pin]:
        """The items in quarantine, also items that a person has rejected, ordered by id."""
        found = await self._pins.get_pins(only_quarantined=True)
        return [pin for pin in found if server is None or pin.server == server]

    async def get(self, item_id: str) -> Pin:
        """The item in quarantine. Raises NotFound."""
        return (await self._find([item_id]))[0]

    async def approve(self, item_ids: Sequence[str], *, digest: str | None = None) -> list[Pin]:
        """Approves the offered definitions of these items, and returns what was in quarantine. With `digest`, only if
        that is still what is offered. Raises NotFound, naming all that are not in quarantine, and Conflict for another
        digest; then nothing is approved."""
        async with self._lock:
            pins = await self._find(item_ids)
            _require_digest(pins, digest)
            await self._save([Pin(pin.item_id, pin.server, approved=pin.offered) for pin in pins], pins)
        return pins

    async def reject(self, item_ids: Sequence[str], *, digest: str | None = None) -> list[Pin]:
        """Keeps the offered definitions of these items in quarantine under every policy. Raises as `approve` does."""
        async with self._lock:
            pins = await self._find(item_ids)
            _require_digest(pins, digest)
            await self._save([replace(pin, state=QuarantineState.REJECTED) for pin in pins], pins)
        return pins

    async def record_verdicts(self, verdicts: Sequence[tuple[Pin, Finding | None]]) -> None:
        """Records what a language model says of approved definitions: harmful definitions go into quarantine, the
        others are reviewed. A verdict about a definition that has changed since does not count."""
        async with self._lock:
            current = {pin.item_id: pin for pin in await self._pins.get_pins([pin.item_id for pin, _ in verdicts])}
            valid = [(pin, finding) for pin, finding in verdicts if current.get(pin.item_id) == pin]
            await self._pins.save_pins([replace(pin, awaits_review=False) for pin, finding in valid if not finding])
            harmful = {pin.item_id: (pin, finding) for pin, finding in valid if finding}
            if harmful:
                pins = [_quarantine(pin, finding, time.time()) for pin, finding in harmful.values()]
                await self._save(pins, [pin for pin, _ in harmful.values()])
                report_quarantined(pins)

    async def _find(self, item_ids: Sequence[str]) -> list[Pin]:
        ids = list(dict.fromkeys(map(replace_unencodable, item_ids)))
        waiting = await self._pins.get_pins(only_quarantined=True)
        # A tool that has a name by the configuration comes after one of the server's that is left out for it.
        found = {pin.catalogue_id: pin for pin in sorted(waiting, key=lambda pin: pin.catalogue_id != pin.item_id)}
        missing = [item_id for item_id in ids if item_id not in found]
        if missing:
            raise NotFound(
                f"not in quarantine: {', '.join(missing)}; `toolscript quarantine` lists what is",
                details={"tools": missing},
            )
        return [found[item_id] for item_id in ids]

    async def _save(self, pins: Collection[Pin], before: Sequence[Pin]) -> None:
        """Saves the pins, and shows their items accordingly, where servers still offer them. Keeps the pins of before
        if that fails."""
        await self._pins.save_pins([*pins])
        try:
            ids = await self._show(pins)
        except Exception:
            await self._pins.save_pins(before)
            raise
        if not ids:
            return
        self._index.on_change(Change.ITEMS)
        try:
            work = IndexPass(await self._index.find_points_by_id(ids), await self._index.read_skills())
            await self._index.update(await self._item_store.get_fingerprints(item_ids=ids), work)
        except Unavailable as error:  # the decision is made: the next sync updates the index
            log.warning("the index has old definitions until the next sync: %s", error.message)

    async def _show(self, pins: Collection[Pin]) -> list[str]:
        """Saves the items as their pins show them; returns the ids of the items concerned."""
        definitions = {pin.catalogue_id: item for pin in pins if (item := pin.shown)}
        shown_before = [stored.item for stored in await self._item_store.get_items([*definitions])]
        # An id may be that of another tool by now, which the configuration has given the name.
        active = {item.id for item in shown_before if _get_origin(item) == _get_origin(definitions[item.id])}
        shown = {i: apply_override(item) for i, item in definitions.items() if i in active}
        items = [*shown.values()]
        if not items:
            return []
        # An approved name has its invisible characters again: the id without them ends.
        renamed = [item_id for item_id, item in shown.items() if item.id != item_id]
        await self._item_store.save_items([(item, count_item_terms(item)) for item in items])
        if renamed:
            await self._item_store.deactivate(renamed)
        return [*{*active, *(item.id for item in items)}]


def _get_origin(item: Item) -> str:
    """The server's name for a tool that has an override."""
    return "" if find_override(item) is None else item.listed_name


def _quarantine(pin: Pin, finding: Finding, now: float) -> Pin:
    """The pin of an approved definition that is harmful."""
    return Pin(
        pin.item_id,
        pin.server,
        offered=pin.approved,
        cause=QuarantineCause.SUSPICIOUS,
        reason=finding.describe(),
        passage=finding.passage,
        since=now,
    )


def _require_digest(pins: Sequence[Pin], digest: str | None) -> None:
    for pin in pins:
        if digest is not None and pin.offered and pin.offered.digest != digest:
            raise Conflict(
                f"{pin.catalogue_id} has another definition by now: look at it again",
                details={"digest": pin.offered.digest},
            )
