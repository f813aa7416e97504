"""The embedded engine is not asked to write to a full disk: it would end the process."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Collection, Point, Terms

TOOLS = Collection("tools", "model", 4, {})
POINT = Point("git__log", np.ones(4, dtype=np.float32), Terms((), ()), {})
Usage = namedtuple("Usage", "total used free")


def set_free_space(monkeypatch: pytest.MonkeyPatch, megabytes: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**40, 2**40, megabytes * 2**20))


async def test_a_shard_is_not_opened_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_free_space(monkeypatch, 20)
    index = QdrantEdgeIndex(tmp_path / "index")
    await index.open(TOOLS)
    with pytest.raises(Unavailable, match="disk full: 20 MB free, 64 MB needed"):
        await index.upsert("tools", [POINT])
    assert not (tmp_path / "index" / "tools").exists()
    set_free_space(monkeypatch, 2000)
    await index.upsert("tools", [POINT])
    assert await index.count("tools") == 1
    await index.close()


async def test_an_open_shard_is_searched_but_not_written_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = QdrantEdgeIndex(tmp_path / "index")
    await index.open(TOOLS)
    await index.upsert("tools", [POINT])
    set_free_space(monkeypatch, 3)
    with pytest.raises(Unavailable, match="disk full: 3 MB free"):
        await index.upsert("tools", [POINT])
    with pytest.raises(Unavailable, match="disk full: 3 MB free"):
        await index.delete("tools", [POINT.id])
    assert [hit.id for hit in await index.dense("tools", np.ones(4, dtype=np.float32), limit=1)] == [POINT.id]
    await index.close()
