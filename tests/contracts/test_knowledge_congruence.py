"""Generated changes: every knowledge store gives the same answers after the same changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.engines import LIBRARIES, open_knowledge
from tests.fixtures.examples import scale_examples
from toolscript.domain.errors import ToolscriptError
from toolscript.domain.knowledge import Chunk, Extraction, Position, Source, derive_id
from toolscript.ports.stores import KnowledgeStore

pytestmark = pytest.mark.req("K-05", "X-02")

SOURCES = [derive_id("source", n) for n in range(3)]
CHUNKS = [derive_id("chunk", n) for n in range(5)]
EXTRACTIONS = [derive_id("extraction", n) for n in range(5)]
Change = Callable[[KnowledgeStore], Awaitable[Any]]

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63) + 1, 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
parts = st.dictionaries(texts, values, max_size=3)
several = st.lists(texts, max_size=3).map(tuple)
positions = st.builds(Position, texts, texts, st.one_of(st.none(), st.integers(0, 2**40)))
sources = st.builds(Source, st.sampled_from(SOURCES), texts, texts, several, texts, texts, texts, parts)
chunks = st.lists(
    st.builds(Chunk, st.sampled_from(CHUNKS), st.just(""), texts, positions, st.integers(0, 10_000)),
    max_size=5,
    unique_by=lambda each: each.id,
)
extractions = st.lists(
    st.builds(
        Extraction,
        st.sampled_from(EXTRACTIONS),
        st.just(""),
        st.one_of(st.sampled_from(CHUNKS), texts),
        texts,
        parts,
        several,
        texts,
    ),
    max_size=5,
    unique_by=lambda each: each.id,
)


def own_chunks(source_id: str, several: list[Chunk]) -> list[Chunk]:
    return [replace(each, id=derive_id(source_id, each.id), source_id=source_id) for each in several]


def own_extractions(source_id: str, several: list[Extraction]) -> list[Extraction]:
    return [replace(each, id=derive_id(source_id, each.id), source_id=source_id) for each in several]


def replacing(source: Source, chunks: list[Chunk], drawn: list[Extraction]) -> Change:
    return lambda store: store.replace(source, own_chunks(source.id, chunks), own_extractions(source.id, drawn))


def adding(source_id: str, drawn: list[Extraction]) -> Change:
    return lambda store: store.add_extractions(source_id, own_extractions(source_id, drawn))


def setting(source_id: str, status: str) -> Change:
    return lambda store: store.set_status(source_id, status)


def removing(source_id: str) -> Change:
    return lambda store: store.remove(source_id)


ids = st.sampled_from(SOURCES)
changes = st.lists(
    st.one_of(
        st.builds(replacing, sources, chunks, extractions),
        st.builds(replacing, sources, chunks, extractions),
        st.builds(adding, ids, extractions),
        st.builds(setting, ids, texts),
        st.builds(removing, ids),
    ),
    min_size=1,
    max_size=6,
)


@dataclass(frozen=True)
class Libraries:
    """One store of every kind, emptied by each example."""

    stores: dict[str, KnowledgeStore]
    run: Callable[[Coroutine[Any, Any, None]], None]

    async def empty(self) -> None:
        for store in self.stores.values():
            for source_id in SOURCES:
                await store.remove(source_id)


@pytest.fixture
def libraries(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Libraries]:
    with asyncio.Runner() as runner:
        folder = tmp_path_factory.mktemp("libraries")
        stores = {kind: open_knowledge(kind, folder, request) for kind in LIBRARIES}
        yield Libraries(stores, runner.run)
        for store in stores.values():
            runner.run(store.close())


async def _outcome(change: Change, store: KnowledgeStore) -> str:
    try:
        return repr(await change(store))
    except ToolscriptError as error:
        return error.code


async def _read_all(store: KnowledgeStore) -> list[Any]:
    """Everything that can be read from a store, as text: 1 differs from 1.0, and so do orders of names."""
    inside = [derive_id(source_id, each) for source_id in SOURCES for each in (*CHUNKS, *EXTRACTIONS)]
    records = await store.get_records(SOURCES, inside, inside)
    return [
        repr(await store.list_sources()),
        [repr(await store.get_contents(source_id)) for source_id in SOURCES],
        sorted((await store.count_contents()).items()),
        [repr(sorted(each.items())) for each in (records.sources, records.chunks, records.extractions)],
    ]


def test_the_same_changes_give_the_same_records_in_every_store(libraries: Libraries) -> None:
    @settings(max_examples=scale_examples(40), deadline=None)
    @given(changes)
    def holds(several: list[Change]) -> None:
        async def check() -> None:
            await libraries.empty()
            for change in several:
                outcomes = {kind: await _outcome(change, store) for kind, store in libraries.stores.items()}
                assert len(set(outcomes.values())) == 1, outcomes
            contents = {kind: await _read_all(store) for kind, store in libraries.stores.items()}
            for kind in LIBRARIES:
                assert contents[kind] == contents["sqlite-memory"], kind

        libraries.run(check())

    holds()
