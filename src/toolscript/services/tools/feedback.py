"""Feedback: the requests that tools served or are wrong for, and what was learnt from them.

When the caller of a search then calls one of its hits, the tool has served the search; a mark says that it does, or
that it is wrong. Searches are only noted in memory; the store is written after the answer of a call, and with a mark.
Nothing here can fail a search or a call.
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
from toolscript.domain.feedback import MAX_REQUEST_CHARACTERS, Step, Verdict, normalize_request
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
# Verdicts that wait to be written; more are dropped, as when the store does not answer.
MAX_WAITING = 64

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolFeedback:
    """What was recorded for a tool and what became of it."""

    item_id: str
    verdicts: list[Verdict]
    step: Step | None
    """None if its step was not computed yet, or the tool has changed or vanished since."""

    @property
    def requests(self) -> list[str]:
        """The requests that it served, newest first. One that several callers sent counts once."""
        return self._list_requests(is_right=True)

    @property
    def wrong_requests(self) -> list[str]:
        """The requests that it is wrong for, newest first."""
        return self._list_requests(is_right=False)

    @property
    def keys(self) -> dict[str, int]:
        """The number of requests by the name of the callers' key (empty: without a key), the largest first."""
        return dict(Counter(verdict.caller for verdict in self.verdicts).most_common())

    def _list_requests(self, *, is_right: bool) -> list[str]:
        requests: dict[str, str] = {}
        for verdict in reversed(self.verdicts):
            if verdict.is_right is is_right:
                requests.setdefault(verdict.digest, verdict.request)
        return list(requests.values())


class Feedback:
    """Records verdicts and reports what was learnt."""

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
        verdict = _build_verdict(item_id, query, caller)
        if not _is_usable(verdict):
            return
        task = asyncio.create_task(self._write(verdict))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def mark(self, caller: Caller, item_id: str, query: str, *, useful: bool | None = True) -> bool:
        """Records that the tool serves such requests, or if it is not `useful` that it is wrong for them; None takes
        back what the same caller has recorded for this tool and request. Returns whether that changed what is learnt
        from.

        Raises NotFound for an unknown tool, Invalid for an overlong request or one without words, Unavailable where
        feedback is off.
        """
        if not self._is_on:
            raise Unavailable("feedback is switched off: TOOLSCRIPT_FEEDBACK is false")
        verdict = _build_verdict(item_id, query, caller, is_right=useful is not False)
        if not _is_usable(verdict):
            raise Invalid(
                f"the request must contain a word and have at most {MAX_REQUEST_CHARACTERS} characters",
                details={"field": "query"},
            )
        if useful is not None:
            await self._call_tool.describe(item_id)
            await self._add(verdict, overrules=True)
            changed = True
        elif not (changed := await self._store.remove_verdict(verdict)):
            await self._call_tool.describe(item_id)  # only now: a tool that has vanished can still have marks
        self._learning.start_soon()
        return changed

    async def list(self) -> list[ToolFeedback]:
        """What was recorded, by tool, the largest number of requests first."""
        verdicts, steps = await self._store.get_verdicts(), await self._store.get_steps()
        items = await self._item_store.get_fingerprints(item_ids={judged.item_id for judged in verdicts})
        digests = {item.id: item.digest for item in items if item.is_active}
        by_item: dict[str, list[Verdict]] = {}
        for verdict in verdicts:
            by_item.setdefault(verdict.item_id, []).append(verdict)
        feedback = []
        for item_id, item_verdicts in by_item.items():
            step = steps.get(item_id)
            is_current = step is not None and step.item_digest == digests.get(item_id)
            feedback.append(ToolFeedback(item_id, item_verdicts, step if is_current else None))
        return sorted(feedback, key=lambda entry: (-len(entry.requests), entry.item_id))

    async def get(self, item_id: str) -> ToolFeedback:
        """What was recorded for a tool. Raises NotFound if nothing was."""
        feedback = next((entry for entry in await self.list() if entry.item_id == item_id), None)
        if feedback is None:
            raise NotFound(f"no feedback for {item_id!r}: see toolscript feedback", details={"tool": item_id})
        return feedback

    async def apply(self) -> None:
        """Computes all steps now. Raises Unavailable where feedback is off."""
        await self._learning.run()

    async def reset(self, item_id: str | None = None, *, key: str | None = None) -> int:
        """Forgets what was recorded for a tool (None: for all) with this key (empty: without a key, None: by all
        callers), brings back vectors, and returns the number of deleted verdicts."""
        item_ids = None if item_id is None else [replace_unencodable(item_id)]
        return await self._learning.reset(item_ids, caller=None if key is None else replace_unencodable(key))

    async def close(self) -> None:
        """Waits until what was recorded is written."""
        await asyncio.gather(*self._writes, return_exceptions=True)

    async def _write(self, verdict: Verdict) -> None:
        try:
            await self._add(verdict, overrules=False)
        except Exception as error:  # noqa: BLE001  (the call has been answered; nobody waits for this)
            log.warning("verdict_not_recorded", extra={"tool": verdict.item_id, "reason": str(error)})
        else:
            self._learning.start_soon()

    async def _add(self, verdict: Verdict, *, overrules: bool) -> None:
        await self._store.add_verdict(
            verdict,
            max_per_item=MAX_PER_ITEM,
            max_per_caller=MAX_PER_CALLER,
            max_of_caller=MAX_OF_CALLER,
            overrules=overrules,
        )


def _is_usable(verdict: Verdict) -> bool:
    return len(verdict.request) <= MAX_REQUEST_CHARACTERS and bool(words(verdict.request))


def _build_verdict(item_id: str, query: str, caller: Caller, *, is_right: bool = True) -> Verdict:
    request = normalize_request(query)
    return Verdict(replace_unencodable(item_id), request, caller.key or "", time.time(), is_right=is_right)
