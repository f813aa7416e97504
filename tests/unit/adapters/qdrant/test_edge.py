"""What is peculiar to the embedded engine: its folder, its lock, its optimiser, and what a crash leaves."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from toolscript.adapters.qdrant import memory_copy as qdrant_copy
from toolscript.adapters.qdrant import shard as qdrant_shard
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.domain.errors import Unavailable
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import Collection, FieldType, Point, Terms, Vector

NAME = "things"
THINGS = Collection(NAME, "model", 8, {"group": FieldType.KEYWORD})


def vector(seed: int) -> Vector:
    values = np.random.default_rng(seed).standard_normal(8).astype(np.float32)
    return np.asarray(values / np.linalg.norm(values), np.float32)


def point(n: int, version: int = 0) -> Point:
    return Point(
        f"p{n:06d}", vector(n + 100_000 * version), Terms((n % 50,), (1.0,)), {"group": f"g{n % 4}", "v": version}
    )


async def filled(folder: Path, count: int, worth_optimising: int = 20_000) -> QdrantEdgeIndex:
    index = QdrantEdgeIndex(folder, worth_optimising=worth_optimising)
    await index.open(THINGS)
    await index.upsert(NAME, [point(n) for n in range(count)])
    return index


async def found_again(folder: Path, count: int, searches_before_copy: int = 0) -> QdrantEdgeIndex:
    """An index that was filled by another: whoever fills one has a copy of it from the first point on."""
    await (await filled(folder, count)).close()
    index = QdrantEdgeIndex(folder, searches_before_copy=searches_before_copy)
    await index.open(THINGS)
    return index


async def test_points_are_there_after_closing_and_opening_again(tmp_path: Path) -> None:
    await (await filled(tmp_path, 300)).close()
    again = QdrantEdgeIndex(tmp_path)
    held = await again.describe(NAME)
    assert held == THINGS
    await again.open(THINGS)
    assert await again.count(NAME) == 300
    assert (await again.dense(NAME, vector(7), limit=1))[0].id == "p000007"
    await again.close()


@pytest.mark.req("X-05")
async def test_a_second_process_is_told_that_the_folder_is_taken(tmp_path: Path) -> None:
    first = await filled(tmp_path, 1)
    with pytest.raises(Unavailable, match=r"in use by another process.*--data-dir"):
        QdrantEdgeIndex(tmp_path)
    await first.close()
    second = QdrantEdgeIndex(tmp_path)
    await second.close()


async def test_optimising_happens_beside_the_searches_and_changes_no_answer(tmp_path: Path) -> None:
    index = await filled(tmp_path, 1500)
    before = [await index.dense(NAME, vector(n), limit=10) for n in range(20)]
    await index.close()
    index = QdrantEdgeIndex(tmp_path, worth_optimising=1000)
    await index.open(THINGS)
    await index.upsert(NAME, [point(0)])
    during = asyncio.create_task(index.wait_until_idle())
    await index.upsert(NAME, [point(n, version=1) for n in range(100, 110)])
    await index.delete(NAME, ["p000200"])
    await during
    assert [p.name for p in (tmp_path / NAME).glob("generation-*")] == ["generation-2"]
    assert await index.count(NAME) == 1499
    assert (await index.dense(NAME, point(105, version=1).vector, limit=1))[0].payload["v"] == 1  # type: ignore[arg-type]
    assert not [c for c in await index.scroll(NAME) if c.id == "p000200"]
    changed = {f"p{n:06d}" for n in range(100, 110)} | {"p000200"}
    for n, old in enumerate(before):
        if not changed & {c.id for c in old}:
            found = {c.id for c in await index.dense(NAME, vector(n), limit=10)}
            assert len(found & {c.id for c in old}) >= 9
    await index.close()


async def test_what_comes_in_while_optimising_is_optimised_in_turn(tmp_path: Path) -> None:
    index = await filled(tmp_path, 1000, worth_optimising=1000)
    await index.upsert(NAME, [point(n) for n in range(1000, 2100)])
    await index.wait_until_idle()
    assert await index.count(NAME) == 2100
    manifest = json.loads((tmp_path / NAME / "collection.json").read_text(encoding="utf-8"))
    assert 2100 - manifest["optimised"] < 1000
    assert [p.name for p in (tmp_path / NAME).glob("generation-*")] == [f"generation-{manifest['generation']}"]
    await index.close()


async def test_an_optimiser_that_cannot_run_is_told_once_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolscript.adapters.qdrant.shard._OPTIMISE", "raise SystemExit('no memory')")
    index = await filled(tmp_path, 300, worth_optimising=100)
    await index.wait_until_idle()
    await index.upsert(NAME, [point(n) for n in range(300, 500)])
    await index.wait_until_idle()
    assert [(r.message, "no memory" in r.__dict__["reason"]) for r in caplog.records] == [("optimisation_failed", True)]
    assert await index.count(NAME) == 500
    await index.close()


async def test_closing_in_the_middle_of_optimising_keeps_everything_and_complains_of_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = await filled(tmp_path, 1500, worth_optimising=1000)
    await asyncio.sleep(0)
    await index.close()
    assert caplog.records == []
    again = QdrantEdgeIndex(tmp_path)
    await again.open(THINGS)
    assert await again.count(NAME) == 1500
    assert len(list((tmp_path / NAME).glob("generation-*"))) == 1
    await again.close()


WRITER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.unit.test_qdrant_edge import NAME, THINGS, point
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex

async def main():
    index = QdrantEdgeIndex(Path(sys.argv[1]), worth_optimising=400)
    await index.open(THINGS)
    version = 1
    while True:
        for start in range(0, 500, 25):
            await index.upsert(NAME, [point(n, version) for n in range(start, start + 25)])
            print(version, start, flush=True)
        version += 1

asyncio.run(main())
"""


