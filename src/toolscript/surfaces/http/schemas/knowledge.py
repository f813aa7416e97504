"""What requests and answers about knowledge look like, for the OpenAPI document and for reading what is asked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from toolscript.domain.knowledge import EXTRACTION_TYPES
from toolscript.domain.search import MAX_QUERY_CHARACTERS, SearchPart
from toolscript.services.knowledge.search import (
    DEFAULT_HITS,
    MAX_HITS,
    MAX_WORD_CHARACTERS,
    MAX_WORDS,
)

QUERY = "What to look for, in plain words."
LIMIT = f"Most results; {DEFAULT_HITS} when not given."
TYPES = f"Only these: `chunk`, `extraction`, or a type of extractions such as {', '.join(EXTRACTION_TYPES[:3])}."
TOPICS = "Only what is about any of these, in whatever case."

_WORD = {"type": "string", "maxLength": MAX_WORD_CHARACTERS}
_WORDS = {"anyOf": [_WORD, {"type": "array", "items": _WORD | {"minLength": 1}, "maxItems": MAX_WORDS}]}
Words = Annotated[Any, WithJsonSchema({"anyOf": [*_WORDS["anyOf"], {"type": "null"}]})]


class KnowledgeRequest(BaseModel):
    """A search in knowledge. What stands in the address as well must be the same there."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str | None = Field(
        default=None, max_length=MAX_QUERY_CHARACTERS, description=QUERY, examples=["when to prefer composition"]
    )
    limit: int | None = Field(default=None, ge=1, le=MAX_HITS, description=LIMIT)
    type: Words = Field(default=None, description=TYPES, examples=[["decision", "pattern"]])
    topics: Words = Field(default=None, description=TOPICS, examples=[["testing"]])


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PositionResponse(_Told):
    """Where in the source it stands; null is not known."""

    chapter: str | None
    section: str | None
    page: int | None


class SourceResponse(_Told):
    """What it comes from."""

    source_id: str
    chunk_id: str | None = Field(description="The chunk that it is, or was read out of.")
    title: str
    authors: list[str]
    position: PositionResponse


class KnowledgeResultResponse(_Told):
    """A chunk or an extraction that was found."""

    id: str
    score: float = Field(ge=0, le=1, description="How near it is to the query in meaning (cosine).")
    type: Literal["chunk", "extraction"]
    content: str = Field(
        description="What the chunk says. Of an extraction: a line with its kind, and its topics if it has any, as "
        "`warning (tea, brewing)`; then its parts, one a line."
    )
    source: SourceResponse


class KnowledgeMetadataResponse(_Told):
    """What is to be said of the whole."""

    query: str
    sources_cited: list[str] = Field(description="The titles of all sources of the results, in order, each once.")
    result_count: int
    search_type: Literal["semantic"]
    degraded: list[SearchPart] = Field(
        default_factory=list,
        description="Parts that the search had to do without; left out when there are none.",
    )


class KnowledgeResponse(_Told):
    """The answer to a search: best first."""

    results: list[KnowledgeResultResponse]
    metadata: KnowledgeMetadataResponse
