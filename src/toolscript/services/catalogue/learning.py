"""Computes how far tools move toward the requests that they served and away from requests that they are wrong for, in
the background or on request. Searches order near equals by the moved vectors; the index has the vectors of the texts.

Every run computes all steps again from the vectors of the tools' texts and the recorded verdicts, so a run does not
depend on earlier runs, and where verdicts are removed their effect goes with them. See docs/decisions/0017.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from toolscript.domain.catalog import ItemFingerprint
from toolscript.domain.errors import Unavailable
from toolscript.domain.feedback import Step, Verdict
from toolscript.domain.search import Vector
from toolscript.ports.models import Embedder
from toolscript.ports.stores import FeedbackStore, ItemStore
from toolscript.retrieval.feedback_steps import StepResult, compute_steps
from toolscript.retrieval.reconcile import split_batches
from toolscript.services.catalogue.indexing import CatalogueIndex
from toolscript.services.catalogue.snapshot import Change
from toolscript.services.support.background_run import BackgroundRun

INTERVAL_SECONDS = 30.0
# Increased when steps are computed differently.
RECIPE = 1
DIGITS = 4
# Vectors of requests that are written together.
SAVE_EVERY = 64


class _Requests(NamedTuple):
    """The vectors of the requests that items served, and of requests that they are wrong for, by item and digest."""

    right: dict[str, dict[str, Vector]]
    wrong: dict[str, dict[str, Vector]]


class Learning:
    """Computes steps and writes them to store and index. One run at a time."""

    def __init__(
        self,
        item_store: ItemStore,
        feedback: FeedbackStore | None,
        index: CatalogueIndex,
        embedder: Embedder | None,
        *,
        is_on: bool,
        lock: asyncio.Lock,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        """`lock` is locked while the index is read, but not while steps are computed. In the background a run starts at
        most every `interval` seconds."""
        self._item_store = item_store
        self._feedback = feedback
        self._index = index
        self._embedder = embedder
        self._is_on = is_on and embedder is not None
        self._lock = lock
        self._running = asyncio.Lock()
        self._background = BackgroundRun(self.run, name="learning from feedback", interval=interval)

    @property
    def is_on(self) -> bool:
        """Whether steps are computed: feedback is on, and there is a model to embed requests."""
        return self._is_on and self._feedback is not None

    async def run(self) -> None:
        """Brings all steps to what the recorded verdicts say. Raises Unavailable when
        feedback is off."""
        if self._feedback is None or self._embedder is None or not self._is_on:
            raise Unavailable("no steps can be taken: TOOLSCRIPT_FEEDBACK is false, or there is no embedding model")
        async with self._running:
            before = await self._feedback.get_steps()
            verdicts = await self._feedback.get_verdicts()
            vectors = await self._embed(self._feedback, self._embedder, verdicts)
            steps = await self._compute(self._embedder.model, _group(verdicts, vectors))
            await self._apply(self._feedback, before, steps)

    async def reset(self, item_ids: Collection[str] | None = None, *, caller: str | None = None) -> int:
        """Deletes what was learnt about these items (None: all) from this caller (None: from all), and returns the
        number of deleted verdicts. Works also while feedback is off."""
        if self._feedback is None:
            return 0
        if caller is not None:
            removed = await self._feedback.remove_caller(caller, item_ids)
            if self.is_on:
                await self.run()
            return removed
        async with self._running:
            before = await self._feedback.get_steps()
            kept = {} if item_ids is None else {i: step for i, step in before.items() if i not in item_ids}
            await self._apply(self._feedback, before, kept)
            removed = await self._feedback.reset(item_ids)
        if self.is_on and item_ids is not None:  # the guard may judge steps of other tools differently now
            await self.run()
        return removed

    def start_soon(self) -> None:
        """Runs in the background."""
        if self.is_on:
            self._background.start_soon()

    async def close(self) -> None:
        """Ends the run in the background; the next one completes it."""
        await self._background.close()

    async def _embed(
        self, feedback: FeedbackStore, embedder: Embedder, verdicts: Sequence[Verdict]
    ) -> dict[str, Vector]:
        """The vectors of all requests by digest. Requests that the model has not embedded yet are embedded one at a
        time, so that searches come between them, and kept, so that a run that is interrupted does not repeat them."""
        vectors: dict[str, Vector] = {}
        missing: dict[str, str] = {}
        for verdict in verdicts:
            if verdict.vector is not None and verdict.model == embedder.model:
                vectors[verdict.digest] = verdict.vector
            else:
                missing[verdict.digest] = verdict.request
        for some in split_batches(list(missing), SAVE_EVERY):
            made = {digest: await embedder.embed_query(missing[digest]) for digest in some}
            await feedback.save_vectors(embedder.model, made)
            vectors |= made
        return vectors

    async def _compute(self, model: str, requests: _Requests) -> dict[str, Step]:
        if not requests.right and not requests.wrong:
            return {}
        async with self._lock:
            items = [item for item in await self._item_store.get_fingerprints() if item.is_active]
            vectors = await self._index.read_vectors([item.id for item in items])
        results = await asyncio.to_thread(compute_steps, vectors, requests.right, requests.wrong)
        return {i.id: _build_step(i, model, requests, results[i.id]) for i in items if i.id in results}

    async def _apply(self, feedback: FeedbackStore, before: Mapping[str, Step], steps: Mapping[str, Step]) -> None:
        """Makes these the steps of all items."""
        if steps != before:
            await feedback.replace_steps(list(steps.values()))
            self._index.on_change(Change.STEPS)


def _group(verdicts: Sequence[Verdict], vectors: Mapping[str, Vector]) -> _Requests:
    """The vectors of requests by item and digest. Where callers disagree about a request the larger number of them
    counts; with equal numbers the request counts neither way."""
    votes: Counter[tuple[str, str]] = Counter()
    for verdict in verdicts:
        votes[verdict.item_id, verdict.digest] += 1 if verdict.is_right else -1
    requests = _Requests({}, {})
    for (item_id, digest), sum_of_votes in votes.items():
        if sum_of_votes:
            group = requests.right if sum_of_votes > 0 else requests.wrong
            group.setdefault(item_id, {})[digest] = vectors[digest]
    return requests


def _build_step(item: ItemFingerprint, model: str, all_requests: _Requests, result: StepResult) -> Step:
    requests, wrong = all_requests.right.get(item.id, {}), all_requests.wrong.get(item.id, {})
    made_of = [RECIPE, model, item.digest, sorted(requests), *([sorted(wrong)] if wrong else [])]
    return Step(
        item.id,
        model,
        item.digest,
        hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32],
        len(requests),
        round(result.cosine, DIGITS),
        result.refusal,
        result.vector,
    )
