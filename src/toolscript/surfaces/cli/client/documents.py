"""A tenant's documents for commands: those of the gateway that has the data folder, or of the application opened
here. Both answer what the routes of HTTP answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from toolscript.domain.access import Principal
from toolscript.domain.errors import NotFound, RateLimited, ToolscriptError, Unavailable
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.gateway import MAX_BODY_BYTES, ask, said

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.documents import Document
    from toolscript.services.documents.search import DocumentQuery

# Embedding a thousand long texts takes its time.
PATIENCE_SECONDS = 3600.0
MOST_AT_ONCE = 500
LARGEST_AT_ONCE = 8 * 2**20
# Some bytes are for what is around it.
LARGEST_DOCUMENT = MAX_BODY_BYTES - 1024

log = logging.getLogger(__name__)

Answer = dict[str, Any]
Progress = Callable[[int, int], None]


class Documents(Protocol):
    """What a command may do with documents."""

    async def put(self, documents: Sequence[Document], progress: Progress) -> Answer:
        """Adds or replaces them; how many were added, changed and unchanged, and which were refused: {id: why}."""

    async def remove(self, ids: Sequence[str]) -> int:
        """Removes documents; how many there were."""

    async def get(self, doc_id: str) -> Answer: ...

    async def listing(self, *, after: str | None, limit: int) -> Answer: ...

    async def search(self, wanted: DocumentQuery) -> Answer: ...


@asynccontextmanager
async def documents_of(settings: Settings) -> AsyncIterator[Documents]:
    """The documents of the settings' tenant, for as long as the block lasts."""
    if ask(settings, "/health") is not None:
        yield Asked(settings)
        return
    from toolscript.app.app import open_app  # --help must not wait for engines to load

    async with open_app(settings) as app:
        yield Opened(app)


class Opened:
    """Those of an application that is open here."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._caller = Principal(app.settings.tenant)

    async def put(self, documents: Sequence[Document], progress: Progress) -> Answer:
        """Adds or replaces them."""
        from toolscript.surfaces.json.documents import build_batch_response

        done = await self._app.ingest_documents.put(self._caller.tenant, documents, progress)
        return {**build_batch_response(done), "refused": {}}

    async def remove(self, ids: Sequence[str]) -> int:
        """Removes documents; how many there were."""
        return await self._app.ingest_documents.delete(self._caller.tenant, ids)

    async def get(self, doc_id: str) -> Answer:
        """One of them, whole. Raises NotFound."""
        from toolscript.surfaces.json.documents import build_document_response

        found = await self._app.ingest_documents.get(self._caller.tenant, doc_id)
        return build_document_response(found, self._app.plans.of(self._caller))

    async def listing(self, *, after: str | None, limit: int) -> Answer:
        """Some of them, by id."""
        from toolscript.surfaces.json.documents import build_document_list_response

        found = await self._app.ingest_documents.listing(self._caller.tenant, after=after, limit=limit + 1)
        return build_document_list_response(found, self._app.plans.of(self._caller), limit=limit)

    async def search(self, wanted: DocumentQuery) -> Answer:
        """The best of them."""
        from toolscript.surfaces.json.documents import build_page_response

        await self._finish()
        return build_page_response(await self._app.document_search.search(self._caller, wanted))

    async def _finish(self) -> None:
        """Has what an interrupted command has left indexed first: what is stored must not be missing here."""
        from rich.console import Console

        with Console(stderr=True).status("Finishing what was interrupted"):
            try:
                await self._app.ingest_documents.repair()
            except ToolscriptError as error:
                log.warning("documents_unfinished", extra={"reason": error.message})


class Asked:
    """Those of the gateway that runs on the data folder."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def put(self, documents: Sequence[Document], progress: Progress) -> Answer:
        """Adds or replaces them, a few at a time, and refuses those that no request can hold."""
        counts = {"added": 0, "changed": 0, "unchanged": 0}
        bodies = [(body, len(said(body))) for body in map(_body, documents)]
        refused = {body["id"]: _too_large(size) for body, size in bodies if size > LARGEST_DOCUMENT}
        done = len(refused)
        for batch in _batches([each for each in bodies if each[1] <= LARGEST_DOCUMENT]):
            told = await self._ask("/documents", body={"documents": batch})
            counts = {name: count + told[name] for name, count in counts.items()}
            done += len(batch)
            progress(done, len(documents))
        return {**counts, "refused": refused}

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

    async def search(self, wanted: DocumentQuery) -> Answer:
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


def _too_large(size: int) -> str:
    return (
        f"takes {size / 2**20:.1f} MiB to send, and the gateway takes {MAX_BODY_BYTES // 2**20} at a time: stop the "
        "gateway for as long as it is ingested, or divide it"
    )


def _batches(bodies: Sequence[tuple[Answer, int]]) -> list[list[Answer]]:
    """As many at a time as one request may hold; each comes with its size in bytes."""
    batches: list[list[Answer]] = []
    size = 0
    for body, larger in bodies:
        if not batches or size + larger > LARGEST_AT_ONCE or len(batches[-1]) == MOST_AT_ONCE:
            batches.append([])
            size = 0
        batches[-1].append(body)
        size += larger
    return batches
