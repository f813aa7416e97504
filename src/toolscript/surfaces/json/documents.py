"""Responses about documents as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolscript.domain.access import Plan
    from toolscript.domain.documents import Document
    from toolscript.services.documents.ingest import PutReport
    from toolscript.services.documents.search import DocumentHit, DocumentPage


def build_page_response(page: DocumentPage) -> dict[str, Any]:
    """Builds the response of `POST /search`."""
    return build_page_summary(page, hits=[build_hit_response(hit) for hit in page.hits])


def build_hit_response(hit: DocumentHit) -> dict[str, Any]:
    """Builds one hit."""
    return {
        "doc_id": hit.doc_id,
        "score": hit.score,
        "relevance": hit.relevance,
        "metadata": dict(hit.metadata),
        "snippet": hit.snippet,
    }


def build_page_summary(page: DocumentPage, **hits: list[dict[str, Any]]) -> dict[str, Any]:
    """Builds a page without its hits, unless given: the last line of a stream."""
    return {
        "query_id": page.query_id,
        "took_ms": round(page.report.timings_ms.get("total", 0.0), 3),
        "total": page.total,
        "total_relation": page.total_relation,
        "nothing_relevant": page.nothing_relevant,
        **hits,
        "next_page_token": page.next_page_token,
        "degraded": list(page.report.degraded),
    }


def build_document_response(document: Document, plan: Plan) -> dict[str, Any]:
    """Builds the response of `GET /documents/{id}`, with the metadata fields that the plan allows."""
    return {
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": _select_metadata(document, plan),
    }


def build_document_list_response(documents: Sequence[Document], plan: Plan, *, limit: int) -> dict[str, Any]:
    """Builds the response of `GET /documents` from `limit + 1` documents: one more shows that more follow."""
    listed = documents[:limit]
    return {
        "documents": [
            {"id": d.id, "title": d.title, "metadata": _select_metadata(d, plan), "characters": len(d.text)}
            for d in listed
        ],
        "next": listed[-1].id if len(documents) > limit else None,
    }


def build_put_response(doc_id: str, report: PutReport) -> dict[str, Any]:
    """Builds the response of `PUT /documents/{id}`."""
    status = "added" if report.added else "changed" if report.changed else "unchanged"
    return {"doc_id": doc_id, "status": status}


def build_batch_response(report: PutReport) -> dict[str, Any]:
    """Builds the response of `POST /documents`."""
    return {"added": report.added, "changed": report.changed, "unchanged": report.unchanged}


def _select_metadata(document: Document, plan: Plan) -> dict[str, Any]:
    return {name: value for name, value in document.metadata.items() if plan.fields is None or name in plan.fields}
