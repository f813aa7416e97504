"""A catalogue with an index and a sync between them, from real adapters; what they hold, to be compared; and a fuse
that lets any call of theirs fail."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.sql_catalog import SqlCatalog
from toolscript.adapters.sql_database import Database
from toolscript.domain.catalog import Assignment, Classification, Item, Origin, Skill
from toolscript.domain.search import Vector
from toolscript.ports import CatalogStore, Classifier, Embedder, VectorIndex
from toolscript.services.classify import EmbeddingClassifier
from toolscript.services.skill_points import SKILLS, skills_collection
from toolscript.services.skills import Skills
from toolscript.services.sync import Sync
from toolscript.services.tool_points import TOOLS, tools_collection

T = TypeVar("T")
NEAR = 1e-5
HALVES = ("upsert", "delete")

FILES = Skill("files", "Files", "Read and write files and folders", keywords=("file", "folder"))
MAIL = Skill("mail", "Mail", "Send and receive email messages", keywords=("email", "message"))
MONEY = Skill("money", "Money", "Payments and invoices", keywords=("payment", "invoice"))

READ = Item("disk", "read_file", "Read a file")
WRITE = Item("disk", "write_file", "Write a file")
LIST = Item("disk", "list_folder", "List a folder of files")
SEND = Item("post", "send_email", "Send an email message")
FETCH = Item("post", "fetch_email", "Fetch an email message")
SAVE = Item("post", "save_file", "Save a file")
STRANGE = Item("zoo", "feed_zebra", "Hay for zebras")
ITEMS = [READ, WRITE, LIST, SEND, FETCH, SAVE, STRANGE]


class Fuse:
    """Lets the n-th call of whatever it is put around fail, once. Half of what was to be written may be by then."""

    def __init__(self, *, halfway: bool = False) -> None:
        self.halfway = halfway
        self.left = -1
        self.burnt_at = ""

    def around(self, port: T) -> T:
        return cast(T, _Fused(port, self))

    def burns(self, call: str) -> bool:
        self.left -= 1
        self.burnt_at = call if self.left == 0 else self.burnt_at
        return self.left == 0


class _Fused:
    def __init__(self, port: Any, fuse: Fuse) -> None:
        self._port = port
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*arguments: Any, **named: Any) -> Any:
            if self._fuse.burns(name):
                if self._fuse.halfway and name in HALVES:
                    collection, rows = arguments
                    await found(collection, rows[: len(rows) // 2])
                raise ConnectionError(f"cut off at {name}")
            return await found(*arguments, **named)

        return call


class CountingEmbedder(HashedEmbedder):
    """Remembers what it was asked to embed."""

    def __init__(self, dimensions: int = 32) -> None:
        super().__init__(dimensions)
        self.embedded: list[str] = []

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        self.embedded += texts
        return await super().embed_documents(texts)


class ScriptedRefiner:
    """Says of each item what it was told to say, of others nothing; remembers what it was asked."""

    def __init__(self, places: Mapping[str, Sequence[tuple[str, float]] | None]) -> None:
        self.places = dict(places)
        self.asked: list[str] = []

    async def classify(
        self, items: Sequence[tuple[Item, Vector]], skills: Sequence[Skill]
    ) -> list[Classification | None]:
        self.asked += [item.id for item, _ in items]
        return [self._said(item) for item, _ in items]

    def _said(self, item: Item) -> Classification | None:
        places = self.places.get(item.id)
        if places is None:
            return None
        return Classification(tuple(Assignment(s, c, n == 0, Origin.LLM) for n, (s, c) in enumerate(places)))


class House:
    """Everything that a sync needs. `restarted` is the same with another process's sync."""

    def __init__(
        self,
        *,
        catalog: CatalogStore | None = None,
        index: VectorIndex | None = None,
        embedder: Embedder | None = None,
        refiner: Classifier | None = None,
        refine_every: float = 0.0,
        fuse: Fuse | None = None,
    ) -> None:
        self.catalog = catalog or SqlCatalog(Database("sqlite://"))
        self.index = index or MemoryIndex()
        self.embedder = embedder or CountingEmbedder()
        self.refiner = refiner
        self.refine_every = refine_every
        self.fuse = fuse or Fuse()
        self.told = 0
        self.start()

    def start(self) -> None:
        around = self.fuse.around
        embedder = around(self.embedder)
        self.sync = Sync(
            around(self.catalog),
            around(self.index),
            embedder,
            classifier=EmbeddingClassifier(embedder),
            refiner=self.refiner,
            refine_every=self.refine_every,
            on_indexed=self._indexed,
        )
        self.skills = Skills(self.catalog, self.sync)

    async def opened(self, *skills: Skill) -> House:
        for make in (tools_collection, skills_collection):
            await self.index.open(make(self.embedder.model, self.embedder.dimensions))
        await self.catalog.save_skills(skills)
        return self

    async def assigned(self, item: Item) -> list[tuple[str, Origin]]:
        (stored,) = await self.catalog.items([item.id])
        return [(a.skill_id, a.origin) for a in stored.assignments]

    async def skill_points(self) -> dict[str, tuple[Mapping[str, Any], Vector]]:
        """Of every point of a skill its payload and vector."""
        found = await self.index.scroll(SKILLS)
        vectors = await self.index.vectors(SKILLS, [c.id for c in found])
        return {c.id: (c.payload, vectors[c.id]) for c in found}

    async def dump(self) -> dict[str, Any]:
        """Everything that store and index hold, less what only the order of events decides."""
        return {**await self.stored(), **await contents(self.index)}

    async def stored(self) -> dict[str, Any]:
        items = {s.item.id: (s.item, s.is_active) for s in await self.catalog.items(active_only=False)}
        marks = {m.id: (m.digest, m.classified, m.assignments) for m in await self.catalog.marks() if m.is_active}
        suggested = sorted((s.source_item_id or "", s.name, s.status) for s in await self.catalog.suggestions())
        return {
            "items": {i for i, (_, is_active) in items.items() if is_active},
            "marks": marks,
            "skills": await self.catalog.skills(active_only=False),
            "suggestions": suggested,
        }

    async def assert_index_is_current(self) -> None:
        """Nothing in the store waits to be sorted, and an index made anew from it would be the same."""
        fresh = await House(catalog=self.catalog, embedder=HashedEmbedder(self.embedder.dimensions)).opened()
        made = await fresh.sync.index_catalogue()
        assert made.classified == 0
        assert await contents(self.index) == await contents(fresh.index)

    async def close(self) -> None:
        await self.sync.close()
        await self.index.close()
        await self.catalog.close()

    def _indexed(self) -> None:
        self.told += 1


