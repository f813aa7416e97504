"""What is refused is not done: after an error, a source is as before in store and index."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.fixtures.examples import choose
from tests.fixtures.faults import FaultyAdapter, raising
from tests.fixtures.knowledge_ingest import HANDBOOK, Library, book
from toolscript.domain.errors import DiskFull, Unavailable
from toolscript.domain.knowledge import derive_id
from toolscript.services.knowledge.ingest import IngestKnowledge

pytestmark = pytest.mark.req("X-12")

OTHER = HANDBOOK.with_name("other.md")
SOURCE = derive_id("source", HANDBOOK)
CHANGES: dict[str, Callable[[IngestKnowledge], Awaitable[object]]] = {
    "a new source": lambda ingesting: ingesting.ingest(OTHER),
    "a changed source": lambda ingesting: ingesting.ingest(HANDBOOK),
    "a removed source": lambda ingesting: ingesting.remove(SOURCE),
}
FULL = DiskFull(3 * 2**20, 16 * 2**20)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("error", choose([FULL, Unavailable("not available right now"), RuntimeError("a bug")], FULL))
@pytest.mark.parametrize(
    ("port", "method", "others"),
    [
        ("index", "require_space", ()),
        ("index", "upsert", ("delete",)),
        ("store", "remove", ("replace", "set_status")),
    ],
)
async def test_a_refused_change_of_knowledge_is_not_done(
    change: str, error: Exception, port: str, method: str, others: tuple[str, ...]
) -> None:
    library = Library()
    await library.ingesting.ingest(HANDBOOK)
    before = await library.contents()
    library.drawer.books = {HANDBOOK: book(1, 3), OTHER: book(4)}
    faulty = FaultyAdapter(getattr(library, port), method, raising(error), others=others)
    ports: dict[str, Any] = {"store": library.store, "index": library.index, port: faulty}
    ingesting = IngestKnowledge(ports["store"], ports["index"], library.embedder, library.drawer)
    with pytest.raises(type(error)):
        await CHANGES[change](ingesting)
    assert await library.contents() == before
    faulty.is_on = False
    await ingesting.repair(completing=True)
    await CHANGES[change](ingesting)
    await library.assert_whole()


async def test_a_removal_that_the_store_refuses_leaves_the_source_searchable() -> None:
    library = Library()
    await library.ingesting.ingest(HANDBOOK)
    before = await library.contents()
    store: Any = FaultyAdapter(library.store, "remove", raising(FULL))
    with pytest.raises(DiskFull):
        await IngestKnowledge(store, library.index, library.embedder, library.drawer).remove(SOURCE)
    assert await library.contents() == before
