"""A process that is killed in the middle of an ingest: each document afterwards is whole, old or new, and running it
again completes it."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.fixtures.document_ingest import Ingest, sentences
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.documents import ABANDONED_AFTER_SECONDS, SqlDocuments
from toolscript.domain.documents import Document

pytestmark = pytest.mark.req("D-09")

TENANTS = ("acme", "other")
COUNT = 40
ROOT = Path(__file__).parents[2]

WRITER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.e2e.test_ingest_interrupted import write

asyncio.run(write(Path(sys.argv[1])))
"""


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


class Progress:
    """Says of every call of a port that it begins, and that it has ended: the moments to be killed at."""

    def __init__(self, port: object) -> None:
        self._port = port

    def __getattr__(self, name: str) -> object:
        found = getattr(self._port, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*arguments: object, **named: object) -> object:
            _say("begin", name)
            done = await found(*arguments, **named)
            _say("end", name)
            return done

        return call


def version_of(number: int, version: int) -> Document:
    """Lengths go up and down, some versions differ in their metadata alone, and each says which it is."""
    paragraphs = range(number % 3 + version % 3)
    return Document(
        f"d{number:02d}", f"{sentences(*paragraphs)} Version {version // 2}.", f"T{number}", {"version": version}
    )


def long_after() -> float:
    """When nobody takes a process that was killed for one that is still at work."""
    return time.time() + 2 * ABANDONED_AFTER_SECONDS


@asynccontextmanager
async def open_all(folder: Path) -> AsyncIterator[Ingest]:
    database = Database(f"sqlite:///{folder / 'store.db'}")
    index = QdrantEdgeIndex(folder / "index", optimise_from=150)
    try:
        yield await Ingest(SqlDocuments(database, clock=long_after), index, HashedEmbedder(32)).open_all()
    finally:
        await index.close()
        await database.close()


async def write(folder: Path) -> None:
    """Puts version after version, deletes some in between, until it is killed."""
    database = Database(f"sqlite:///{folder / 'store.db'}")
    store, index, embedder = (
        SqlDocuments(database),
        QdrantEdgeIndex(folder / "index", optimise_from=150),
        HashedEmbedder(32),
    )
    ingest = await Ingest(Progress(store), Progress(index), Progress(embedder)).open_all()  # type: ignore[arg-type]
    version = 1
    while True:
        for tenant in TENANTS:
            await ingest.service.put(tenant, [version_of(n, version) for n in range(COUNT)])
            await ingest.service.delete(tenant, [f"d{n:02d}" for n in range(version % 7, COUNT, 7)])
        version += 1


def _write_until_killed(folder: Path, after: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(ROOT)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(after):
            assert writer.stdout.readline(), "the writer has ended by itself"
        writer.send_signal(signal.SIGKILL)
        writer.stdout.read()


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(3))
async def test_after_a_kill_every_document_is_whole_and_running_it_again_completes_it(
    tmp_path: Path, seed: int
) -> None:
    moments = random.Random(seed)
    for _ in range(4):
        await asyncio.to_thread(_write_until_killed, tmp_path, moments.randrange(10, 160))
        async with open_all(tmp_path) as ingest:
            await ingest.service.repair()
            await ingest.assert_whole()
            for tenant in TENANTS:
                for document in await ingest.store.get_documents(tenant):
                    assert document == version_of(int(document.id[1:]), document.metadata["version"])
    async with open_all(tmp_path) as ingest:
        final = [version_of(n, 99) for n in range(COUNT)]
        await ingest.service.put("acme", final)
        assert await ingest.store.get_documents("acme") == final
        await ingest.assert_whole()
