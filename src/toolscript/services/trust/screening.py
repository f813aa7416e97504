"""Compares what servers offer with what is approved, and decides what goes into quarantine.

The first definition of an item is approved as it is, unless its text is suspicious or the policy wants all reviewed:
there is nothing to compare it with. Everything that the catalogue has from before this existed counts as approved."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from toolscript.domain.catalog import Item
from toolscript.domain.quarantine import (
    Finding,
    Pin,
    QuarantineCause,
    QuarantineState,
    find_changes,
    get_pin_id,
    list_fields,
)
from toolscript.domain.servers import TrustPolicy
from toolscript.domain.tool_overrides import find_override
from toolscript.ports.stores import ItemStore, PinStore
from toolscript.services.trust.scanner import Scanner, load_scanner

log = logging.getLogger(__name__)


class Screening:
    """Decides about every definition that servers offer."""

    def __init__(
        self,
        pins: PinStore,
        item_store: ItemStore,
        *,
        policy: TrustPolicy = TrustPolicy.CHANGED,
        scanner: Scanner | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`policy` is for servers without a policy in their configuration. `scanner` defaults to the package's."""
        self.pins = pins
        self._item_store = item_store
        self._policy = policy
        self._scanner = scanner
        self._clock = clock

    async def screen(
        self,
        items: Sequence[Item],
        existing: Collection[str],
        policy: TrustPolicy | None = None,
        approved: Collection[str] = (),
    ) -> list[Item]:
        """The items as the catalogue may show them: items in quarantine with their approved texts and the reason.
        `existing` has the ids of all items that the catalogue has of these servers, `approved` the ids of items that a
        person has written here; these are scanned and nothing else."""
        servers = {item.server for item in items}
        digests = await self.pins.get_approved_digests(servers)
        unclear = await asyncio.to_thread(  # hashes of 10 000 definitions take 0.2 s
            lambda: {key: item for item in items if digests.get(key := get_pin_id(item)) != item.digest}
        )
        if not unclear:
            return list(items)
        pins = {pin.item_id: pin for pin in await self.pins.get_pins(unclear)}
        unpinned = [item_id for item_id in unclear if item_id in existing and item_id not in pins]
        for stored in await self._item_store.get_items(unpinned, active_only=False):
            if find_override(stored.item) is not None:  # perhaps another tool of the server, with another name then
                continue
            pins[stored.item.id] = Pin(stored.item.id, stored.item.server, approved=stored.item)
        known = {key.partition("__")[0] for key in (*digests, *existing)}
        decided = await asyncio.to_thread(  # some 2 ms for each definition
            lambda: {
                key: self._approve(item)
                if key in approved and not self._scan(item)
                else self._decide(item, pins.get(key), policy or self._policy, is_known=item.server in known)
                for key, item in unclear.items()
            }
        )
        changed = [pin for key, pin in decided.items() if pin != pins.get(key) or key in unpinned]
        if changed:
            await self.pins.save_pins(changed)
        report_quarantined([pin for pin in changed if pin.offered])
        shown = [decided.get(get_pin_id(item)) for item in items]
        return [(pin.shown or item) if pin and pin.offered else item for item, pin in zip(items, shown, strict=True)]

    def _scan(self, item: Item) -> Sequence[Finding]:
        return (self._scanner or load_scanner()).scan(item)

    @staticmethod
    def _approve(item: Item) -> Pin:
        return Pin(get_pin_id(item), item.server, approved=item)

    def _decide(self, item: Item, pin: Pin | None, policy: TrustPolicy, *, is_known: bool) -> Pin:
        pin = pin.with_override(item) if pin else None
        approved, waiting = (pin.approved, pin.offered) if pin else (None, None)
        new = replace(self._approve(item), awaits_review=policy is not TrustPolicy.OPEN)
        exact = policy.is_strict
        if pin and waiting and not find_changes(waiting, item, exact=exact) and _holds(pin, policy):
            return pin
        if policy is TrustPolicy.OPEN:
            return new
        changes = find_changes(approved, item, exact=exact) if approved else []
        if approved and not changes:
            return replace(new, approved=approved, awaits_review=bool(pin and pin.awaits_review))
        in_quarantine = replace(
            new, approved=approved, offered=item, since=self._clock(), awaits_review=bool(pin and pin.awaits_review)
        )
        if findings := self._scan(item):
            cause, first = QuarantineCause.SUSPICIOUS, findings[0]
            return replace(in_quarantine, cause=cause, reason=first.describe(), passage=first.passage)
        if changes:
            reason = f"its {list_fields(changes)} changed after it was approved"
            return replace(in_quarantine, cause=QuarantineCause.CHANGED, reason=reason)
        if pin and pin.cause is QuarantineCause.SUSPICIOUS:
            reason = "an earlier definition of it was suspicious"
            return replace(in_quarantine, cause=QuarantineCause.CHANGED, reason=reason)
        if policy is TrustPolicy.REVIEW or (is_known and policy is TrustPolicy.ALL):
            reason = f"it is new on {item.server}, a server that was known before"
            if not is_known:
                reason = f"it is new, as {item.server} is: nobody has looked at it yet"
            return replace(in_quarantine, cause=QuarantineCause.NEW, reason=reason)
        return new


def _holds(pin: Pin, policy: TrustPolicy) -> bool:
    """Whether a definition that is in quarantine stays there under this policy. What a person rejected does."""
    if pin.state is QuarantineState.REJECTED:
        return True
    return policy.is_strict or (policy is TrustPolicy.CHANGED and pin.cause is not QuarantineCause.NEW)


def report_quarantined(pins: Sequence[Pin]) -> None:
    """Logs definitions that went into quarantine."""
    for pin in pins:
        log.warning("quarantined", extra={"tool": pin.catalogue_id, "reason": pin.reason})
