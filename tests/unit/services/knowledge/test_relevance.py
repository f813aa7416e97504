"""The relevance of knowledge hits: a probability beside the cosine, and a minimum that filters the whole answer."""

from __future__ import annotations

import pytest

from tests.fixtures.knowledge_search import MOON, TIDES, Library, chunk
from tests.unit.services.knowledge.test_hybrid_search import forget_terms, search, write
from toolscript.domain.errors import InvalidArguments
from toolscript.domain.search import SimilarityRange, TermCounts
from toolscript.retrieval.relevance import LEARNED
from toolscript.services.knowledge.search import MAX_HITS

pytestmark = pytest.mark.req("F-03", "K-01")


async def fill(passages: int = 0) -> Library:
    library = Library()
    writer = await write(library)
    if passages:
        extra = [
            chunk(TIDES, f"passage {number} about {'moons' if number % 3 else 'fog'}") for number in range(passages)
        ]
        await writer.save(TIDES, extra, [])
    return library


@pytest.mark.slow
@pytest.mark.parametrize("minimum", [0.0, 0.02, 0.05, 0.1, 0.5])
async def test_a_minimum_filters_the_whole_answer_whatever_the_limit(minimum: float) -> None:
    library = await fill(150)
    whole = (await search(library, "passage about moons", limit=MAX_HITS)).hits
    expected = [hit.id for hit in whole if (hit.relevance or 0) >= minimum]
    for limit in (1, 10, MAX_HITS):
        found = await search(library, "passage about moons", limit=limit, min_relevance=minimum)
        assert [hit.id for hit in found.hits] == expected[:limit]
        assert found.nothing_relevant is not bool(expected)


async def test_a_passage_that_is_the_question_is_relevant_and_nonsense_finds_nothing_relevant() -> None:
    library = await fill()
    found = await search(library, MOON.content)
    assert found.hits[0].id == MOON.id
    relevances = [hit.relevance or 0.0 for hit in found.hits]
    assert relevances[0] == max(relevances) > LEARNED.threshold
    assert all(0 <= relevance <= 1 for relevance in relevances)
    assert not found.nothing_relevant
    nonsense = await search(library, "asdf qwer zxcv")
    assert nonsense.nothing_relevant
    assert nonsense.hits
    assert not (await search(library, "asdf qwer zxcv", min_relevance=LEARNED.threshold)).hits


async def test_a_word_that_stands_in_one_passage_only_is_never_answered_with_nothing_relevant() -> None:
    library = Library()
    writer = await write(library)
    long = chunk(TIDES, f"{'water rises and falls along the coast. ' * 80} The harbour of Fuzhou is shallow.")
    await writer.save(TIDES, [MOON, long], [])
    found = await search(library, "fuzhou")
    assert (found.hits[0].id, found.nothing_relevant) == (long.id, False)
    assert (found.hits[0].relevance or 0.0) >= LEARNED.threshold
    assert [hit.id for hit in (await search(library, "fuzhou", min_relevance=LEARNED.threshold)).hits] == [long.id]


async def test_where_no_words_were_counted_meaning_decides_alone() -> None:
    library = await fill()
    await forget_terms(library.index)
    for source_id in [each.id for each in await library.store.list_sources()]:
        await library.store.set_term_counts(source_id, TermCounts(0, {}))
    first = (await search(library, MOON.content)).hits[0]
    full = LEARNED.meaning.base + LEARNED.meaning.similarity * first.score
    assert first.relevance == pytest.approx(1 / (1 + 2.718281828**-full), abs=1e-3)


async def test_with_a_model_that_is_not_fitted_words_decide_or_the_relevance_is_unknown() -> None:
    library = await fill()
    library.embedder.similarity = SimilarityRange(0.0, 1.0)
    found = await search(library, MOON.content)
    assert (found.hits[0].id, found.nothing_relevant) == (MOON.id, False)
    assert (found.hits[0].relevance or 0) > 0.5
    for source_id in [each.id for each in await library.store.list_sources()]:
        await library.store.set_term_counts(source_id, TermCounts(0, {}))
    without_words = await search(library, MOON.content)
    assert {hit.relevance for hit in without_words.hits} == {None}
    assert not without_words.nothing_relevant
    with pytest.raises(InvalidArguments, match="min_relevance: unknown"):
        await search(library, MOON.content, min_relevance=0.1)


@pytest.mark.parametrize("minimum", [-0.1, 1.5, float("nan")])
async def test_a_minimum_out_of_range_is_refused(minimum: float) -> None:
    with pytest.raises(InvalidArguments, match="min_relevance"):
        await search(Library(), "moon", min_relevance=minimum)
