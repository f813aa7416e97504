"""Knowledge that was ingested before words were compared gets its terms in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fixtures.catalogue import CountingEmbedder
from tests.fixtures.knowledge_search import DECISION, GARDENS, HARBOUR, MOON, ROSES, TIDES, WARNING, Library, chunk
from tests.fixtures.limits import set_limits
from toolscript.adapters.files.reader import FileBooks
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.domain.errors import Unavailable
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.knowledge import SourceStatus
from toolscript.domain.search import Point, TermCounts, Terms
from toolscript.services.knowledge.ingest import IngestKnowledge
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS, of_source
from toolscript.services.knowledge.search import KnowledgeQuery
from toolscript.services.knowledge.source_writer import SourceWriter
from toolscript.settings import Settings
from toolscript.surfaces.cli.commands import gateway

pytestmark = pytest.mark.req("F-03", "K-05")

OUTDATED = Filter(must=(Condition("terms", Op.EXISTS, value=False),))


def build_ingest(library: Library) -> IngestKnowledge:
    return IngestKnowledge(library.store, library.index, library.embedder, FileBooks())


async def forget_terms(library: Library, *without: str) -> None:
    """Makes the points those of a version that had no terms, and lacks these fields, too."""
    for name in (CHUNKS, EXTRACTIONS):
        found = await library.index.scroll(name)
        vectors = await library.index.vectors(name, [each.id for each in found])
        payloads = {e.id: {k: v for k, v in e.payload.items() if k not in {"terms", *without}} for e in found}
        await library.index.upsert(name, [Point(i, vectors[i], Terms(), each) for i, each in payloads.items()])
    for source in await library.store.list_sources():
        await library.store.set_term_counts(source.id, TermCounts(0, {}))


@pytest.fixture
async def earlier() -> Library:
    """A library of an earlier version: two books without terms."""
    library = Library(embedder=CountingEmbedder())
    writer = SourceWriter(library.store, library.index, library.embedder)
    await writer.save(TIDES, [MOON, HARBOUR], [WARNING])
    await writer.save(GARDENS, [ROSES], [DECISION])
    await forget_terms(library)
    return library


async def count_outdated(library: Library) -> tuple[int, int]:
    return await library.index.count(CHUNKS, OUTDATED), await library.index.count(EXTRACTIONS, OUTDATED)


async def test_earlier_knowledge_gets_its_terms_without_embedding_anything(earlier: Library) -> None:
    expected = [(hit.id, hit.score) for hit in (await earlier.search.search(KnowledgeQuery("moon"))).hits]
    embedded = list(earlier.embedder.embedded)
    assert await build_ingest(earlier).repair() == 2
    assert earlier.embedder.embedded == embedded
    assert await count_outdated(earlier) == (0, 0)
    found = await earlier.search.search(KnowledgeQuery("moon"))
    assert (found.has_words, found.hits[0].id) == (True, MOON.id)
    assert dict(expected) == {hit.id: hit.score for hit in found.hits}
    assert (await earlier.store.count_terms([])).documents == 3
    assert await build_ingest(earlier).repair() == 0


@pytest.mark.slow
async def test_the_first_thing_that_a_started_gateway_does_may_be_to_renew_terms(tmp_path: Path) -> None:
    library = Library(embedder=CountingEmbedder())
    for is_first_run in (True, False):
        index = QdrantEdgeIndex(tmp_path)
        writer = SourceWriter(library.store, index, library.embedder)
        if is_first_run:
            await writer.save(TIDES, [MOON, HARBOUR], [WARNING])
        else:
            ingest = IngestKnowledge(library.store, index, library.embedder, FileBooks())
            assert await ingest.repair() == 0
        await index.close()


async def test_after_an_interruption_only_the_rest_is_renewed(
    earlier: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew = SourceWriter.repair
    done: list[str] = []

    async def renew_one(self: SourceWriter, source_id: str, *counts: int, completing: bool) -> bool:
        if done:
            raise asyncio.CancelledError
        done.append(source_id)
        return await renew(self, source_id, *counts, completing=completing)

    with monkeypatch.context() as patch:
        patch.setattr(SourceWriter, "repair", renew_one)
        with pytest.raises(asyncio.CancelledError):
            await build_ingest(earlier).repair()
    assert sum(await count_outdated(earlier)) in {2, 3}
    assert await build_ingest(earlier).repair() == 1
    assert await count_outdated(earlier) == (0, 0)


async def test_points_of_other_programs_stay_as_they_are(earlier: Library) -> None:
    await forget_terms(earlier, "digest")
    assert await build_ingest(earlier).repair() == 0
    assert await count_outdated(earlier) == (3, 2)


async def test_what_would_have_to_be_embedded_again_is_left_alone(earlier: Library) -> None:
    await earlier.store.replace(GARDENS, [chunk(GARDENS, "another text altogether")], [DECISION])
    embedded = list(earlier.embedder.embedded)
    assert await build_ingest(earlier).repair() == 1
    assert earlier.embedder.embedded == embedded


async def test_an_incomplete_source_is_left_to_its_next_ingest(earlier: Library) -> None:
    await earlier.store.set_status(TIDES.id, SourceStatus.INDEXING)
    assert await build_ingest(earlier).repair() == 1
    assert await count_outdated(earlier) == (2, 1)


async def test_a_source_that_another_process_ingests_meanwhile_is_left_to_it(
    earlier: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = SourceWriter._draft

    async def ingest_meanwhile(self: SourceWriter, source: Any, *contents: Sequence[Any]) -> Any:
        drafts = await draft(self, source, *contents)
        await earlier.store.set_status(source.id, SourceStatus.INDEXING)
        return drafts

    monkeypatch.setattr(SourceWriter, "_draft", ingest_meanwhile)
    assert await build_ingest(earlier).repair() == 0
    assert await count_outdated(earlier) == (3, 2)


@pytest.mark.req("X-12")
async def test_a_source_that_an_index_of_our_own_lacks_is_indexed_again(earlier: Library) -> None:
    where = of_source(TIDES.id)
    for name in (CHUNKS, EXTRACTIONS):
        found = await earlier.index.scroll(name, where=where)
        await earlier.index.delete(name, [point.id for point in found])
    assert await build_ingest(earlier).repair() == 1
    assert not await earlier.index.count(CHUNKS, where)
    assert await build_ingest(earlier).repair(completing=True) == 1
    assert await earlier.index.count(CHUNKS, where) > 0
    assert await count_outdated(earlier) == (0, 0)
    for name in (CHUNKS, EXTRACTIONS):
        await earlier.index.drop(name)
    assert await build_ingest(earlier).repair() == 0
    assert await build_ingest(earlier).repair(completing=True) == 2
    assert await build_ingest(earlier).repair(completing=True) == 0


async def test_nothing_is_created_or_changed_without_knowledge_of_this_model(earlier: Library) -> None:
    empty = Library()
    assert await build_ingest(empty).repair() == 0
    assert [await empty.index.describe(name) for name in (CHUNKS, EXTRACTIONS)] == [None, None]
    for other in (None, HashedEmbedder(32)):
        earlier.embedder = other
        assert await build_ingest(earlier).repair() == 0
    assert await count_outdated(earlier) == (3, 2)


async def test_the_gateway_tries_again_after_an_outage_and_gives_up_in_the_end(
    earlier: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, repair_first_pause=0.001)
    set_limits(monkeypatch, repair_max_pause=0.004)
    tries: list[int] = []

    async def renew_at_the_second_try(*, completing: bool) -> int:
        assert not completing
        tries.append(1)
        if len(tries) == 1:
            raise Unavailable("the store does not answer")
        return await build_ingest(earlier).repair()

    app: Any = SimpleNamespace(
        texts=SimpleNamespace(ingest_knowledge=SimpleNamespace(repair=renew_at_the_second_try)),
        settings=Settings(index="https://index:6333"),
    )
    await gateway._repair_knowledge(app)
    assert (len(tries), await count_outdated(earlier)) == (2, (0, 0))

    async def fail(*, completing: bool) -> int:
        assert not completing
        tries.append(1)
        raise Unavailable("the store cannot be written")

    app.texts.ingest_knowledge.repair = fail
    await gateway._repair_knowledge(app)
    assert len(tries) == 2 + 3
