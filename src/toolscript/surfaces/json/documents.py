"""Responses about documents as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from toolscript.domain.access import Plan
from toolscript.domain.documents import Document
from toolscript.surfaces.json.definitions import Share
from toolscript.surfaces.json.searches import NOTHING_RELEVANT, RELEVANCE, Degraded

if TYPE_CHECKING:
    from toolscript.services.documents.ingest import PutReport
    from toolscript.services.documents.search import DocumentHit, DocumentPage


class DocumentHitResponse(TypedDict):
    """A matching document."""

    doc_id: str
    score: Annotated[float, "Score of the requested ranking, only good for the order; 0 without a query."]
    relevance: Annotated[Share | None, f"{RELEVANCE} Also without a query."]
    metadata: dict[str, Any]
    snippet: Annotated[str | None, "Best matching part of the text."]


class DocumentPageSummary(TypedDict):
    """A page of hits without the hits."""

    query_id: Annotated[
        str, "UUID of the search: the `X-Request-ID` of the response, unless the request brought one that is no UUID."
    ]
    took_ms: float
    total: Annotated[int, "Number of matching documents, the same on every page."]
    total_relation: Annotated[Literal["eq", "gte"], "`eq`: exactly `total` match; `gte`: there may be more."]
    nothing_relevant: Annotated[bool, NOTHING_RELEVANT]
    next_page_token: Annotated[str | None, "`page_token` of the next page."]
    degraded: Degraded


class DocumentPageResponse(DocumentPageSummary):
    """A page of hits, best first."""

    hits: list[DocumentHitResponse]


class PutDocumentResponse(TypedDict):
    """What was done with a document."""

    doc_id: str
    status: Literal["added", "changed", "unchanged"]


class PutDocumentsResponse(TypedDict):
    """How many documents were added, changed or left as they are."""

    added: int
    changed: int
    unchanged: int


class DocumentResponse(TypedDict):
    """A document as it was added."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class ListedDocumentResponse(TypedDict):
    """A document without its text."""

    id: str
    title: str
    metadata: dict[str, Any]
    characters: Annotated[int, "Length of the text."]


class DocumentListResponse(TypedDict):
    """Documents in the order of their ids."""

    documents: list[ListedDocumentResponse]
    next: Annotated[str | None, "`after` of the next page."]


def build_page_response(page: DocumentPage) -> DocumentPageResponse:
    """Builds the response of `POST /search`."""
    return {
        "query_id": page.query_id,
        "took_ms": round(page.report.timings_ms.get("total", 0.0), 3),
        "total": page.total,
        "total_relation": page.total_relation,
        "nothing_relevant": page.nothing_relevant,
        "hits": [build_hit_response(hit) for hit in page.hits],
        "next_page_token": page.next_page_token,
        "degraded": list(page.report.degraded),
    }


def build_hit_response(hit: DocumentHit) -> DocumentHitResponse:
    return {
        "doc_id": hit.doc_id,
        "score": hit.score,
        "relevance": hit.relevance,
        "metadata": dict(hit.metadata),
        "snippet": hit.snippet,
    }


def build_page_summary(page: DocumentPage) -> DocumentPageSummary:
    """Builds a page without its hits: the last line of a stream."""
    return {
        "query_id": page.query_id,
        "took_ms": round(page.report.timings_ms.get("total", 0.0), 3),
        "total": page.total,
        "total_relation": page.total_relation,
        "nothing_relevant": page.nothing_relevant,
        "next_page_token": page.next_page_token,
        "degraded": list(page.report.degraded),
    }


def build_document_response(document: Document, plan: Plan) -> DocumentResponse:
    """Builds the response of `GET /documents/{id}`, with the metadata fields that the plan allows."""
    return {
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": _select_metadata(document, plan),
    }


def build_document_list_response(documents: Sequence[Document], plan: Plan, *, limit: int) -> DocumentListResponse:
    """Builds the response of `GET /documents` from `limit + 1` documents: one more shows that more follow."""
    listed = documents[:limit]
    return {
        "documents": [
            {"id": d.id, "title": d.title, "metadata": _select_metadata(d, plan), "characters": len(d.text)}
            for d in listed
        ],
        "next": listed[-1].id if len(documents) > limit else None,
    }


def build_put_response(doc_id: str, report: PutReport) -> PutDocumentResponse:
    """Builds the response of `PUT /documents/{id}`."""
    return {"doc_id": doc_id, "status": "added" if report.added else "changed" if report.changed else "unchanged"}


def build_batch_response(report: PutReport) -> PutDocumentsResponse:
    """Builds the response of `POST /documents`."""
    return {"added": report.added, "changed": report.changed, "unchanged": report.unchanged}


def _select_metadata(document: Document, plan: Plan) -> dict[str, Any]:
    return {name: value for name, value in document.metadata.items() if plan.fields is None or name in plan.fields}