def _write_until_killed(folder: Path, after: int) -> tuple[int, int]:
    """Kills the writer after some lines; returns the version and place of the last batch it finished."""
    root = str(Path(__file__).parents[4])
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), root], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(after)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.readlines()
    version, start = told[-1].split()
    return int(version), int(start)


@pytest.mark.req("H-14")
@pytest.mark.parametrize("after", [1, 9, 23, 47])
async def test_a_kill_in_the_middle_of_upserts_leaves_old_or_new_points_never_garbage(
    tmp_path: Path, after: int
) -> None:
    await (await filled(tmp_path, 500)).close()
    version, start = await asyncio.to_thread(_write_until_killed, tmp_path, after)

    index = QdrantEdgeIndex(tmp_path)
    await index.open(THINGS)
    held = {c.id: c.payload for c in await index.scroll(NAME)}
    assert len(held) == 500
    for n in range(500):
        payload = held[f"p{n:06d}"]
        written = version if n < start + 25 else version - 1
        assert payload["v"] in {written, written + 1}
        own = point(n, int(payload["v"]))
        assert payload == own.payload
        (nearest,) = await index.dense(NAME, own.vector, limit=1)  # type: ignore[arg-type]
        assert nearest.id == own.id
        assert nearest.score == pytest.approx(1.0, abs=1e-3)
    await index.upsert(NAME, [point(n, 99) for n in range(500)])
    assert {c.payload["v"] for c in await index.scroll(NAME)} == {99}
    await index.close()


async def test_a_collection_that_is_searched_often_is_searched_in_memory_and_found_the_same(tmp_path: Path) -> None:
    index = await found_again(tmp_path, 600, searches_before_copy=3)
    first = Filter(must=(Condition("group", Op.IN, ["g1", "g2"]),))
    asked = [(n, limit) for n in (3, 40, 599) for limit in (1, 7)]
    by_engine = [
        await index.nearest(NAME, vector(n), where=first, limit=k, floor=0.1, count_to=90) for n, k in asked[:3]
    ]
    await index.dense(NAME, vector(0), limit=1)
    await index.wait_until_idle()
    in_memory = [
        await index.nearest(NAME, vector(n), where=first, limit=k, floor=0.1, count_to=90) for n, k in asked[:3]
    ]
    for (engine, counted), (copy, recounted) in zip(by_engine, in_memory, strict=True):
        assert counted == recounted
        assert [(c.id, c.payload) for c in copy] == [(c.id, c.payload) for c in engine]
        assert [c.score for c in copy] == pytest.approx([c.score for c in engine], abs=1e-5)
    await index.close()


