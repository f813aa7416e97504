"""Damaged files of the embedded engine cost the collection that they belong to, never another one or the process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.examples import choose
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.adapters.qdrant.shard import DAMAGED
from toolscript.domain.errors import IndexDamaged
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import Collection, FieldType, Point, Terms

pytestmark = [pytest.mark.req("X-12"), pytest.mark.slow]

NAME, OTHER = "documents", "tools"
FIELDS = {"tenant": FieldType.TENANT, "n": FieldType.INTEGER}
POINTS = [
    Point(
        f"p{n}", np.eye(8, dtype=np.float32)[n % 8], Terms((1, n % 7 + 2), (1.0, 2.0)), {"tenant": f"t{n % 3}", "n": n}
    )
    for n in range(40)
]
DAMAGES: Mapping[str, Callable[[Path, int], object]] = {
    "emptied": lambda file, _: os.truncate(file, 0),
    "cut in half": lambda file, size: os.truncate(file, size // 2),
    "zeros": lambda file, size: file.write_bytes(bytes(size)),
    "noise": lambda file, size: file.write_bytes(np.random.default_rng(size).bytes(size)),
    "deleted": lambda file, _: file.unlink(),
}
# Every kind of file, as the end of its path.
FILES = (
    "collection.json",
    "edge_config.json",
    "mutable_id_tracker.mappings",
    "mutable_id_tracker.versions",
    "payload_index/config.json",
    "-n-map/bitmask.dat",
    "-n-map/config.json",
    "-n-map/gaps.dat",
    "-n-map/page_0.dat",
    "-n-map/tracker.dat",
    "-n-map/tracker_journal.dat",
    "-n-null/has_values/flags_a.dat",
    "-n-null/has_values/status.dat",
    "-n-null/is_null/status.dat",
    "-n-numeric/tracker.dat",
    "-tenant-map/tracker.dat",
    "-tenant-map/page_0.dat",
    "payload_storage/bitmask.dat",
    "payload_storage/config.json",
    "payload_storage/gaps.dat",
    "payload_storage/page_0.dat",
    "payload_storage/tracker.dat",
    "payload_storage/tracker_journal.dat",
    "segment.json",
    "-dense/deleted/flags_a.dat",
    "-dense/deleted/status.dat",
    "-dense/vectors/chunk_0.mmap",
    "-dense/vectors/config.json",
    "-dense/vectors/status.dat",
    "-terms/deleted/status.dat",
    "-terms/store/page_0.dat",
    "-terms/store/tracker.dat",
    "version.info",
    "wal/first-index",
    "wal/open-1",
)
CASES = [(file, damage) for file in FILES for damage in DAMAGES]
CHOSEN = [
    ("collection.json", "emptied"),
    ("mutable_id_tracker.mappings", "noise"),
    ("-n-map/tracker.dat", "noise"),
    ("-n-null/has_values/status.dat", "emptied"),
    ("payload_storage/page_0.dat", "emptied"),
    ("-dense/vectors/chunk_0.mmap", "cut in half"),
    ("segment.json", "deleted"),
    ("wal/open-1", "noise"),
]


async def open_index(folder: Path) -> QdrantEdgeIndex:
    index = QdrantEdgeIndex(folder)
    for name in (NAME, OTHER):
        try:
            await index.open(Collection(name, "model", 8, FIELDS))
        except IndexDamaged:
            assert name == NAME
    return index


async def damage_index(folder: Path, ending: str, damage: str) -> None:
    index = await open_index(folder)
    for name in (NAME, OTHER):
        await index.upsert(name, POINTS)
    await index.close()
    (file, *others) = [each for each in (folder / NAME).rglob("*") if str(each).endswith(ending)]
    assert not others
    DAMAGES[damage](file, file.stat().st_size)


async def use(index: QdrantEdgeIndex, name: str) -> list[str]:
    """Uses a collection in every way; returns what failed."""
    vector, of_one = np.ones(8, np.float32), Filter(must=(Condition("tenant", Op.EQ, "t1"),))
    steps: dict[str, Callable[[], object]] = {
        "count": lambda: index.count(name, of_one),
        "dense": lambda: index.dense(name, vector, where=of_one, limit=5),
        "lexical": lambda: index.lexical(name, Terms((1,), (1.0,)), limit=5),
        "match": lambda: index.match(name, Terms((1,), (1.0,)), end=5, max_total=10),
        "scroll": lambda: index.scroll(name),
        "payloads": lambda: index.payloads(name, [p.id for p in POINTS]),
        "vectors": lambda: index.vectors(name, [p.id for p in POINTS]),
        "upsert": lambda: index.upsert(name, POINTS[:3]),
        "delete": lambda: index.delete(name, [POINTS[3].id]),
    }
    failed = {}
    for step, start in steps.items():
        try:
            await start()  # type: ignore[misc]
        except IndexDamaged as error:
            failed[step] = error.message
    for message in failed.values():
        assert message.startswith(f"the index {name} is damaged (")
        assert "`toolscript index rebuild`" in message
    return [*failed]


@pytest.mark.parametrize("case", choose(CASES, *CHOSEN), ids=": ".join)
async def test_damage_costs_one_collection_which_can_be_filled_again(tmp_path: Path, case: tuple[str, str]) -> None:
    await damage_index(tmp_path, *case)
    index = await open_index(tmp_path)
    await use(index, NAME)
    assert not await use(index, OTHER)
    await index.drop(NAME)
    await index.open(Collection(NAME, "model", 8, FIELDS))
    await index.upsert(NAME, POINTS)
    assert not await use(index, NAME)
    await index.close()


async def test_a_collection_on_which_the_engine_has_failed_is_damaged_until_it_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await damage_index(tmp_path, "payload_storage/page_0.dat", "emptied")
    index = await open_index(tmp_path)
    with pytest.raises(IndexDamaged, match="Gridstore"):
        await index.scroll(NAME)
    assert len(await use(index, NAME)) == 9
    assert [record.getMessage() for record in caplog.records].count("index_damaged") == 1
    await index.close()
    assert (tmp_path / NAME / DAMAGED).exists()
    again = await open_index(tmp_path)
    with pytest.raises(IndexDamaged):
        await again.describe(NAME)
    assert len(await use(again, NAME)) == 9
    await again.drop(NAME)
    assert await again.describe(NAME) is None
    await again.close()
