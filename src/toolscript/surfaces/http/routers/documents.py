"""Documents over HTTP: search in the caller's own, put them in and get them out."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Path, Query, Request
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse

from toolscript.domain.access import Principal
from toolscript.domain.errors import NotFound, ToolscriptError
from toolscript.services.documents.search import DocumentStream
from toolscript.surfaces.callers import build_unauthorized, identify_principal
from toolscript.surfaces.http.bodies import read_body
from toolscript.surfaces.http.openapi import NEEDS_NOTHING, NEEDS_TOKEN, body_of, errors
from toolscript.surfaces.http.schemas.documents import (
    DocumentBatchRequest,
    DocumentListResponse,
    DocumentPageResponse,
    DocumentRequest,
    DocumentResponse,
    DocumentSearchRequest,
    HealthResponse,
    PutDocumentResponse,
    PutDocumentsResponse,
)
from toolscript.surfaces.json.documents import (
    build_batch_response,
    build_document_list_response,
    build_document_response,
    build_hit_response,
    build_page_response,
    build_page_summary,
    build_put_response,
)

if TYPE_CHECKING:
    from toolscript.surfaces.http.served_app import ServedApp

NDJSON = "application/x-ndjson"
TAGS: list[str | Enum] = ["documents"]
MOST_LISTED = 1000
MAX_SEARCH_BYTES = 2**20

DocId = Annotated[str, Path(description="The document's id; slashes in it may stay.", examples=["contracts/lease-7"])]

_LINES = {
    "schema": {"type": "string"},
    "example": '{"hit": {"doc_id": "lease/7", "score": 0.83, "metadata": {}, "snippet": "..."}}\n'
    '{"done": {"query_id": "...", "took_ms": 9.1, "total": 1, "total_relation": "eq", "next_page_token": null, '
    '"degraded": []}}\n',
}

log = logging.getLogger(__name__)


def add_documents(http: FastAPI, serving: ServedApp) -> None:
    """Adds every route about documents. Who is asking is established before anything else of a request is looked at."""

    async def get_principal(request: Request) -> Principal:
        if len(request.headers.getlist("authorization")) > 1:
            raise build_unauthorized("the request has several Authorization headers: send one")
        return await identify_principal(serving.app, request.headers)

    identify = Depends(get_principal)
    _add_search(http, serving, identify)
    _add_health(http, serving)
    _add_writing(http, serving, identify)
    _add_reading(http, serving, identify)


def _add_search(http: FastAPI, serving: ServedApp, identify: Any) -> None:
    @http.post(
        "/search",
        summary="Search in documents: by meaning, by words, or both",
        description=f"With `Accept: {NDJSON}` the hits come one a line, as soon as each is known, and then one line "
        "`done` with the rest of the answer, or one line `error`.",
        tags=TAGS,
        responses={200: {"model": DocumentPageResponse, "content": {NDJSON: _LINES}}, **errors(400, 429)},
        openapi_extra={**body_of(DocumentSearchRequest), **NEEDS_TOKEN},
    )
    async def search_documents(request: Request, caller: Principal = identify) -> Response:
        searching = serving.app.document_search
        plan = searching.admit(caller)
        ask = await read_body(request, DocumentSearchRequest, DocumentSearchRequest.ask, MAX_SEARCH_BYTES)
        if _wants_lines(request):
            return StreamingResponse(stream_json_lines(await searching.stream(caller, ask, plan)), media_type=NDJSON)
        return _json(build_page_response(await searching.search(caller, ask, plan)))


def _add_health(http: FastAPI, serving: ServedApp) -> None:
    @http.get(
        "/search/health",
        summary="Whether documents can be searched: store, index and model answer",
        description="When one of them does not, `details.adapter` of the error names it.",
        tags=TAGS,
        responses={200: {"model": HealthResponse}},
        openapi_extra=NEEDS_NOTHING,
    )
    async def search_health() -> dict[str, str]:
        await serving.app.document_search.check()
        return {"status": "ok"}


def _add_writing(http: FastAPI, serving: ServedApp, identify: Any) -> None:
    @http.put(
        "/documents/{doc_id:path}",
        summary="Add or replace a document",
        tags=TAGS,
        responses={
            200: {"model": PutDocumentResponse, "description": "It was there: replaced, or unchanged."},
            201: {"model": PutDocumentResponse, "description": "It is new."},
            **errors(429),
        },
        openapi_extra={**body_of(DocumentRequest), **NEEDS_TOKEN},
    )
    async def put_document(doc_id: DocId, request: Request, caller: Principal = identify) -> Response:
        serving.app.plans.admit(caller)
        document = await read_body(request, DocumentRequest, lambda given: given.document(doc_id))
        report = await serving.app.ingest_documents.put(caller.tenant, [document])
        return _json(build_put_response(doc_id, report), 201 if report.added else 200)

    @http.post(
        "/documents",
        summary="Add or replace many documents",
        description="All of them, or none: when one cannot be taken, the error names its number and the field.",
        tags=TAGS,
        responses={200: {"model": PutDocumentsResponse}, **errors(429)},
        openapi_extra={**body_of(DocumentBatchRequest), **NEEDS_TOKEN},
    )
    async def put_documents(request: Request, caller: Principal = identify) -> Response:
        serving.app.plans.admit(caller)
        documents = await read_body(request, DocumentBatchRequest, DocumentBatchRequest.every)
        return _json(build_batch_response(await serving.app.ingest_documents.put(caller.tenant, documents)))

    @http.delete(
        "/documents/{doc_id:path}",
        summary="Remove a document",
        tags=TAGS,
        status_code=204,
        response_class=Response,
        responses=errors(404, 429),
        openapi_extra=NEEDS_TOKEN,
    )
    async def remove_document(doc_id: DocId, caller: Principal = identify) -> None:
        serving.app.plans.admit(caller)
        if not await serving.app.ingest_documents.delete(caller.tenant, [doc_id]):
            raise NotFound(f"there is no document {doc_id!r}: GET /documents lists those there are")


def _add_reading(http: FastAPI, serving: ServedApp, identify: Any) -> None:
    @http.get(
        "/documents",
        summary="List documents by id, without their texts",
        tags=TAGS,
        responses={200: {"model": DocumentListResponse}, **errors(429)},
        openapi_extra=NEEDS_TOKEN,
    )
    async def list_documents(
        caller: Principal = identify,
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED, description="Most documents.")] = 100,
        after: Annotated[
            str | None, Query(max_length=512, description="Begin after this id: `next` of the list before.")
        ] = None,
    ) -> Response:
        plan = serving.app.plans.admit(caller)
        found = await serving.app.ingest_documents.listing(caller.tenant, after=after, limit=limit + 1)
        return _json(build_document_list_response(found, plan, limit=limit))

    @http.get(
        "/documents/{doc_id:path}",
        summary="One document, whole",
        tags=TAGS,
        responses={200: {"model": DocumentResponse}, **errors(404, 429)},
        openapi_extra=NEEDS_TOKEN,
    )
    async def get_document(doc_id: DocId, caller: Principal = identify) -> Response:
        plan = serving.app.plans.admit(caller)
        return _json(build_document_response(await serving.app.ingest_documents.get(caller.tenant, doc_id), plan))


def _json(answer: dict[str, Any], status: int = 200) -> Response:
    return Response(to_json(answer, inf_nan_mode="null"), status_code=status, media_type="application/json")


def _wants_lines(request: Request) -> bool:
    accepted = ",".join(request.headers.getlist("accept")).lower().split(",")
    return any(each.partition(";")[0].strip() == NDJSON for each in accepted)


async def stream_json_lines(stream: DocumentStream) -> AsyncIterator[bytes]:
    """One line a hit, then the rest of the answer. An error can no longer be a status: it is the last line."""
    try:
        async for batch in stream.batches:
            yield b"".join(_line("hit", build_hit_response(hit)) for hit in batch)
    except ToolscriptError as error:
        yield _line("error", error.to_envelope()["error"])
    except Exception as error:
        log.error("unexpected", exc_info=error)  # noqa: TRY400
        yield _line("error", ToolscriptError("something went wrong on our side").to_envelope()["error"])
    else:
        yield _line("done", build_page_summary(stream.page))


def _line(name: str, told: dict[str, Any]) -> bytes:
    return json.dumps({name: told}, ensure_ascii=False).encode() + b"\n"
