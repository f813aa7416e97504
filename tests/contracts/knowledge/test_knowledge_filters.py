"""Filters on sources give the same results on every knowledge store and every index."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.engines import INDEXES, LIBRARIES, open_index, open_knowledge
from tests.fixtures.knowledge_search import BOOKS, GARDENS, ROSES, TIDES, Library, chunk
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.knowledge import Source, derive_id
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS
from toolscript.services.knowledge.search import KnowledgeQuery

pytestmark = pytest.mark.req("K-04", "K-05")

DATES = {TIDES.id: "2021", GARDENS.id: "2024-05"}
LETTER = Source(
    derive_id("letter"),
    "letter",
    "Of Bees",
    (),
    "/post/bees.EML",
    "2025-01-02T03:04:05+00:00",
    metadata={
        "language": "De",
        "pages": 3,
        "topics": ["Honey", "wax"],
        "digest": "secret",
        "sent": "2024-05-31T10:00:00Z",
    },
)
BEES = chunk(LETTER, "bees fly at noon")


@pytest.fixture(
    params=[*((each, "memory") for each in LIBRARIES), *(("sqlite-memory", each) for each in INDEXES[1:])], ids="-".join
)
async def library(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Library]:
    store_kind, index_kind = request.param
    index = open_index(index_kind, tmp_path, request)
    store = open_knowledge(store_kind, tmp_path, request)
    for name in (CHUNKS, EXTRACTIONS):
        await index.drop(name)
    opened = Library(store=store, index=index)
    await opened.open()
    for source, chunks, extractions in BOOKS:
        await opened.put(replace(source, metadata={"date": DATES[source.id]}), chunks, extractions)
    await opened.put(LETTER, [BEES], [])
    yield opened
    for name in (CHUNKS, EXTRACTIONS):
        await index.drop(name)
    await index.close()
    await store.close()


def where(field: str, op: Op, value: Any) -> Filter:
    return Filter(must=(Condition(field, op, value),))


FOUND: list[tuple[Filter, list[Source]]] = [
    (where("authors", Op.CONTAINS, "rose"), [GARDENS]),
    (where("authors", Op.EQ, "a. moon"), [TIDES]),
    (where("authors", Op.EXISTS, value=False), [LETTER]),
    (where("title", Op.CONTAINS, "OF "), [TIDES, LETTER]),
    (where("date", Op.GTE, "2024-05-01"), [GARDENS]),
    (where("date", Op.LT, "2024-05-01"), [TIDES]),
    (where("date", Op.EQ, "2024-05"), [GARDENS]),
    (where("date", Op.EXISTS, value=True), [TIDES, GARDENS]),
    (where("year", Op.LTE, 2023), [TIDES]),
    (where("year", Op.IN, [2021, 2024]), [TIDES, GARDENS]),
    (where("kind", Op.EQ, "pdf"), [TIDES]),
    (where("kind", Op.NIN, ["PDF", "E-mail"]), [GARDENS]),
    (where("extension", Op.EQ, ".eml"), [LETTER]),
    (where("type", Op.NE, "book"), [LETTER]),
    (where("language", Op.EQ, "de"), [LETTER]),
    (where("pages", Op.GT, 2), [LETTER]),
    (where("topics", Op.EQ, "honey"), [LETTER]),
    (where("sent", Op.GT, "2024-05-31"), [LETTER]),
    (where("digest", Op.EQ, "secret"), []),
    (where("path", Op.CONTAINS, "bees"), []),
    (where("nobody has this", Op.EQ, 1), []),
    (Filter(), [TIDES, GARDENS, LETTER]),
    (Filter(must_not=(Condition("kind", Op.EQ, "Markdown"),)), [TIDES, LETTER]),
    (
        Filter(should=(Condition("year", Op.EQ, 2021), Condition("kind", Op.EQ, "e-mail"))),
        [TIDES, LETTER],
    ),
]


async def test_only_sources_that_pass_the_filter_are_found(library: Library) -> None:
    for wanted, expected in FOUND:
        found = await library.search.search(KnowledgeQuery("spring at sea", limit=100, where=wanted))
        assert {hit.source_id for hit in found.hits} == {source.id for source in expected}, wanted


async def test_a_filter_does_not_change_the_scores_and_their_order(library: Library) -> None:
    everything = await library.search.search(KnowledgeQuery("cut roses in spring"))
    own = await library.search.search(KnowledgeQuery("cut roses in spring", where=where("year", Op.EQ, 2024)))
    expected = [(hit.id, hit.score) for hit in everything.hits if hit.source_id == GARDENS.id]
    assert [(hit.id, hit.score) for hit in own.hits] == expected
    assert own.hits[0].date == "2024-05"


async def test_a_point_of_an_unknown_source_passes_no_filter(library: Library) -> None:
    lost = replace(ROSES, id=derive_id("lost"), source_id=derive_id("nobody"))
    await library.index.upsert(CHUNKS, [await library.chunk_point(lost)])
    for wanted, expected in ((where("type", Op.EXISTS, value=True), 3), (where("year", Op.EXISTS, value=True), 2)):
        found = await library.search.search(KnowledgeQuery("roses", limit=100, where=wanted))
        assert len({hit.source_id for hit in found.hits}) == expected
        assert lost.id not in {hit.id for hit in found.hits}
