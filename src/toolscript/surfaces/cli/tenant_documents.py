"""A tenant's documents for commands: those of the gateway that has the data folder, or of the application opened
here. Both answer what the routes of HTTP answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from toolscript.domain.access import Principal
from toolscript.domain.errors import NotFound, RateLimited, Unavailable
from toolscript.settings import Settings
from toolscript.surfaces.cli.running import ask

if TYPE_CHECKING:
    from toolscript.app import App
    from toolscript.domain.documents import Document
    from toolscript.services.document_search import DocumentAsk

# Embedding a thousand long texts takes its time.
PATIENCE_SECONDS = 3600.0
MOST_AT_ONCE = 500
LARGEST_AT_ONCE = 8 * 2**20

Answer = dict[str, Any]
Progress = Callable[[int, int], None]


class Documents(Protocol):
    """What a command may do with documents."""

    async def put(self, documents: Sequence[Document], progress: Progress) -> Answer: ...

    async def remove(self, ids: Sequence[str]) -> int:
        """Removes documents; how many there were."""

    async def get(self, doc_id: str) -> Answer: ...

    async def listing(self, *, after: str | None, limit: int) -> Answer: ...

    async def search(self, wanted: DocumentAsk) -> Answer: ...


@asynccontextmanager
async def documents_of(settings: Settings) -> AsyncIterator[Documents]:
    """The documents of the settings' tenant, for as long as the block lasts."""
    if ask(settings, "/health") is not None:
        yield Asked(settings)
        return
    from toolscript.app import open_app  # --help must not wait for engines to load

    async with open_app(settings) as app:
        yield Opened(app)


class Opened:
    """Those of an application that is open here."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._caller = Principal(app.settings.tenant)

    async def put(self, documents: Sequence[Document], progress: Progress) -> Answer:
        """Adds or replaces them."""
        from toolscript.surfaces.answers_documents import batch_answer

        return batch_answer(await self._app.ingest_documents.put(self._caller.tenant, documents, progress))

    async def remove(self, ids: Sequence[str]) -> int:
        """Removes documents; how many there were."""
        return await self._app.ingest_documents.delete(self._caller.tenant, ids)

    async def get(self, doc_id: str) -> Answer:
        """One of them, whole. Raises NotFound."""
        from toolscript.surfaces.answers_documents import document_answer

        found = await self._app.ingest_documents.get(self._caller.tenant, doc_id)
        return document_answer(found, self._app.plans.of(self._caller))

    async def listing(self, *, after: str | None, limit: int) -> Answer:
        """Some of them, by id."""
        from toolscript.surfaces.answers_documents import listing_answer

        found = await self._app.ingest_documents.listing(self._caller.tenant, after=after, limit=limit + 1)
        return listing_answer(found, self._app.plans.of(self._caller), limit=limit)

    async def search(self, wanted: DocumentAsk) -> Answer:
        """The best of them."""
        from toolscript.surfaces.answers_documents import page_answer

        return page_answer(await self._app.document_search.search(self._caller, wanted))


class Asked:
    """Those of the gateway that runs on the data folder."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def put(self, documents: Sequence[Document], progress: Progress) -> Answer:
        """Adds or replaces them, a few at a time."""
        counts = {"added": 0, "changed": 0, "unchanged": 0}
        done = 0
        for batch in _batches([_body(each) for each in documents]):
            told = await self._ask("/documents", body={"documents": batch})
            counts = {name: count + told[name] for name, count in counts.items()}
            done += len(batch)
            progress(done, len(documents))
        return counts

    async def remove(self, ids: Sequence[str]) -> int:
        """Removes documents; how many there were."""
        gone = 0
        for doc_id in ids:
            try:
                await self._ask(f"/documents/{quote(doc_id, safe='')}", method="DELETE")
            except NotFound:
                continue
            gone += 1
        return gone

    async def get(self, doc_id: str) -> Answer:
        """One of them, whole. Raises NotFound."""
        return await self._ask(f"/documents/{quote(doc_id, safe='', errors='replace')}")

    async def listing(self, *, after: str | None, limit: int) -> Answer:
        """Some of them, by id."""
        return await self._ask("/documents", after=after, limit=limit)

    async def search(self, wanted: DocumentAsk) -> Answer:
        """The best of them."""
        body = {
            "query": wanted.query,
            "top_k": wanted.top_k,
            "offset": wanted.offset,
            "search_type": wanted.search_type,
            "fusion": wanted.fusion,
            "filters": {"must": [{"field": c.field, "op": c.op, "value": c.value} for c in wanted.where.must]},
            "snippet_max_chars": wanted.snippet_max_chars,
            "highlight": wanted.highlight,
            "rerank": wanted.rerank,
        }
        return await self._ask("/search", body=body)

    async def _ask(self, path: str, **question: Any) -> Answer:
        while True:
            try:
                answer: Answer | None = ask(
                    self._settings, path, tenant=self._settings.tenant, patience=PATIENCE_SECONDS, **question
                )
            except RateLimited as error:
                await asyncio.sleep(float(error.details.get("retry_after_seconds", 1)))
            else:
                break
        if answer is None:
            raise Unavailable("the gateway has ended in the meantime: run the command again")
        return answer


def _body(document: Document) -> Answer:
    return {
        "id": document.id,
        "text": document.text,
        "title": document.title,
        "metadata": dict(document.metadata),
    }


def _batches(bodies: Sequence[Answer]) -> list[list[Answer]]:
    """As many at a time as one request may hold."""
    batches: list[list[Answer]] = []
    size = 0
    for body in bodies:
        larger = len(json.dumps(body))
        if not batches or size + larger > LARGEST_AT_ONCE or len(batches[-1]) == MOST_AT_ONCE:
            batches.append([])
            size = 0
        batches[-1].append(body)
        size += larger
    return batches
