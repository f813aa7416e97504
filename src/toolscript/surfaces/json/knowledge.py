"""Responses about knowledge as JSON, and the words of a knowledge request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolscript.domain.errors import InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolscript.domain.errors import Unavailable
    from toolscript.domain.knowledge import Position, Source
    from toolscript.services.knowledge.answers import KnowledgeAnswer
    from toolscript.services.knowledge.context import KnowledgeHit
    from toolscript.services.knowledge.search import KnowledgeResults
    from toolscript.services.knowledge.transfer import ImportReport

# The refused lines of an import that are listed.
MAX_REFUSED = 1000


def build_knowledge_response(query: str, results: KnowledgeResults) -> dict[str, Any]:
    """Builds the response of `search_knowledge`; `degraded` is left out if nothing failed, and
    `answer` if none was asked for."""
    metadata: dict[str, Any] = {
        "query": query,
        "sources_cited": list(results.sources_cited),
        "result_count": len(results.hits),
        "nothing_relevant": results.nothing_relevant,
        "search_type": "hybrid" if results.has_words else "semantic",
    }
    if results.report.degraded:
        metadata["degraded"] = list(results.report.degraded)
    response = {"results": [_build_result(hit) for hit in results.hits], "metadata": metadata}
    return response if results.answer is None else {"answer": _build_answer(results.answer, results.hits), **response}


def public_error_message(error: Unavailable) -> str:
    """Returns the message for callers without credentials: it names the adapter that failed, but not its address or its
    own error."""
    adapter = error.details.get("adapter")
    if adapter is None:
        return error.message
    return f"knowledge search is unavailable: the {adapter} failed, see the gateway's log. Try again in a moment"


def build_source_response(source: Source) -> dict[str, Any]:
    """Builds one source."""
    return {
        "id": source.id,
        "title": source.title,
        "authors": list(source.authors),
        "date": source.date,
        "type": source.type,
        "path": source.path,
    }


def build_import_response(report: ImportReport) -> dict[str, Any]:
    """Builds the counts of an import, and the first refused lines."""
    counts = {name: getattr(report, name) for name in ("sources", "added", "changed", "chunks", "extractions")}
    listed = [{"line": number, "problem": problem} for number, problem in report.refused[:MAX_REFUSED]]
    return {**counts, "refused": listed, "refused_count": len(report.refused)}


def build_sources_response(sources: Sequence[Source], counts: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/knowledge/sources` and `toolscript knowledge list`, from the numbers of
    chunks and extractions by id."""
    return {"sources": [_build_source_row(each, *counts.get(each.id, (0, 0))) for each in sources]}


def _build_source_row(source: Source, chunks: int, extractions: int) -> dict[str, Any]:
    counts = {"chunks": chunks, "extractions": extractions}
    return {**build_source_response(source), **counts, "ingested_at": source.ingested_at, "status": source.status}


def _build_answer(answer: KnowledgeAnswer, hits: Sequence[KnowledgeHit]) -> dict[str, Any]:
    """Builds the answer; its text has the numbers of the results that it cites in brackets."""
    built: dict[str, Any] = {
        "status": answer.status.value,
        "text": " ".join(f"{each.text} {''.join(f'[{n}]' for n in each.passages)}" for each in answer.sentences),
        "sentences": [
            {"text": each.text, "citations": [{"result": n, "id": hits[n - 1].id} for n in each.passages]}
            for each in answer.sentences
        ],
        "left_out": answer.left_out,
    }
    return built | ({"note": answer.note} if answer.note else {})


def _build_result(hit: KnowledgeHit) -> dict[str, Any]:
    result = {
        "id": hit.id,
        "score": hit.score,
        "relevance": hit.relevance,
        "type": hit.type,
        "content": hit.content,
        "source": _build_source(hit),
    }
    result |= {"also_in": [_build_source(copy) for copy in hit.copies]} if hit.copies else {}
    return result | ({"merged": list(hit.merged)} if hit.merged else {})


def _build_source(hit: KnowledgeHit) -> dict[str, Any]:
    return {
        "source_id": hit.source_id,
        "chunk_id": hit.chunk_id,
        "title": hit.title,
        "authors": list(hit.authors),
        **({"date": hit.date} if hit.date else {}),
        "position": _build_position(hit.position),
    }


def _build_position(position: Position) -> dict[str, Any]:
    """Builds a position; the line is left out where it is unknown, which it is in most sources."""
    known = {"chapter": position.chapter or None, "section": position.section or None, "page": position.page}
    return known if position.line is None else {**known, "line": position.line}


def parse_words(field: str, value: Any) -> tuple[str, ...] | None:
    """Parses a comma-separated string or a list of words; returns each word once, or None without any. Raises
    InvalidArguments, naming the field."""
    if value is None:
        return None
    if isinstance(value, str):
        words = [word.strip() for word in value.split(",") if word.strip()]
    elif isinstance(value, list) and all(isinstance(word, str) and word.strip() for word in value):
        words = [word.strip() for word in value]
    else:
        raise InvalidArguments(
            f"{field}: expected a word, comma-separated words, or a list of words, none of them empty",
            details={"field": field},
        )
    return tuple(dict.fromkeys(words)) or None
