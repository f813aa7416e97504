"""The request of a knowledge search."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from toolscript.domain.files.kinds import FileKind
from toolscript.domain.knowledge import EXTRACTION_TYPES
from toolscript.domain.search import MAX_QUERY_CHARACTERS
from toolscript.services.knowledge.context import MAX_SECTION_CHARACTERS
from toolscript.services.knowledge.search import (
    DEFAULT_HITS,
    MAX_HITS,
    MAX_WORD_CHARACTERS,
    MAX_WORDS,
)
from toolscript.surfaces.http.schemas.models import (
    StrictRequestModel,
)
from toolscript.surfaces.json.filters import FiltersModel

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
