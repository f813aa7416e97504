"""The request and the response of a knowledge search."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from toolscript.domain.files.kinds import FileKind
from toolscript.domain.knowledge import EXTRACTION_TYPES
from toolscript.domain.search import MAX_QUERY_CHARACTERS, SearchPart
from toolscript.services.knowledge.answers import AnswerStatus
from toolscript.services.knowledge.context import MAX_SECTION_CHARACTERS
from toolscript.services.knowledge.search import (
    DEFAULT_HITS,
    MAX_HITS,
    MAX_WORD_CHARACTERS,
    MAX_WORDS,
)
from toolscript.surfaces.http.schemas.models import (
    DEGRADED,
    NOTHING_RELEVANT,
    RELEVANCE,
    ResponseModel,
    StrictRequestModel,
)
from toolscript.surfaces.json.filters import FiltersModel
from toolscript.surfaces.json.knowledge import MAX_REFUSED

QUERY = "The search text, in plain words."
LIMIT = f"Maximum number of results. Default: {DEFAULT_HITS}."
TYPES = f"Only these types: `chunk`, `extraction`, or a type of extraction such as {', '.join(EXTRACTION_TYPES[:3])}."
TOPICS = "Only results about one of these topics; case does not matter."
ANSWER = (
    "Whether to answer from the results, with a citation for every sentence. Needs a language model "
    "(`TOOLSCRIPT_LLM_URL`); without one the response says so."
)
CONTEXT = (
    "`passage`: each result is a passage. `section`: with the section around it, up to "
    f"{MAX_SECTION_CHARACTERS} characters; results of which one text would continue the other are merged."
)
FILTERS = (
    "Only sources that pass these conditions. Fields: `title`, `authors`, `date`, `year` (a number), `kind` (of file: "
    f"{', '.join(FileKind)}), `extension` (such as `.pdf`), `type`, and other metadata of the source. Case does not "
    "matter. Not in the query string."
)
MIN_RELEVANCE = "Leave out results of less relevance. Default: none is left out."

_WORD = {"type": "string", "maxLength": MAX_WORD_CHARACTERS}
_WORDS = {"anyOf": [_WORD, {"type": "array", "items": _WORD | {"minLength": 1}, "maxItems": MAX_WORDS}]}
Words = Annotated[Any, WithJsonSchema({"anyOf": [*_WORDS["anyOf"], {"type": "null"}]})]


class KnowledgeRequest(StrictRequestModel):
    """A knowledge search. A value that the query string has too must be the same there."""

    query: str | None = Field(
        default=None, max_length=MAX_QUERY_CHARACTERS, description=QUERY, examples=["when to prefer composition"]
    )
    limit: int | None = Field(default=None, ge=1, le=MAX_HITS, description=LIMIT)
    type: Words = Field(default=None, description=TYPES, examples=[["decision", "pattern"]])
    topics: Words = Field(default=None, description=TOPICS, examples=[["testing"]])
    answer: bool | None = Field(default=None, description=ANSWER)
    context: Literal["passage", "section"] | None = Field(default=None, description=CONTEXT)
    min_relevance: float | None = Field(default=None, ge=0, le=1, description=MIN_RELEVANCE, examples=[0.3])
    filters: FiltersModel | None = Field(default=None, description=FILTERS)


class PositionResponse(ResponseModel):
    """Where it stands in the source; null if unknown."""

    chapter: str | None
    section: str | None
    page: int | None
    line: int | None = Field(default=None, description="Of a text file; left out if unknown.")


class SourceResponse(ResponseModel):
    """The source of a result."""

    source_id: str
    chunk_id: str | None = Field(description="The chunk itself, or the chunk it was extracted from.")
    title: str
    authors: list[str]
    date: str | None = Field(
        default=None, description="2024, 2024-05 or 2024-05-31, as the file gives it. Left out if unknown."
    )
    position: PositionResponse


class KnowledgeResultResponse(ResponseModel):
    """A matching chunk or extraction."""

    id: str
    score: float = Field(
        ge=0,
        le=1,
        description="Cosine similarity of the result and the query. Results are ordered by it and by the words that "
        "they share with the query.",
    )
    relevance: float | None = Field(ge=0, le=1, description=RELEVANCE)
    type: Literal["chunk", "extraction"]
    content: str = Field(
        description="Text of the chunk. For an extraction: a line with its type and topics, such as "
        "`warning (tea, brewing)`, then one line for each of its fields."
    )
    source: SourceResponse
    also_in: list[SourceResponse] = Field(
        default_factory=list, description="Other sources with nearly the same text. Left out if there are none."
    )
    merged: list[str] = Field(
        default_factory=list,
        description="Ids of further results that are part of this one's section. Left out if there are none.",
    )


class KnowledgeMetadataResponse(ResponseModel):
    """How the search ran."""

    query: str
    sources_cited: list[str] = Field(description="Titles of the sources of the results, each once, in order.")
    result_count: int
    nothing_relevant: bool = Field(description=NOTHING_RELEVANT)
    search_type: Literal["hybrid", "semantic"] = Field(
        description="`hybrid`: by meaning and words. `semantic`: by meaning alone, because no result shares a word "
        "with the query, or words are not indexed yet."
    )
    degraded: list[SearchPart] = Field(default_factory=list, description=f"{DEGRADED} Left out if there are none.")


class RefusedLineResponse(ResponseModel):
    """A line that was not imported."""

    line: int = Field(ge=1, description="Its number in the body.")
    problem: str


class ImportResponse(ResponseModel):
    """What was imported."""

    sources: int
    added: int = Field(description="New sources.")
    changed: int = Field(description="Sources that were replaced by something else.")
    chunks: int
    extractions: int
    refused: list[RefusedLineResponse] = Field(description=f"The first {MAX_REFUSED} lines that were refused.")
    refused_count: int


class CitationResponse(ResponseModel):
    """A result that says what the sentence does."""

    result: int = Field(ge=1, description="Its number in the results, from 1.")
    id: str


class SentenceResponse(ResponseModel):
    """A sentence of the answer. Its results have most of its words, and all of its numbers."""

    text: str
    citations: list[CitationResponse]


class AnswerResponse(ResponseModel):
    """An answer from the first results, or why there is none."""

    status: AnswerStatus
    text: str = Field(description="The sentences, each with the numbers of its results in brackets; or empty.")
    sentences: list[SentenceResponse]
    left_out: int = Field(
        description="How many sentences of the language model are not in the text: its results do not support them, or "
        "they are more than an answer may have."
    )
    note: str | None = Field(default=None, description="Why there is no answer. Left out if there is one.")


class KnowledgeResponse(ResponseModel):
    """Results, best first."""

    answer: AnswerResponse | None = Field(default=None, description="Left out unless the request asks for it.")
    results: list[KnowledgeResultResponse]
    metadata: KnowledgeMetadataResponse


class SourceRowResponse(ResponseModel):
    """A book, paper or other file in the knowledge."""

    id: str
    title: str
    authors: list[str]
    date: str | None = Field(description="As the file gives it.")
    type: str
    path: str
    chunks: int
    extractions: int
    ingested_at: str
    status: str = Field(description="`ready` if all of it can be found.")


class SourceListResponse(ResponseModel):
    """The sources of knowledge."""

    sources: list[SourceRowResponse]
