"""Knowledge search by words beside meaning: what words add, and libraries that were indexed without them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fixtures.faults import FAULTS, FaultyAdapter
from tests.fixtures.knowledge_search import DECISION, GARDENS, HARBOUR, MOON, ROSES, TIDES, WARNING, Library, chunk
from tests.fixtures.limits import set_limits
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.domain.search import Point, SearchPart, TermCounts, Terms, Vector
from toolscript.ports.indexes import VectorIndex
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS
from toolscript.services.knowledge.ranking import WORDS_WEIGHT
from toolscript.services.knowledge.search import KnowledgeQuery, KnowledgeResults
from toolscript.services.knowledge.source_writer import SourceWriter

pytestmark = pytest.mark.req("F-03", "K-01")


class MeaninglessEmbedder(HashedEmbedder):
    """A model for which all texts mean the same, so that only words tell them apart. Counts the texts."""

    embedded = 0

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        self.embedded += len(texts)
        return await super().embed_documents(texts)

    def _embed(self, text: str) -> Vector:
        return np.full(self.dimensions, self.dimensions**-0.5, np.float32)


async def write(library: Library) -> SourceWriter:
    """Writes both books as the pipeline does."""
    writer = SourceWriter(library.store, library.index, library.embedder)
    await writer.save(TIDES, [MOON, HARBOUR], [WARNING])
    await writer.save(GARDENS, [ROSES], [DECISION])
    return writer


async def search(library: Library, query: str, **fields: Any) -> KnowledgeResults:
    return await library.search.search(KnowledgeQuery(query, **fields))


async def forget_terms(index: VectorIndex) -> None:
    """Makes the points those of a version that had no terms."""
    for name in (CHUNKS, EXTRACTIONS):
        found = await index.scroll(name)
        vectors = await index.vectors(name, [each.id for each in found])
        await index.upsert(
            name,
            [
                Point(each.id, vectors[each.id], Terms(), {k: v for k, v in each.payload.items() if k != "terms"})
                for each in found
            ],
        )


async def test_words_decide_between_texts_of_the_same_meaning() -> None:
    library = Library(embedder=MeaninglessEmbedder())
    await write(library)
    for query, expected in (("moon", MOON), ("harbour ships", HARBOUR), ("cutting a rose", ROSES)):
        found = await search(library, query, types=("chunk",))
        assert found.hits[0].id == expected.id
        assert found.has_words
        assert [hit.score for hit in found.hits] == pytest.approx([1.0] * len(found.hits), abs=1e-5)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("東京の天気は晴れです", "天気"),
        ("Die Häuser der Stadt sind alt und die Straßen sind eng", "haus"),
        ("Les chevaux mangent de l'herbe dans les prés", "cheval"),
    ],
)
async def test_words_of_other_languages_are_found(text: str, query: str) -> None:
    library = Library(embedder=MeaninglessEmbedder())
    writer = await write(library)
    foreign = chunk(GARDENS, text)
    await writer.save(GARDENS, [ROSES, foreign], [DECISION])
    assert (await search(library, query, types=("chunk",))).hits[0].id == foreign.id


async def test_a_passage_that_only_words_find_has_its_cosine() -> None:
    library = Library()
    await library.open()
    others = [chunk(TIDES, f"number {number} says nothing") for number in range(60)]
    far = chunk(TIDES, "the gizmotron hums")
    await SourceWriter(library.store, library.index, library.embedder).save(TIDES, [*others, far], [])
    (point,) = [each for each in await library.index.scroll(CHUNKS) if each.id == far.id]
    query = await library.embedder.embed_query("gizmotron")
    opposite = np.asarray(0.1 * query + np.roll(query, 1), np.float32)
    opposite /= np.linalg.norm(opposite)
    terms = library.index._points(CHUNKS)[far.id].terms  # type: ignore[attr-defined]
    await library.index.upsert(CHUNKS, [Point(far.id, opposite, terms, point.payload)])
    found = await search(library, "gizmotron", limit=3)
    hit = next(hit for hit in found.hits if hit.id == far.id)
    assert hit.score == pytest.approx(max(0.0, float(np.dot(query, opposite))), abs=1e-5)


async def test_words_change_the_order_by_no_more_than_their_weight() -> None:
    library = Library()
    await write(library)
    found = await search(library, "never enter the harbour at low water")
    scores = [hit.score for hit in found.hits]
    assert all(later <= earlier + WORDS_WEIGHT for earlier, later in pairwise(scores))
    assert found.hits[0].id == WARNING.id


@pytest.mark.req("K-05")
async def test_the_embedded_index_has_the_same_order(tmp_path: Path) -> None:
    others = [chunk(TIDES, f"ship {number} waits for water at pier {number % 7}") for number in range(120)]
    library, oracle = Library(index=QdrantEdgeIndex(tmp_path)), Library()
    try:
        for each in (library, oracle):
            writer = await write(each)
            await writer.save(TIDES, [MOON, HARBOUR, *others], [WARNING])
        for query in ("harbour at low water", "ships at pier 3", "moon"):
            ours, theirs = await search(library, query), await search(oracle, query)
            assert [hit.id for hit in ours.hits] == [hit.id for hit in theirs.hits]
            assert [hit.score for hit in ours.hits] == pytest.approx([hit.score for hit in theirs.hits], abs=1e-5)
            assert ours.has_words
    finally:
        await library.index.close()


async def test_results_without_a_word_of_the_query_are_found_by_meaning() -> None:
    library = Library()
    await write(library)
    assert not (await search(library, "zzzz qqqq", types=("chunk",))).has_words
    assert not (await search(library, "moon", topics=("roses",))).has_words
    assert (await search(library, "moon", types=("chunk",))).has_words


async def test_filters_apply_to_words_too() -> None:
    library = Library(embedder=MeaninglessEmbedder())
    await write(library)
    assert {hit.id for hit in (await search(library, "harbour", topics=("roses",))).hits} == {ROSES.id, DECISION.id}
    assert {hit.id for hit in (await search(library, "roses", types=("warning",))).hits} == {WARNING.id}


async def test_points_without_terms_are_searched_by_meaning() -> None:
    library = Library()
    await write(library)
    before = await search(library, "moon")
    await forget_terms(library.index)
    found = await search(library, "moon")
    assert not found.has_words
    assert {hit.id: hit.score for hit in found.hits} == {hit.id: hit.score for hit in before.hits}


async def test_a_rebuild_adds_the_terms_without_embedding_anything_again() -> None:
    library = Library(embedder=MeaninglessEmbedder())
    writer = await write(library)
    await forget_terms(library.index)
    for source in (TIDES, GARDENS):
        await library.store.set_term_counts(source.id, TermCounts(0, {}))
    library.embedder.embedded = 0
    assert await writer.index_all() == 5
    assert library.embedder.embedded == 0
    found = await search(library, "moon")
    assert (found.has_words, found.hits[0].id) == (True, MOON.id)
    assert await writer.index_all() == 0


async def test_the_words_of_a_removed_or_replaced_source_are_no_longer_counted() -> None:
    library = Library()
    writer = await write(library)
    before = await library.store.count_terms([])
    await writer.save(TIDES, [MOON], [])
    await writer.delete(GARDENS.id)
    assert (before.documents, (await library.store.count_terms([])).documents) == (3, 1)


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"none"}))
async def test_without_counts_of_terms_the_search_is_by_meaning(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, knowledge_ranking=120.0)
    set_limits(monkeypatch, knowledge_reading=180.0)
    library = Library()
    await write(library)
    library.store = FaultyAdapter(library.store, "count_terms", FAULTS[fault])
    found = await search(library, MOON.content)
    assert found.hits[0].id == MOON.id
    assert (found.has_words, found.report.degraded) == (False, [SearchPart.STORE])