async def test_whoever_fills_a_collection_searches_it_in_memory_from_the_first_search_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has to be read back from the engine while a gateway answers its first searches."""
    index = await filled(tmp_path, 300)
    await index.upsert(NAME, [point(7, version=1)])
    await index.delete(NAME, ["p000008"])
    for name in ("_search", "_request"):  # the way to the engine
        monkeypatch.delattr(qdrant_shard.Shard, name)
    for _ in range(5):
        found = await index.dense(NAME, vector(100_007), limit=300)
        assert (found[0].id, found[0].payload["v"], len(found)) == ("p000007", 1, 299)
    await index.close()


async def test_what_is_in_memory_is_read_there_and_the_rest_from_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = await filled(tmp_path, 50)
    await index.upsert(NAME, [Point("words", None, Terms((1,), (1.0,)), {"group": "g9", "tags": ("a", "b")})])
    ids = ["p000003", "words", "nobody", "p000049"]
    told = await index.payloads(NAME, ids, ["group", "tags"])
    assert told == {
        "p000003": {"group": "g3"},
        "words": {"group": "g9", "tags": ["a", "b"]},
        "p000049": {"group": "g1"},
    }
    monkeypatch.setattr(qdrant_shard, "_dense", None)  # the way to the engine's vectors
    held = await index.vectors(NAME, ids)
    assert held.keys() == {"p000003", "p000049"}
    assert np.allclose(held["p000003"], vector(3), atol=1e-6)
    held["p000003"][:] = 0
    told["p000003"]["group"] = "changed"  # type: ignore[index]
    assert (await index.dense(NAME, vector(3), limit=1))[0].payload["group"] == "g3"
    await index.close()


@pytest.mark.parametrize("grown_while", ["it is filled", "a copy is made"])
async def test_a_copy_that_becomes_too_large_is_let_go_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grown_while: str
) -> None:
    monkeypatch.setattr(qdrant_copy, "MOST_POINTS", 400)
    if grown_while == "it is filled":
        index = await filled(tmp_path, 401)
    else:
        index = await found_again(tmp_path, 390)
        await index.dense(NAME, vector(1), limit=1)  # begins the copy
        await index.upsert(NAME, [point(n) for n in range(401)])
    await index.wait_until_idle()
    assert index._shards[NAME]._copy._copy is None
    assert len(await index.dense(NAME, vector(1), limit=500)) == 401
    await index.close()


async def test_what_is_written_while_a_copy_is_made_is_what_is_found_in_it(tmp_path: Path) -> None:
    index = await found_again(tmp_path, 500)
    await index.dense(NAME, vector(1), limit=1)  # begins the copy
    await asyncio.sleep(0)
    await index.upsert(NAME, [point(n, version=1) for n in (0, 250, 499)])
    await index.delete(NAME, ["p000010", "p000490"])
    await index.wait_until_idle()
    for n in (0, 250, 499):
        (best,) = await index.dense(NAME, vector(n + 100_000), limit=1)
        assert (best.id, best.payload["v"]) == (f"p{n:06d}", 1)
    found = {c.id for c in await index.dense(NAME, vector(10), limit=500)}
    assert len(found) == 498
    assert not found & {"p000010", "p000490"}
    await index.close()


async def test_others_have_most_of_the_time_while_a_copy_is_made(tmp_path: Path) -> None:
    """The first searches of a gateway would otherwise take a tenth of a second each."""
    index = await found_again(tmp_path, 40 * qdrant_shard.COPY_PAGE)
    await index.dense(NAME, vector(1), limit=1)  # begins the copy
    making = asyncio.create_task(index.wait_until_idle())
    turns = 0
    while not making.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 400
    await index.close()


@pytest.mark.parametrize("was_there", [False, True])
async def test_a_collection_that_outgrows_memory_is_searched_by_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_there: bool
) -> None:
    monkeypatch.setattr(qdrant_copy, "MOST_POINTS", 100)
    index = await (found_again if was_there else filled)(tmp_path, 100)
    await index.dense(NAME, vector(1), limit=1)
    await index.wait_until_idle()
    await index.upsert(NAME, [point(n) for n in range(100, 130)])
    assert [(await index.dense(NAME, vector(n), limit=1))[0].id for n in (5, 120, 129)] == [
        "p000005",
        "p000120",
        "p000129",
    ]
    await index.close()


async def test_a_search_for_ids_alone_finds_them_however_many_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qdrant_shard, "MOST_NAMES", 25)
    index = await filled(tmp_path, 60)
    for n in (3, 40, 3, 59):
        whole = await index.dense(NAME, vector(n), limit=20)
        bare = await index.dense(NAME, vector(n), limit=20, fields=())
        assert [(c.id, c.score, c.payload) for c in bare] == [(c.id, c.score, {}) for c in whole]
    await index.close()
