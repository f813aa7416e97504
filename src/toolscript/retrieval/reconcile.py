"""Brings a collection up to date with as little embedding as possible.

It compares the existing points with the wanted points, reuses vectors of unchanged texts, embeds the rest, upserts, and
deletes stale points. The steps are separate because callers write to a store between them: after a crash at any step,
the next comparison finds and repairs the stale points.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.domain.search import Point, Vector
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder

WRITE_BATCH = 256

Payload = Mapping[str, Any]
T = TypeVar("T")


class Draft(Protocol):
    """An object (a tool, a skill, a document, a chunk) with points that a collection should have."""

    @property
    def key(self) -> str:
        """The value of `key_field` in the object's points, or the point's id where an object has one point."""

    @property
    def texts(self) -> Mapping[str, str]:
        """The texts to embed, by digest."""

    def is_current(self, existing: Mapping[str, Payload]) -> bool:
        """Whether these points (id to payload) are exactly the object's points."""

    def build_points(self, vectors: Mapping[str, Vector]) -> Sequence[Point]:
        """The points, with vectors by the digests of their texts. Without a model, vectors may be missing."""


D = TypeVar("D", bound=Draft)


@dataclass(slots=True)
class ReconcilePlan(Generic[D]):
    """The changes to a collection. Callers may add vectors from elsewhere before `embed`."""

    stale: list[D]
    """The drafts whose points must be written."""
    gone: dict[str, list[str]]
    """The ids of points that belong to no draft, by key."""
    existing: dict[str, list[str]]
    """The ids of existing points of the stale drafts, by key."""
    vectors: dict[str, Vector] = field(default_factory=dict)
    """Vectors by the digests of their texts."""

    @property
    def missing(self) -> dict[str, str]:
        """The texts that have no vector yet, by digest."""
        return {d: text for draft in self.stale for d, text in draft.texts.items() if d not in self.vectors}

    @property
    def changes(self) -> int:
        """The number of objects that are new, changed or gone."""
        return len(self.stale) + len(self.gone)


class Reconciler:
    """Brings one collection up to date.

        drafts = [...]
        plan = await reconciler.plan(drafts, await reconciler.find(where))
        await reconciler.embed(plan)
        await reconciler.apply(plan)

    `key_field` is the payload field with a draft's key, `digest_field` the one with the digest of the embedded text.
    Without an embedder, points are written without vectors.
    """

    def __init__(
        self,
        index: VectorIndex,
        embedder: Embedder | None,
        collection: str,
        *,
        key_field: str | None = None,
        digest_field: str = "digest",
    ) -> None:
        self._index = index
        self._embedder = embedder
        self._collection = collection
        self._key_field = key_field
        self._digest_field = digest_field
        # One call at a time, first come first served: short jobs run between the batches of a long one.
        self._embedding = asyncio.Lock()

    async def find(self, where: Filter = EVERYTHING, fields: Sequence[str] | None = None) -> dict[str, Payload]:
        """The payloads (or the given fields) of the existing points, by id."""
        found = await self._index.scroll(self._collection, where=where, fields=fields)
        return {point.id: point.payload for point in found}

    async def find_by_id(self, ids: Sequence[str], fields: Sequence[str] | None = None) -> dict[str, Payload]:
        """The payloads of the points with these ids that exist."""
        found: dict[str, Payload] = {}
        for some in split_batches(ids, WRITE_BATCH):
            found |= await self._index.payloads(self._collection, some, fields)
        return found

    async def plan(self, drafts: Iterable[D], existing: Mapping[str, Payload]) -> ReconcilePlan[D]:
        """The changes that turn the existing points into exactly the points of the drafts, with the vectors that
        existing points have of the same texts."""
        groups: dict[str, dict[str, Payload]] = {}
        for point_id, payload in existing.items():
            key = str(payload.get(self._key_field)) if self._key_field else point_id
            groups.setdefault(key, {})[point_id] = payload
        wanted = {draft.key: draft for draft in drafts}
        stale = [draft for key, draft in wanted.items() if not draft.is_current(groups.get(key, {}))]
        plan = ReconcilePlan(
            stale,
            gone={key: list(points) for key, points in groups.items() if key not in wanted},
            existing={draft.key: list(groups.get(draft.key, {})) for draft in stale},
        )
        digests = {d for draft in stale for d in draft.texts}
        sources = {p[self._digest_field]: i for i, p in existing.items() if p.get(self._digest_field) in digests}
        for some in split_batches([*sources.items()], WRITE_BATCH):
            found = await self._index.vectors(self._collection, [point_id for _, point_id in some])
            plan.vectors |= {digest: found[i] for digest, i in some if i in found}
        return plan

    async def embed(self, plan: ReconcilePlan[Any], report: Callable[[int], None] | None = None) -> int:
        """Embeds the texts that have no vector yet, and returns how many; none without an embedder. `report` is called
        before every batch with the number of texts embedded so far."""
        if self._embedder is None:
            return 0
        missing, done = plan.missing, 0
        for some in split_batches([*missing], self._embedder.batch_size):
            if report:
                report(done)
            async with self._embedding:
                made = await self._embedder.embed_documents([missing[digest] for digest in some])
            plan.vectors.update(zip(some, made, strict=True))
            done += len(some)
        return done

    async def apply(self, plan: ReconcilePlan[Any]) -> None:
        """Writes the stale points, then deletes obsolete points: a search meanwhile may find both, but never
        neither."""
        obsolete = {point_id for ids in (*plan.gone.values(), *plan.existing.values()) for point_id in ids}
        for points in _gather_points(plan):
            await self._index.upsert(self._collection, points)
            obsolete.difference_update(point.id for point in points)
        for ids in split_batches(sorted(obsolete), WRITE_BATCH):
            await self._index.delete(self._collection, ids)


def split_batches(items: Sequence[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def _gather_points(plan: ReconcilePlan[Any]) -> Iterator[list[Point]]:
    """The points of the stale drafts in batches: built one batch at a time, because vectors take memory."""
    batch: list[Point] = []
    for draft in plan.stale:
        batch += draft.build_points(plan.vectors)
        while len(batch) >= WRITE_BATCH:
            yield batch[:WRITE_BATCH]
            batch = batch[WRITE_BATCH:]
    if batch:
        yield batch
