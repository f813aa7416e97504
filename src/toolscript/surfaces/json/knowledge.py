"""Answers about knowledge as they look in JSON, the same on every surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolscript.domain.errors import Unavailable
    from toolscript.domain.knowledge import Source
    from toolscript.services.knowledge.search import KnowledgeHit, KnowledgeResults


def build_knowledge_response(query: str, found: KnowledgeResults) -> dict[str, Any]:
    """The answer of `search_knowledge`. What had to be done without is told only when there was something."""
    metadata: dict[str, Any] = {
        "query": query,
        "sources_cited": list(found.sources_cited),
        "result_count": len(found.hits),
        "search_type": "semantic",
    }
    if found.report.degraded:
        metadata["degraded"] = list(found.report.degraded)
    return {"results": [_result(hit) for hit in found.hits], "metadata": metadata}


def public_error_message(error: Unavailable) -> str:
    """What whoever may ask without a key is told of a search that could not be made: which part does not answer. Where
    that part is, and what it said, is the owner's affair."""
    adapter = error.details.get("adapter")
    if adapter is None:
        return error.message
    return f"knowledge cannot be searched right now, because of the {adapter}: the log tells why. Try again in a moment"


def build_source_response(source: Source) -> dict[str, Any]:
    """What a source is."""
    return {
        "id": source.id,
        "title": source.title,
        "authors": list(source.authors),
        "type": source.type,
        "path": source.path,
    }


def _result(hit: KnowledgeHit) -> dict[str, Any]:
    return {
        "id": hit.id,
        "score": hit.score,
        "type": hit.type,
        "content": hit.content,
        "source": {
            "source_id": hit.source_id,
            "chunk_id": hit.chunk_id,
            "title": hit.title,
            "authors": list(hit.authors),
            "position": {
                "chapter": hit.position.chapter or None,
                "section": hit.position.section or None,
                "page": hit.position.page,
            },
        },
    }
