"""What only the embedded engine has: its folder, its lock, its optimiser, and recovery after a crash."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.examples import choose
from tests.fixtures.limits import set_limits
from toolscript.adapters.qdrant import shard as qdrant_shard
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.domain.errors import Unavailable
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


async def fill(folder: Path, count: int, optimise_from: int = 20_000) -> QdrantEdgeIndex:
    index = QdrantEdgeIndex(folder, optimise_from=optimise_from)
    await index.open(THINGS)
    await index.upsert(NAME, [point(n) for n in range(count)])
    return index


async def test_points_survive_closing_and_opening_again(tmp_path: Path) -> None:
    await (await fill(tmp_path, 300)).close()
    again = QdrantEdgeIndex(tmp_path)
    assert await again.describe(NAME) == THINGS
    await again.open(THINGS)
    assert await again.count(NAME) == 300
    assert (await again.dense(NAME, vector(7), limit=1))[0].id == "p000007"
    await again.close()


@pytest.mark.req("X-07")
async def test_an_index_of_a_newer_version_is_refused_until_it_is_dropped(tmp_path: Path) -> None:
    await (await fill(tmp_path, 1)).close()
    manifest = tmp_path / NAME / "collection.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 2}))
    index = QdrantEdgeIndex(tmp_path)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"the index things has format 2, .* reads up to 1: install a newer"):
            await index.describe(NAME)
    await index.drop(NAME)
    await index.open(THINGS)
    assert await index.count(NAME) == 0
    await index.close()


@pytest.mark.req("X-07")
async def test_an_index_without_a_format_is_of_the_first(tmp_path: Path) -> None:
    await (await fill(tmp_path, 1)).close()
    manifest = tmp_path / NAME / "collection.json"
    document = json.loads(manifest.read_text())
    assert document.pop("format") == 1
    manifest.write_text(json.dumps(document))
    index = QdrantEdgeIndex(tmp_path)
    await index.open(THINGS)
    assert await index.count(NAME) == 1
    await index.close()


@pytest.mark.req("X-05")
async def test_a_folder_in_use_cannot_be_opened_again(tmp_path: Path) -> None:
    first = await fill(tmp_path, 1)
    with pytest.raises(Unavailable, match=r"in use by another process.*--data-dir"):
        QdrantEdgeIndex(tmp_path)
    await first.close()
    second = QdrantEdgeIndex(tmp_path)
    await second.close()


@pytest.mark.req("X-07")
async def test_a_drop_that_is_killed_halfway_leaves_a_folder_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def remove_half(folder: Path) -> None:
        remove_tree(folder / "generation-1" / "segments")
        raise Killed

    index, remove_tree = await fill(tmp_path, 3), shutil.rmtree
    with monkeypatch.context() as patch:
        patch.setattr("toolscript.adapters.qdrant.edge.shutil.rmtree", remove_half)
        with pytest.raises(Killed):
            await index.drop(NAME)
    await index.close()
    again = QdrantEdgeIndex(tmp_path)
    await again.open(THINGS)
    assert await again.count(NAME) == 0
    await again.close()


@pytest.mark.slow
async def test_optimising_runs_beside_searches_and_changes_no_result(tmp_path: Path) -> None:
    index = await fill(tmp_path, 1500)
    before = [await index.dense(NAME, vector(n), limit=10) for n in range(20)]
    await index.close()
    index = QdrantEdgeIndex(tmp_path, optimise_from=1000)
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


@pytest.mark.slow
async def test_points_written_during_optimisation_are_optimised_next(tmp_path: Path) -> None:
    index = await fill(tmp_path, 1000, optimise_from=1000)
    await index.upsert(NAME, [point(n) for n in range(1000, 2100)])
    await index.wait_until_idle()
    assert await index.count(NAME) == 2100
    manifest = json.loads((tmp_path / NAME / "collection.json").read_text(encoding="utf-8"))
    assert 2100 - manifest["optimised"] < 1000
    assert [p.name for p in (tmp_path / NAME).glob("generation-*")] == [f"generation-{manifest['generation']}"]
    await index.close()


def read_optimised(folder: Path) -> int:
    """How many points the last optimisation had."""
    return int(json.loads((folder / NAME / "collection.json").read_text(encoding="utf-8"))["optimised"])


@pytest.mark.slow
@pytest.mark.req("F-05")
async def test_while_points_keep_coming_a_large_index_is_optimised_when_it_has_grown_by_half(tmp_path: Path) -> None:
    index = await fill(tmp_path, 800, optimise_from=100)
    await index.wait_until_idle()
    assert read_optimised(tmp_path) == 800
    await index.upsert(NAME, [point(n) for n in range(800, 1100)])
    assert read_optimised(tmp_path) == 800
    assert not (tmp_path / NAME / "generation-3").exists()
    await index.upsert(NAME, [point(n) for n in range(1100, 1200)])
    await index.wait_until_idle()
    assert read_optimised(tmp_path) == 1200
    await index.close()


@pytest.mark.slow
@pytest.mark.req("F-05")
async def test_the_rest_is_optimised_when_writers_pause_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = await fill(tmp_path, 800, optimise_from=100)
    await index.wait_until_idle()
    await index.upsert(NAME, [point(n) for n in range(800, 1000)])
    await index.close()
    set_limits(monkeypatch, optimise_after=0.0)
    again = QdrantEdgeIndex(tmp_path, optimise_from=100)
    await again.open(THINGS)
    assert await again.count(NAME) == 1000
    async with asyncio.timeout(60):
        while read_optimised(tmp_path) != 1000:  # noqa: ASYNC110  (nothing tells when it is done)
            await asyncio.sleep(0.01)
    await again.close()


@pytest.mark.slow
async def test_an_optimiser_that_fails_is_logged_once_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolscript.adapters.qdrant.shard._OPTIMISE", "raise SystemExit('no memory')")
    index = await fill(tmp_path, 300, optimise_from=100)
    await index.wait_until_idle()
    await index.upsert(NAME, [point(n) for n in range(300, 500)])
    await index.wait_until_idle()
    assert [(r.message, "no memory" in r.__dict__["reason"]) for r in caplog.records] == [("optimisation_failed", True)]
    assert await index.count(NAME) == 500
    await index.close()


@pytest.mark.slow
async def test_closing_during_optimisation_keeps_every_point_and_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = await fill(tmp_path, 1500, optimise_from=1000)
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
from tests.unit.adapters.qdrant.test_edge import NAME, THINGS, point
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex

async def main():
    index = QdrantEdgeIndex(Path(sys.argv[1]), optimise_from=400)
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
        lines = [writer.stdout.readline() for _ in range(after)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
    version, start = lines[-1].split()
    return int(version), int(start)


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.req("H-14")
@pytest.mark.parametrize("after", choose([1, 9, 23, 47], 9))
async def test_a_kill_during_upserts_leaves_each_point_old_or_new(tmp_path: Path, after: int) -> None:
    await (await fill(tmp_path, 500)).close()
    version, start = await asyncio.to_thread(_write_until_killed, tmp_path, after)

    index = QdrantEdgeIndex(tmp_path)
    await index.open(THINGS)
    stored = {c.id: c.payload for c in await index.scroll(NAME)}
    assert len(stored) == 500
    for n in range(500):
        payload = stored[f"p{n:06d}"]
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


async def test_payloads_and_vectors_are_read_by_id(tmp_path: Path) -> None:
    index = await fill(tmp_path, 50)
    await index.upsert(NAME, [Point("words", None, Terms((1,), (1.0,)), {"group": "g9", "tags": ("a", "b")})])
    ids = ["p000003", "words", "unknown", "p000049"]
    assert await index.payloads(NAME, ids, ["group", "tags"]) == {
        "p000003": {"group": "g3"},
        "words": {"group": "g9", "tags": ["a", "b"]},
        "p000049": {"group": "g1"},
    }
    vectors = await index.vectors(NAME, ids)
    assert vectors.keys() == {"p000003", "p000049"}
    assert np.allclose(vectors["p000003"], vector(3), atol=1e-6)
    await index.close()


async def test_a_search_without_payloads_finds_ids_beyond_the_size_of_their_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qdrant_shard, "MAX_CACHED_IDS", 25)
    index = await fill(tmp_path, 60)
    for n in (3, 40, 3, 59):
        whole = await index.dense(NAME, vector(n), limit=20)
        bare = await index.dense(NAME, vector(n), limit=20, fields=())
        assert [(c.id, c.score, c.payload) for c in bare] == [(c.id, c.score, {}) for c in whole]
    await index.close()