class Near:
    """Vectors that equal others when each has one of theirs beside it: engines may change the last digit of a number,
    and with it the order of what is equally good."""

    def __init__(self, rows: Sequence[Sequence[float]]) -> None:
        self._rows = np.array(rows, dtype=np.float64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Near) or self._rows.shape != other._rows.shape:
            return False
        apart = np.abs(self._rows[:, None] - other._rows[None]).max(axis=2)
        return bool((apart.min(axis=0) < NEAR).all() and (apart.min(axis=1) < NEAR).all())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Near({self._rows.round(3).tolist()})"


async def contents(index: VectorIndex) -> dict[str, Any]:
    """What an index holds of tools and of skills, less the numbers that the store gives to items."""
    held: dict[str, dict[tuple[str, str], list[list[float]]]] = {TOOLS: {}, SKILLS: {}}
    for name, points in held.items():
        found = await index.scroll(name)
        vectors = await index.vectors(name, [c.id for c in found])
        for point in found:
            left_out = {"db_id", "fingerprint"} if name == TOOLS else {"tightness"}
            payload = sorted((k, v) for k, v in point.payload.items() if k not in left_out)
            row = [*vectors[point.id].tolist(), float(point.payload.get("tightness", 0))]
            points.setdefault((point.id.partition("#")[0], repr(payload)), []).append(row)
    return {name: {key: Near(rows) for key, rows in points.items()} for name, points in held.items()}


class Events:
    """Keeps what it is told, or fails."""

    def __init__(self) -> None:
        self.told: list[Mapping[str, Any]] = []
        self.broken = False

    def record(self, event: Mapping[str, Any]) -> None:
        if self.broken:
            raise ConnectionError("down")
        self.told.append(event)

    async def close(self) -> None: ...
