"""Feedback: which tools served which requests, and what was learnt from that.

A search whose hit the same caller then calls is a success of that tool, and so is an explicit mark. Searches are only
noted in memory; the store is written when a success occurs, after the answer. Nothing here can fail a search or a call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from toolscript.domain.access import Caller
from toolscript.domain.errors import Invalid, NotFound, Unavailable
from toolscript.domain.feedback import MAX_REQUEST_CHARACTERS, Step, Success, normalize_request
from toolscript.ports.stores import FeedbackStore, ItemStore
from toolscript.retrieval.text.words import replace_unencodable, words
from toolscript.services.catalogue.learning import Learning
from toolscript.services.tools.call import CallTool
from toolscript.services.tools.recent_searches import RecentSearches

# The mean of more requests hardly differs, and old ones should give way to new ones.
MAX_PER_ITEM = 32
# Of a tool's requests, so many at most are of one caller: nobody alone decides what a tool is for.
MAX_PER_CALLER = 16
# Of all requests, so many at most are of one caller. With this number in a catalogue of 5 792 tools, a run takes a few
# seconds and 40 MB.
MAX_OF_CALLER = 10_000
# Successes that wait to be written; more are dropped, as when the store does not answer.
MAX_WAITING = 64

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolFeedback:
    """What was recorded for a tool and what became of it."""

    item_id: str
    successes: list[Success]
    step: Step | None
    """None if its step was not computed yet, or the tool has changed or vanished since."""

    @property
    def requests(self) -> list[str]:
        """The requests, newest first. One that several callers sent counts once."""
        found: dict[str, str] = {}
        for success in reversed(self.successes):
            found.setdefault(success.digest, success.request)
        return list(found.values())

    @property
    def keys(self) -> dict[str, int]:
        """The number of requests by the name of the callers' key (empty: without a key), the largest first."""
        return dict(Counter(success.caller for success in self.successes).most_common())


class Feedback:
    """Records successes and reports what was learnt."""

    def __init__(
        self,
        store: FeedbackStore,
        item_store: ItemStore,
        call_tool: CallTool,
        learning: Learning,
        *,
        is_on: bool,
        recent: RecentSearches | None = None,
    ) -> None:
        self._store = store
        self._item_store = item_store
        self._call_tool = call_tool
        self._learning = learning
        self._is_on = is_on
        self._recent = recent or RecentSearches()
        self._writes: set[asyncio.Task[None]] = set()

    def note_search(self, caller: Caller, query: str, hits: Iterable[str]) -> None:
        """Remembers a search for a while, in memory."""
        if self._is_on and len(query) <= MAX_REQUEST_CHARACTERS:
            self._recent.add(caller, query, hits)

    def note_call(self, caller: Caller, item_id: str, query: str | None = None) -> None:
        """Records that the tool served this query, or else the caller's last search that found it, if there is one.
        Returns at once."""
        query = query or self._recent.find(caller, item_id)
        if query is None or not self._is_on or len(self._writes) >= MAX_WAITING:
            return
        if len(query) > MAX_REQUEST_CHARACTERS:  # before megabytes of it are looked at
            return
        success = _build_success(item_id, query, caller)
        if not _is_usable(success):
            return
        task = asyncio.create_task(self._write(success))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def mark(self, caller: Caller, item_id: str, query: str, *, useful: bool = True) -> bool:
        """Records that the tool serves such requests; unless `useful`, takes back what the same caller has recorded for
        this tool and request. Returns whether that changed what is learnt from.

        Raises NotFound for an unknown tool, Invalid for an overlong request or one without words, Unavailable where
        feedback is off.
        """
        if not self._is_on:
            raise Unavailable("feedback is switched off: TOOLSCRIPT_FEEDBACK is false")
        success = _build_success(item_id, query, caller)
        if not _is_usable(success):
            raise Invalid(
                f"the request must contain a word and have at most {MAX_REQUEST_CHARACTERS} characters",
                details={"field": "query"},
            )
        if useful:
            await self._call_tool.describe(item_id)
            await self._add(success)
            changed = True
        elif not (changed := await self._store.remove_success(success)):
            await self._call_tool.describe(item_id)  # only now: a tool that has vanished can still have marks
        self._learning.start_soon()
        return changed

    async def list(self) -> list[ToolFeedback]:
        """What was recorded, by tool, those with the largest number of requests first."""
        successes, steps = await self._store.get_successes(), await self._store.get_steps()
        items = await self._item_store.get_fingerprints(item_ids={s.item_id for s in successes})
        digests = {item.id: item.digest for item in items if item.is_active}
        by_item: dict[str, list[Success]] = {}
        for success in successes:
            by_item.setdefault(success.item_id, []).append(success)
        found = []
        for item_id, own in by_item.items():
            step = steps.get(item_id)
            is_current = step is not None and step.item_digest == digests.get(item_id)
            found.append(ToolFeedback(item_id, own, step if is_current else None))
        return sorted(found, key=lambda each: (-len(each.requests), each.item_id))

    async def get(self, item_id: str) -> ToolFeedback:
        """What was recorded for a tool. Raises NotFound if nothing was."""
        found = next((each for each in await self.list() if each.item_id == item_id), None)
        if found is None:
            raise NotFound(f"no feedback for {item_id!r}: see toolscript feedback", details={"tool": item_id})
        return found

    async def apply(self) -> None:
        """Computes all steps now. Raises Unavailable where feedback is off."""
        await self._learning.run()

    async def reset(self, item_id: str | None = None, *, key: str | None = None) -> int:
        """Forgets what was recorded for a tool (None: for all) with this key (empty: without a key, None: by all
        callers), brings back vectors, and returns the number of deleted successes."""
        item_ids = None if item_id is None else [replace_unencodable(item_id)]
        return await self._learning.reset(item_ids, caller=None if key is None else replace_unencodable(key))

    async def close(self) -> None:
        """Waits until what was recorded is written."""
        await asyncio.gather(*self._writes, return_exceptions=True)

    async def _write(self, success: Success) -> None:
        try:
            await self._add(success)
        except Exception as error:  # noqa: BLE001  (the call has been answered; nobody waits for this)
            log.warning("success_not_recorded", extra={"tool": success.item_id, "reason": str(error)})
        else:
            self._learning.start_soon()

    async def _add(self, success: Success) -> None:
        await self._store.add_success(
            success, max_per_item=MAX_PER_ITEM, max_per_caller=MAX_PER_CALLER, max_of_caller=MAX_OF_CALLER
        )


def _is_usable(success: Success) -> bool:
    return len(success.request) <= MAX_REQUEST_CHARACTERS and bool(words(success.request))


def _build_success(item_id: str, query: str, caller: Caller) -> Success:
    return Success(replace_unencodable(item_id), normalize_request(query), caller.key or "", time.time())
