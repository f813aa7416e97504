"""Documents over HTTP: search, add, list and remove the tenant's own."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field, WithJsonSchema
from starlette.responses import Response, StreamingResponse

from toolscript.domain.documents import Document, check_document
from toolscript.domain.errors import Invalid, InvalidArguments, NotFound, ToolscriptError
from toolscript.domain.filters import EVERYTHING
from toolscript.services.documents.search import DocumentQuery, DocumentStream, SearchType
from toolscript.surfaces.http.bodies import (
    ONE_LINE,
    StrictRequestModel,
    read_json,
)
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
from toolscript.surfaces.json import documents as responses
from toolscript.surfaces.json.calls import HealthResponse
from toolscript.surfaces.json.filters import METADATA_VALUE, FiltersModel

MAX_DOCUMENTS = 1000

_METADATA = {
    "type": "object",
    "maxProperties": 100,
    "propertyNames": {"minLength": 1, "maxLength": 128, "pattern": r'^[^"\u0000-\u001f\u007f-\u009f]+$'},
    "additionalProperties": METADATA_VALUE,
}


class DocumentSearchRequest(StrictRequestModel):
    """A search of the tenant's documents."""

    query: str | None = Field(
        default=None,
        max_length=1000,
        description="The search text. Without it, all documents that pass the filters, by id.",
        examples=["notice period of the lease"],
    )
    top_k: int = Field(default=10, ge=1, le=200, description="Maximum number of hits.")
    offset: int = Field(default=0, ge=0, le=10_000, description="Number of hits to skip.")
    search_type: SearchType = Field(
        default=SearchType.HYBRID, description="By meaning, by words (BM25), or both, merged."
    )
    fusion: Literal["rrf", "zscore"] | None = Field(
        default=None, description="How `hybrid` merges the two rankings. Default: rrf."
    )
    filters: FiltersModel | None = Field(default=None, description="Conditions on the documents' metadata.")
    include_snippets: bool = Field(default=True, description="Include the best matching part of each document.")
    snippet_max_chars: int = Field(
        default=240, ge=32, le=1000, description="Maximum number of characters of a snippet."
    )
    highlight: bool = Field(default=False, description="Put `**` around words of the query in snippets.")
    metadata_fields: Annotated[list[str], Field(fail_fast=True)] | None = Field(
        default=None,
        max_length=100,
        description="Metadata fields to include. Default: all.",
        examples=[["title", "path", "tags"]],
    )
    rerank: bool = Field(default=False, description="Reorder the best hits with the reranker (TOOLSCRIPT_RERANKER).")
    page_token: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="`next_page_token` of the previous page of the same search, instead of `offset`.",
    )

    min_relevance: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Leave out documents of less relevance; `total` counts the others. Needs a query. Default: none is "
        "left out.",
        examples=[0.3],
    )

    def to_query(self) -> DocumentQuery:
        """Converts it to the query of the service. Raises InvalidArguments, naming the field."""
        fields = {name: getattr(self, name) for name in DocumentSearchRequest.model_fields if name != "filters"}
        fields["metadata_fields"] = None if self.metadata_fields is None else tuple(self.metadata_fields)
        return DocumentQuery(**fields, where=self.filters.to_filter() if self.filters else EVERYTHING)


class DocumentRequest(StrictRequestModel):
    """A document without its id."""

    text: str = Field(
        min_length=1,
        max_length=10_000_000,
        description="The text that is searched.",
        examples=["The notice period is ..."],
    )
    title: str | None = Field(default=None, max_length=1000, description="Is searched too.", examples=["Lease of 2024"])
    metadata: Annotated[dict[str, Any] | None, WithJsonSchema({"anyOf": [_METADATA, {"type": "null"}]})] = Field(
        default=None,
        description="Strings, numbers, booleans, ISO dates and lists of them, for filters.",
        examples=[{"tags": ["contract"], "year": 2024}],
    )

    def to_document(self, doc_id: str, path: str = "") -> Document:
        """Converts it to the document with this id. Raises InvalidArguments with the field below the path."""
        document = Document(doc_id, self.text, self.title or "", self.metadata or {})
        try:
            check_document(document)
        except Invalid as error:
            field = f"{path}{error.details.get('field', '')}"
            message = f"{path.rstrip('.')}: {error.message}" if path else error.message
            raise InvalidArguments(message, details={**error.details, "field": field}) from error
        return document


