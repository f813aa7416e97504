"""What is refused is not done: after an error, store and index are as before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.fixtures.document_ingest import Ingest, sentences
from tests.fixtures.examples import choose
from tests.fixtures.faults import FaultyAdapter, raising
from toolscript.domain.documents import Document
from toolscript.domain.errors import DiskFull, Unavailable
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.surfaces.http.errors import error_response

pytestmark = pytest.mark.req("X-12")

OLD, NEW = Document("old", sentences(1, 2)), Document("new", sentences(3, 4))
CHANGES: dict[str, Callable[[IngestDocuments], Awaitable[object]]] = {
    "a new document": lambda service: service.put("acme", [NEW]),
    "an overwritten document": lambda service: service.put("acme", [Document("old", sentences(1, 9))]),
    "both": lambda service: service.put("acme", [NEW, Document("old", "Short")]),
    "a deleted document": lambda service: service.delete("acme", ["old", "new"]),
}
FULL = DiskFull(3 * 2**20, 16 * 2**20)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("error", choose([FULL, Unavailable("not available right now"), RuntimeError("a bug")], FULL))
@pytest.mark.parametrize(
    ("port", "method", "others"),
    [
        ("index", "require_space", ()),
        ("index", "upsert", ("delete",)),
        ("index", "scroll", ()),
        ("store", "save_documents", ("delete_documents",)),
    ],
)
async def test_a_refused_change_of_documents_is_not_done(
    change: str, error: Exception, port: str, method: str, others: tuple[str, ...]
) -> None:
    ingest = await Ingest().open_all()
    await ingest.service.put("acme", [OLD])
    before = await ingest.contents()
    faulty = FaultyAdapter(getattr(ingest, port), method, raising(error), others=others)
    ports: dict[str, Any] = {"store": ingest.store, "index": ingest.index, port: faulty}
    service = IngestDocuments(ports["store"], ports["index"], ingest.embedder)
    with pytest.raises(type(error)):
        await CHANGES[change](service)
    assert await ingest.contents() == before
    assert service.is_unfinished.is_set()
    faulty.is_on = False
    await service.repair()
    assert await ingest.contents() == before
    await ingest.assert_whole()


async def test_a_change_that_cannot_be_noted_as_complete_is_done_all_the_same() -> None:
    ingest = await Ingest().open_all()
    faulty = FaultyAdapter(ingest.store, "mark_indexed", raising(FULL))
    service = IngestDocuments(faulty, ingest.index, ingest.embedder)
    assert (await service.put("acme", [OLD])).added == 1
    assert service.is_unfinished.is_set()
    faulty.is_on = False
    await service.repair()
    await ingest.assert_whole()


async def test_a_store_that_fails_while_a_change_is_undone_is_completed_by_a_repair(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ingest = await Ingest().open_all()
    index = FaultyAdapter(ingest.index, "upsert", raising(FULL))
    store = FaultyAdapter(ingest.store, "delete_documents", raising(FULL))
    service = IngestDocuments(store, index, ingest.embedder)
    with pytest.raises(DiskFull):
        await service.put("acme", [NEW])
    assert "refused_change_not_undone_completely" in [record.getMessage() for record in caplog.records]
    index.is_on = False
    await service.repair()
    await ingest.assert_whole()


def test_an_answer_about_a_full_disk_says_when_to_try_again() -> None:
    response = error_response(FULL)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "60")
