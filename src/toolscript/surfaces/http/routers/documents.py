"""Documents over HTTP: search, add, list and remove the tenant's own."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from toolscript.domain.errors import NotFound, ToolscriptError
from toolscript.services.documents.search import DocumentStream
from toolscript.surfaces.http.bodies import read_json
from toolscript.surfaces.http.dependencies import (
    ADMIT_TENANT,
    PUBLIC,
    TENANT,
    AdmittedPlan,
    AdmittedSearchPlan,
    Caller,
    CurrentApp,
)
from toolscript.surfaces.http.errors import INTERNAL_ERROR
from toolscript.surfaces.http.openapi import errors, request_body
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.http.schemas import documents as schemas
from toolscript.surfaces.http.schemas.models import ONE_LINE
from toolscript.surfaces.json import documents as responses
from toolscript.surfaces.json.calls import HealthResponse

NDJSON = "application/x-ndjson"
MAX_LISTED = 1000
MAX_SEARCH_BYTES = 2**20

DocId = Annotated[str, Path(description="The document's id; may have slashes.", examples=["contracts/lease-7"])]

_NDJSON_EXAMPLE = {
    "schema": {"type": "string"},
    "example": '{"hit": {"doc_id": "lease/7", "score": 0.0328, "relevance": 0.83, "metadata": {}, "snippet": "..."}}\n'
    '{"done": {"query_id": "...", "took_ms": 9.1, "total": 1, "total_relation": "eq", "nothing_relevant": false, '
    '"next_page_token": null, "degraded": []}}\n',
}

router = APIRouter(tags=["documents"], dependencies=[TENANT], responses=errors(429))
health_router = APIRouter(tags=["documents"], dependencies=[PUBLIC])
log = logging.getLogger(__name__)


@router.post(
    "/search",
    summary="Search documents: by meaning, by words, or both",
    description=f"With `Accept: {NDJSON}` each hit is one line, sent as soon as it is known; the last line is `done` "
    "with the rest of the response, or `error`.",
    response_model=JsonResponse[responses.DocumentPageResponse],
    responses={200: {"content": {NDJSON: _NDJSON_EXAMPLE}}, **errors(400)},
    openapi_extra=request_body(schemas.DocumentSearchRequest),
)
async def search_documents(request: Request, app: CurrentApp, caller: Caller, plan: AdmittedSearchPlan) -> Response:
    query = await read_json(
        request, schemas.DocumentSearchRequest, schemas.DocumentSearchRequest.to_query, MAX_SEARCH_BYTES
    )
    accepted = ",".join(request.headers.getlist("accept")).lower().split(",")
    if any(each.partition(";")[0].strip() == NDJSON for each in accepted):
        stream = await app.document_search.stream(caller, query, plan)
        return StreamingResponse(stream_json_lines(stream), media_type=NDJSON)
    return JsonResponse(responses.build_page_response(await app.document_search.search(caller, query, plan)))


@router.put(
    "/documents/{doc_id:path}",
    summary="Add or replace a document",
    responses={
        200: {"description": "The document existed: it was replaced, or is unchanged."},
        201: {"model": JsonResponse[responses.PutDocumentResponse], "description": "The document is new."},
    },
    openapi_extra=request_body(schemas.DocumentRequest),
    dependencies=[ADMIT_TENANT],
)
async def put_document(
    doc_id: DocId, request: Request, app: CurrentApp, caller: Caller
) -> JsonResponse[responses.PutDocumentResponse]:
    document = await read_json(request, schemas.DocumentRequest, lambda body: body.to_document(doc_id))
    report = await app.ingest_documents.put(caller.tenant, [document])
    return JsonResponse(responses.build_put_response(doc_id, report), 201 if report.added else 200)


@router.post(
    "/documents",
    summary="Add or replace many documents",
    description="If one is invalid, none is written, and the error names its number and the field. After an "
    "interruption or an error with status 503 some may be written, each of them complete: send the request again.",
    openapi_extra=request_body(schemas.DocumentBatchRequest),
    dependencies=[ADMIT_TENANT],
)
async def put_documents(
    request: Request, app: CurrentApp, caller: Caller
) -> JsonResponse[responses.PutDocumentsResponse]:
    documents = await read_json(request, schemas.DocumentBatchRequest, schemas.DocumentBatchRequest.to_documents)
    return JsonResponse(responses.build_batch_response(await app.ingest_documents.put(caller.tenant, documents)))


@router.delete(
    "/documents/{doc_id:path}",
    summary="Remove a document",
    status_code=204,
    response_class=Response,
    responses=errors(404),
    dependencies=[ADMIT_TENANT],
)
async def remove_document(doc_id: DocId, app: CurrentApp, caller: Caller) -> None:
    if not await app.ingest_documents.delete(caller.tenant, [doc_id]):
        raise NotFound(f"no such document: {doc_id!r}. GET /documents lists the existing ones")


@router.get("/documents", summary="List documents by id, without their texts")
async def list_documents(
    app: CurrentApp,
    caller: Caller,
    plan: AdmittedPlan,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED, description="Maximum number of documents.")] = 100,
    after: Annotated[
        str | None,
        Query(max_length=512, pattern=ONE_LINE, description="Start after this id: `next` of the previous page."),
    ] = None,
) -> JsonResponse[responses.DocumentListResponse]:
    documents = await app.ingest_documents.listing(caller.tenant, after=after, limit=limit + 1)
    return JsonResponse(responses.build_document_list_response(documents, plan, limit=limit))


@router.get("/documents/{doc_id:path}", summary="One document with its text", responses=errors(404))
async def get_document(
    doc_id: DocId, app: CurrentApp, caller: Caller, plan: AdmittedPlan
) -> JsonResponse[responses.DocumentResponse]:
    return JsonResponse(responses.build_document_response(await app.ingest_documents.get(caller.tenant, doc_id), plan))


@health_router.get(
    "/search/health",
    summary="Whether document search works: store, index and model",
    description="If one of them fails, `details.adapter` of the error names it.",
)
async def check_search(app: CurrentApp) -> JsonResponse[HealthResponse]:
    await app.document_search.check()
    return JsonResponse({"status": "ok"})


async def stream_json_lines(stream: DocumentStream) -> AsyncIterator[bytes]:
    """Yields a line for each hit, then the rest of the response. The status is sent already, so an error is the last
    line."""
    try:
        async for batch in stream.batches:
            yield b"".join(_write_line("hit", responses.build_hit_response(hit)) for hit in batch)
    except ToolscriptError as error:
        yield _write_line("error", error.to_envelope()["error"])
    except Exception as error:
        log.error("unexpected", exc_info=error)  # noqa: TRY400
        yield _write_line("error", INTERNAL_ERROR.to_envelope()["error"])
    else:
        yield _write_line("done", responses.build_page_summary(stream.page))


def _write_line(name: str, content: Any) -> bytes:
    return json.dumps({name: content}, ensure_ascii=False).encode() + b"\n"
