"""After a reconciliation a collection has exactly the wanted points, and no text is embedded twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.domain.errors import Unavailable
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.domain.search import Collection, Point, Terms, Vector
from toolscript.retrieval import reconcile
from toolscript.retrieval.reconcile import Reconciler, split_batches

NAME = "things"


@dataclass(frozen=True)
class Thing:
    """Several texts, each of them a point."""

    key: str
    words: tuple[str, ...]

    @property
    def texts(self) -> dict[str, str]:
        return {digest(word): word for word in self.words}

    def is_current(self, existing: Mapping[str, Mapping[str, Any]]) -> bool:
        return existing == {point.id: point.payload for point in self.build_points({})}

    def build_points(self, vectors: Mapping[str, Vector]) -> list[Point]:
        return [
            Point(f"{self.key}#{n}", vectors.get(digest(word)), Terms(), {"key": self.key, "digest": digest(word)})
            for n, word in enumerate(self.words)
        ]


class CountingEmbedder(HashedEmbedder):
    """Notes what it embeds, batch by batch; fails while `is_broken`."""

    def __init__(self) -> None:
        super().__init__(16)
        self.batches: list[list[str]] = []
        self.is_broken = False

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        if self.is_broken:
            raise Unavailable("out of order")
        self.batches.append(list(texts))
        return await super().embed_documents(texts)

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.batches for text in batch]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def open_index() -> MemoryIndex:
    index = MemoryIndex()
    await index.open(Collection(NAME, "hashed", 16))
    return index


async def run(reconciler: Reconciler, things: Sequence[Thing], where: Filter = EVERYTHING) -> int:
    plan = await reconciler.plan(things, await reconciler.find(where))
    await reconciler.embed(plan)
    await reconciler.apply(plan)
    return plan.changes


def build_reconciler(index: MemoryIndex, embedder: HashedEmbedder | None) -> Reconciler:
    return Reconciler(index, embedder, NAME, key_field="key")


words = st.sampled_from(["red", "green", "blue", "black", "white"])
things = st.dictionaries(st.sampled_from("abcd"), st.lists(words, min_size=1, max_size=4).map(tuple))
wholes = things.map(lambda made: [Thing(key, own) for key, own in made.items()])


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(before=wholes, lost=st.sets(st.integers(0, 15)), wanted=wholes)
async def test_a_collection_gets_exactly_the_wanted_points_and_only_new_texts_are_embedded(
    before: list[Thing], lost: set[int], wanted: list[Thing]
) -> None:
    index, embedder = await open_index(), CountingEmbedder()
    reconciler = build_reconciler(index, embedder)
    await run(reconciler, before)
    ids = sorted(await reconciler.find())
    await index.delete(NAME, [point_id for n, point_id in enumerate(ids) if n in lost])
    known = {payload["digest"] for payload in (await reconciler.find()).values()}
    embedder.batches.clear()

    await run(reconciler, wanted)

    points = {point.id: point for thing in wanted for point in thing.build_points({})}
    assert await reconciler.find() == {point_id: point.payload for point_id, point in points.items()}
    vectors = await index.vectors(NAME, [*points])
    for thing in wanted:
        for n, expected in enumerate(await HashedEmbedder(16).embed_documents(thing.words)):
            assert np.allclose(vectors[f"{thing.key}#{n}"], expected, atol=1e-6)
    new = {word for thing in wanted for word in thing.words if digest(word) not in known}
    assert sorted(embedder.texts) == sorted(new)
    assert await run(reconciler, wanted) == 0
    assert sorted(embedder.texts) == sorted(new)


async def test_points_outside_the_filter_are_left_alone() -> None:
    index, embedder = await open_index(), CountingEmbedder()
    reconciler = build_reconciler(index, embedder)
    await run(reconciler, [Thing("a", ("red",)), Thing("b", ("blue",))])
    assert await run(reconciler, [], Filter(must=(Condition("key", Op.EQ, "a"),))) == 1
    assert list(await reconciler.find()) == ["b#0"]


async def test_a_model_that_fails_leaves_the_collection_as_it_was() -> None:
    index, embedder = await open_index(), CountingEmbedder()
    reconciler = build_reconciler(index, embedder)
    await run(reconciler, [Thing("a", ("red",))])
    before = await reconciler.find()
    embedder.is_broken = True
    with pytest.raises(Unavailable):
        await run(reconciler, [Thing("a", ("green",)), Thing("b", ("blue",))])
    assert await reconciler.find() == before


async def test_a_crash_while_writing_is_repaired_by_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "WRITE_BATCH", 2)
    index, embedder = await open_index(), CountingEmbedder()
    reconciler = build_reconciler(index, embedder)
    await run(reconciler, [Thing("a", ("red", "green", "blue")), Thing("b", ("black",))])
    wanted = [Thing("a", ("white", "red", "green", "blue", "black"))]
    upsert, calls = index.upsert, iter([True, False])

    async def crash(name: str, points: Sequence[Point]) -> None:
        if not next(calls):
            raise OSError("power cut")
        await upsert(name, points)

    with monkeypatch.context() as patch:
        patch.setattr(index, "upsert", crash)
        with pytest.raises(OSError, match="power cut"):
            await run(reconciler, wanted)
    assert await run(reconciler, wanted) == 2
    assert sorted(await reconciler.find()) == [f"a#{n}" for n in range(5)]
    assert embedder.texts.count("white") == 1


async def test_texts_with_vectors_from_elsewhere_are_not_embedded() -> None:
    index, embedder = await open_index(), CountingEmbedder()
    reconciler = build_reconciler(index, embedder)
    plan = await reconciler.plan([Thing("a", ("red", "blue"))], {})
    assert sorted(plan.missing.values()) == ["blue", "red"]
    plan.vectors[digest("red")] = await embedder.embed_query("red")
    assert await reconciler.embed(plan) == 1
    await reconciler.apply(plan)
    assert embedder.texts == ["blue"]


async def test_without_a_model_points_have_no_vectors() -> None:
    index = await open_index()
    reconciler = build_reconciler(index, None)
    assert await run(reconciler, [Thing("a", ("red",))]) == 1
    assert list(await reconciler.find()) == ["a#0"]
    assert await index.vectors(NAME, ["a#0"]) == {}


async def test_texts_are_embedded_in_batches_of_the_embedders_size_and_each_is_reported() -> None:
    index, embedder = await open_index(), CountingEmbedder()
    embedder.batch_size = 2
    reconciler = build_reconciler(index, embedder)
    plan = await reconciler.plan([Thing("a", ("red", "green", "blue", "red"))], {})
    reported: list[int] = []
    assert await reconciler.embed(plan, reported.append) == 3
    assert (embedder.batches, reported) == ([["red", "green"], ["blue"]], [0, 2])


async def test_points_are_found_by_id_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "WRITE_BATCH", 2)
    index, embedder = await open_index(), CountingEmbedder()
    reconciler = build_reconciler(index, embedder)
    await run(reconciler, [Thing("a", ("red", "green", "blue"))])
    assert sorted(await reconciler.find_by_id(["a#0", "a#1", "a#2", "b#0"])) == ["a#0", "a#1", "a#2"]


@pytest.mark.parametrize(("size", "expected"), [(2, [[1, 2], [3]]), (3, [[1, 2, 3]]), (9, [[1, 2, 3]])])
def test_batches_have_up_to_the_given_size(size: int, expected: list[list[int]]) -> None:
    batches: Iterator[list[int]] = split_batches([1, 2, 3], size)
    assert list(batches) == expected
