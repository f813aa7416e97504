"""Responses about knowledge as JSON, and the words of a knowledge request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from toolscript.domain.errors import InvalidArguments
from toolscript.services.knowledge.answers import AnswerStatus
from toolscript.services.knowledge.points import CHUNK
from toolscript.surfaces.json.definitions import More, Share, omit_empty
from toolscript.surfaces.json.searches import NOTHING_RELEVANT, RELEVANCE, OptionalDegraded

if TYPE_CHECKING:
    from toolscript.domain.errors import Unavailable
    from toolscript.domain.knowledge import Source
    from toolscript.services.knowledge.answers import KnowledgeAnswer
    from toolscript.services.knowledge.context import KnowledgeHit
    from toolscript.services.knowledge.search import KnowledgeResults
    from toolscript.services.knowledge.transfer import ImportReport

# The refused lines of an import that are listed.
MAX_REFUSED = 1000


class PositionResponse(TypedDict):
    """Where it stands in the source; null if unknown."""

    chapter: str | None
    section: str | None
    page: int | None
    line: NotRequired[Annotated[int, "Of a text file; left out if unknown."]]


class SourceResponse(TypedDict):
    """The source of a result."""

    source_id: str
    chunk_id: Annotated[str | None, "The chunk itself, or the chunk it was extracted from."]
    title: str
    authors: list[str]
    date: NotRequired[Annotated[str, "2024, 2024-05 or 2024-05-31, as the file gives it. Left out if unknown."]]
    position: PositionResponse


class KnowledgeResultResponse(TypedDict):
    """A matching chunk or extraction."""

    id: str
    score: Annotated[
        Share,
        "Cosine similarity of the result and the query. Results are ordered by it and by the words that "
        "they share with the query.",
    ]
    relevance: Annotated[Share | None, RELEVANCE]
    type: Literal["chunk", "extraction"]
    content: Annotated[
        str,
        "Text of the chunk. For an extraction: a line with its type and topics, such as "
        "`warning (tea, brewing)`, then one line for each of its fields.",
    ]
    source: SourceResponse
    also_in: NotRequired[
        Annotated[list[SourceResponse], "Other sources with nearly the same text. Left out if there are none."]
    ]
    merged: NotRequired[
        Annotated[list[str], "Ids of further results that are part of this one's section. Left out if there are none."]
    ]


class KnowledgeMetadataResponse(TypedDict):
    """How the search ran."""

    query: str
    sources_cited: Annotated[list[str], "Titles of the sources of the results, each once, in order."]
    result_count: int
    nothing_relevant: Annotated[bool, NOTHING_RELEVANT]
    search_type: Annotated[
        Literal["hybrid", "semantic"],
        "`hybrid`: by meaning and words. `semantic`: by meaning alone, because no result shares a word "
        "with the query, or words are not indexed yet.",
    ]
    degraded: NotRequired[OptionalDegraded]


class RefusedLineResponse(TypedDict):
    """A line that was not imported."""

    line: Annotated[int, "Its number in the body.", More(minimum=1)]
    problem: str


class ImportResponse(TypedDict):
    """What was imported."""

    sources: int
    added: Annotated[int, "New sources."]
    changed: Annotated[int, "Sources that were replaced by something else."]
    chunks: int
    extractions: int
    refused: Annotated[list[RefusedLineResponse], f"The first {MAX_REFUSED} lines that were refused."]
    refused_count: int


class CitationResponse(TypedDict):
    """A result that says what the sentence does."""

    result: Annotated[int, "Its number in the results, from 1.", More(minimum=1)]
    id: str


class SentenceResponse(TypedDict):
    """A sentence of the answer. Its results have most of its words, and all of its numbers."""

    text: str
    citations: list[CitationResponse]


class AnswerResponse(TypedDict):
    """An answer from the first results, or why there is none."""

    status: AnswerStatus
    text: Annotated[str, "The sentences, each with the numbers of its results in brackets; or empty."]
    sentences: list[SentenceResponse]
    left_out: Annotated[
        int,
        "How many sentences of the language model are not in the text: its results do not support them, or "
        "they are more than an answer may have.",
    ]
    note: NotRequired[Annotated[str, "Why there is no answer. Left out if there is one."]]


class KnowledgeResponse(TypedDict):
    """Results, best first."""

    answer: NotRequired[Annotated[AnswerResponse, "Left out unless the request asks for it."]]
    results: list[KnowledgeResultResponse]
    metadata: KnowledgeMetadataResponse


class SourceRowResponse(TypedDict):
    """A book, paper or other file in the knowledge."""

    id: str
    title: str
    authors: list[str]
    date: Annotated[str | None, "As the file gives it."]
    type: str
    path: str
    chunks: int
    extractions: int
    ingested_at: str
    status: Annotated[str, "`ready` if all of it can be found."]


class SourceListResponse(TypedDict):
    """The sources of knowledge."""

    sources: list[SourceRowResponse]


def build_knowledge_response(query: str, results: KnowledgeResults) -> KnowledgeResponse:
    """Builds the response of `search_knowledge`."""
    metadata: KnowledgeMetadataResponse = {
        "query": query,
        "sources_cited": list(results.sources_cited),
        "result_count": len(results.hits),
        "nothing_relevant": results.nothing_relevant,
        "search_type": "hybrid" if results.has_words else "semantic",
        "degraded": list(results.report.degraded),
    }
    response: KnowledgeResponse = {
        "results": [_build_result(hit) for hit in results.hits],
        "metadata": omit_empty(metadata, "degraded"),
    }
    return response if results.answer is None else {"answer": _build_answer(results.answer, results.hits), **response}


def public_error_message(error: Unavailable) -> str:
    """Returns the message for callers without credentials: it names the adapter that failed, but not its address or its
    own error."""
    adapter = error.details.get("adapter")
    if adapter is None:
        return error.message
    return f"knowledge search is unavailable: the {adapter} failed, see the gateway's log. Try again in a moment"


def build_import_response(report: ImportReport) -> ImportResponse:
    """Builds the counts of an import, and the first refused lines."""
    return {
        "sources": report.sources,
        "added": report.added,
        "changed": report.changed,
        "chunks": report.chunks,
        "extractions": report.extractions,
        "refused": [{"line": number, "problem": problem} for number, problem in report.refused[:MAX_REFUSED]],
        "refused_count": len(report.refused),
    }


def build_sources_response(sources: Sequence[Source], counts: Mapping[str, tuple[int, int]]) -> SourceListResponse:
    """Builds the response of `GET /api/v1/knowledge/sources` and `toolscript knowledge list`, from the numbers of
    chunks and extractions by id."""
    return {"sources": [_build_source_row(each, *counts.get(each.id, (0, 0))) for each in sources]}


def _build_source_row(source: Source, chunks: int, extractions: int) -> SourceRowResponse:
    return {
        "id": source.id,
        "title": source.title,
        "authors": list(source.authors),
        "date": source.date,
        "type": source.type,
        "path": source.path,
        "chunks": chunks,
        "extractions": extractions,
        "ingested_at": source.ingested_at,
        "status": source.status,
    }


def _build_answer(answer: KnowledgeAnswer, hits: Sequence[KnowledgeHit]) -> AnswerResponse:
    """Builds the answer; its text has the numbers of the results that it cites in brackets."""
    built: AnswerResponse = {
        "status": answer.status,
        "text": " ".join(f"{each.text} {''.join(f'[{n}]' for n in each.passages)}" for each in answer.sentences),
        "sentences": [
            {"text": each.text, "citations": [{"result": n, "id": hits[n - 1].id} for n in each.passages]}
            for each in answer.sentences
        ],
        "left_out": answer.left_out,
        "note": answer.note,
    }
    return omit_empty(built, "note")


def _build_result(hit: KnowledgeHit) -> KnowledgeResultResponse:
    result: KnowledgeResultResponse = {
        "id": hit.id,
        "score": hit.score,
        "relevance": hit.relevance,
        "type": "chunk" if hit.type == CHUNK else "extraction",
        "content": hit.content,
        "source": _build_source(hit),
        "also_in": [_build_source(copy) for copy in hit.copies],
        "merged": list(hit.merged),
    }
    return omit_empty(result, "also_in", "merged")


def _build_source(hit: KnowledgeHit) -> SourceResponse:
    built: PositionResponse = {
        "chapter": hit.position.chapter or None,
        "section": hit.position.section or None,
        "page": hit.position.page,
    }
    if hit.position.line is not None:
        built["line"] = hit.position.line
    source: SourceResponse = {
        "source_id": hit.source_id,
        "chunk_id": hit.chunk_id,
        "title": hit.title,
        "authors": list(hit.authors),
        "date": hit.date or "",
        "position": built,
    }
    return omit_empty(source, "date")


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
