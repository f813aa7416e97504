"""A tenant's documents in a session with the gateway or the application."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from toolscript.domain.access import Principal
from toolscript.domain.errors import NotFound, ToolscriptError
from toolscript.domain.filters import Filter
from toolscript.surfaces.cli.client.gateway import MAX_BODY_BYTES
from toolscript.surfaces.cli.client.session import CommandSession, Local
from toolscript.surfaces.json.documents import (
    build_batch_response,
    build_document_list_response,
    build_document_response,
    build_page_response,
)

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.documents import Document

# Embedding a batch of long documents can take many minutes on a small machine.
TIMEOUT_SECONDS = 3600.0
# Leaves room for the JSON around a single document.
MAX_DOCUMENT_BYTES = MAX_BODY_BYTES - 1024

log = logging.getLogger(__name__)

Response = dict[str, Any]
Progress = Callable[[int, int], None]


class TenantDocuments:
    """The documents of the session's tenant."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session
        self._caller = Principal(session.settings.tenant)
        self._http: dict[str, Any] = {"tenant": self._caller.tenant, "timeout_seconds": TIMEOUT_SECONDS}

    def find_size_problem(self, size: int) -> str | None:
        """Why a document of that size in bytes cannot be put; None when it can."""
        if self._session.app or size <= MAX_DOCUMENT_BYTES:
            return None
        return (
            f"needs a request of {size / 2**20:.1f} MiB, and the gateway accepts at most {MAX_BODY_BYTES // 2**20} MiB:"
            " stop the gateway while ingesting it, or split it"
        )

    async def put(self, documents: Sequence[Document], progress: Progress) -> Any:
        """Adds or replaces documents, which together fit a request. Counts those added, changed and unchanged."""

        async def local(app: App) -> Response:
            report = await app.ingest_documents.put(self._caller.tenant, documents, progress)
            return build_batch_response(report)

        response = await self._request("/documents", local, body={"documents": list(map(build_body, documents))})
        progress(len(documents), len(documents))
        return response

    async def remove(self, ids: Sequence[str]) -> int:
        """Removes documents; returns how many existed."""
        if app := self._session.app:
            return await app.ingest_documents.delete(self._caller.tenant, ids)
        removed = 0
        for doc_id in ids:
            try:
                await self._session.send(f"/documents/{quote(doc_id, safe='')}", method="DELETE", **self._http)
            except NotFound:
                continue
            removed += 1
        return removed

    async def get(self, doc_id: str) -> Any:
        """One document with its text. Raises NotFound."""

        async def local(app: App) -> Response:
            document = await app.ingest_documents.get(self._caller.tenant, doc_id)
            return build_document_response(document, app.plans.get(self._caller))

        return await self._request(f"/documents/{quote(doc_id, safe='', errors='replace')}", local)

    async def list_page(self, *, after: str | None, limit: int) -> Any:
        """A page of documents, ordered by id."""

        async def local(app: App) -> Response:
            documents = await app.ingest_documents.listing(self._caller.tenant, after=after, limit=limit + 1)
            return build_document_list_response(documents, app.plans.get(self._caller), limit=limit)

        return await self._request("/documents", local, after=after, limit=limit)

    async def search(self, request: Mapping[str, Any], where: Filter) -> Any:
        """The best matches for a request in the fields of `POST /search`, whose filter is `where`."""

        async def local(app: App) -> Response:
            from toolscript.services.documents.request import DocumentQuery, SearchType

            await _finish_interrupted(app)
            typed = {**request, "search_type": SearchType(request["search_type"]), "where": where}
            return build_page_response(await app.document_search.search(self._caller, DocumentQuery(**typed)))

        must = [{"field": c.field, "op": c.op, "value": c.value} for c in where.must]
        return await self._request("/search", local, body={**request, "filters": {"must": must}})

    async def _request(self, path: str, local: Local, **http: Any) -> Any:
        return await self._session.request(path, local, **self._http, **http)


async def _finish_interrupted(app: App) -> None:
    """Indexes the documents that an interrupted command has stored only."""
    from rich.console import Console

    with Console(stderr=True).status("Checking the index"):
        try:
            await app.ingest_documents.repair()
        except ToolscriptError as error:
            log.warning("documents_unfinished", extra={"reason": error.message})


def build_body(document: Document) -> Response:
    """The JSON of a document in a request."""
    metadata = dict(document.metadata)
    return {"id": document.id, "text": document.text, "title": document.title, "metadata": metadata}