class NamedDocumentRequest(DocumentRequest):
    """A document."""

    id: str = Field(min_length=1, max_length=512, description="Unique within the tenant.", examples=["lease/7"])


class DocumentBatchRequest(StrictRequestModel):
    """Documents to add or replace: all of them, or none if one is invalid."""

    documents: list[NamedDocumentRequest] = Field(max_length=MAX_DOCUMENTS, fail_fast=True)

    def to_documents(self) -> list[Document]:
        """Converts it to documents. Raises InvalidArguments with the document's number and the field."""
        return [each.to_document(each.id, f"documents.{number}.") for number, each in enumerate(self.documents)]


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
    openapi_extra=request_body(DocumentSearchRequest),
)
async def search_documents(request: Request, app: CurrentApp, caller: Caller, plan: AdmittedSearchPlan) -> Response:
    query = await read_json(request, DocumentSearchRequest, DocumentSearchRequest.to_query, MAX_SEARCH_BYTES)
    accepted = ",".join(request.headers.getlist("accept")).lower().split(",")
    if any(each.partition(";")[0].strip() == NDJSON for each in accepted):
        stream = await app.texts.document_search.stream(caller, query, plan)
        return StreamingResponse(stream_json_lines(stream), media_type=NDJSON)
    return JsonResponse(responses.build_page_response(await app.texts.document_search.search(caller, query, plan)))


@router.put(
    "/documents/{doc_id:path}",
    summary="Add or replace a document",
    responses={
        200: {"description": "The document existed: it was replaced, or is unchanged."},
        201: {"model": JsonResponse[responses.PutDocumentResponse], "description": "The document is new."},
    },
    openapi_extra=request_body(DocumentRequest),
    dependencies=[ADMIT_TENANT],
)
async def put_document(
    doc_id: DocId, request: Request, app: CurrentApp, caller: Caller
) -> JsonResponse[responses.PutDocumentResponse]:
    document = await read_json(request, DocumentRequest, lambda body: body.to_document(doc_id))
    report = await app.texts.ingest_documents.put(caller.tenant, [document])
    return JsonResponse(responses.build_put_response(doc_id, report), 201 if report.added else 200)


@router.post(
    "/documents",
    summary="Add or replace many documents",
    description="If one is invalid, none is written, and the error names its number and the field. After an "
    "interruption or an error with status 503 some may be written, each of them complete: send the request again.",
    openapi_extra=request_body(DocumentBatchRequest),
    dependencies=[ADMIT_TENANT],
)
async def put_documents(
    request: Request, app: CurrentApp, caller: Caller
) -> JsonResponse[responses.PutDocumentsResponse]:
    documents = await read_json(request, DocumentBatchRequest, DocumentBatchRequest.to_documents)
    return JsonResponse(responses.build_batch_response(await app.texts.ingest_documents.put(caller.tenant, documents)))


@router.delete(
    "/documents/{doc_id:path}",
    summary="Remove a document",
    status_code=204,
    response_class=Response,
    responses=errors(404),
    dependencies=[ADMIT_TENANT],
)
async def remove_document(doc_id: DocId, app: CurrentApp, caller: Caller) -> None:
    if not await app.texts.ingest_documents.delete(caller.tenant, [doc_id]):
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
    documents = await app.texts.ingest_documents.listing(caller.tenant, after=after, limit=limit + 1)
    return JsonResponse(responses.build_document_list_response(documents, plan, limit=limit))


@router.get("/documents/{doc_id:path}", summary="One document with its text", responses=errors(404))
async def get_document(
    doc_id: DocId, app: CurrentApp, caller: Caller, plan: AdmittedPlan
) -> JsonResponse[responses.DocumentResponse]:
    return JsonResponse(
        responses.build_document_response(await app.texts.ingest_documents.get(caller.tenant, doc_id), plan)
    )


@health_router.get(
    "/search/health",
    summary="Whether document search works: store, index and model",
    description="If one of them fails, `details.adapter` of the error names it.",
)
async def check_search(app: CurrentApp) -> JsonResponse[HealthResponse]:
    await app.texts.document_search.check()
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
