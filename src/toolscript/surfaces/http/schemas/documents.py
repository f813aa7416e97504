"""What requests and answers about documents look like, for the OpenAPI document and for reading what is asked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from toolscript.domain.documents import Document, check_document
from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.filters import EVERYTHING
from toolscript.domain.search import SearchPart
from toolscript.services.documents.search import DocumentQuery, SearchType
from toolscript.surfaces.json.filters import METADATA_VALUE, FiltersModel

MOST_DOCUMENTS = 1000

_METADATA = {
    "type": "object",
    "maxProperties": 100,
    "propertyNames": {"minLength": 1, "maxLength": 128, "pattern": r'^[^"\u0000-\u001f\u007f-\u009f]+$'},
    "additionalProperties": METADATA_VALUE,
}


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class DocumentSearchRequest(_Asked):
    """A search in the caller's documents."""

    query: str | None = Field(
        default=None,
        max_length=1000,
        description="What to look for. Without it, all documents that pass the filters, by id.",
        examples=["notice period of the lease"],
    )
    top_k: int = Field(default=10, ge=1, le=200, description="Most hits.")
    offset: int = Field(default=0, ge=0, le=10_000, description="How many hits to pass over.")
    search_type: SearchType = Field(
        default=SearchType.HYBRID, description="By meaning, by words (BM25), or both and the best of both."
    )
    fusion: Literal["rrf", "zscore"] | None = Field(
        default=None, description="How `hybrid` brings the two together; rrf when not given."
    )
    filters: FiltersModel | None = Field(default=None, description="What the documents' metadata must be like.")
    include_snippets: bool = Field(default=True, description="Tell the part of each document that fits best.")
    snippet_max_chars: int = Field(default=240, ge=32, le=1000, description="Most characters of a snippet.")
    highlight: bool = Field(default=False, description="Put `**` around the words of the query in snippets.")
    metadata_fields: Annotated[list[str], Field(fail_fast=True)] | None = Field(
        default=None,
        max_length=100,
        description="Tell these fields of the metadata. Without it, all.",
        examples=[["title", "path", "tags"]],
    )
    rerank: bool = Field(default=False, description="Have the best hits put in a better order (TOOLSCRIPT_RERANKER).")
    page_token: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="`next_page_token` of the page before, with an otherwise equal question, instead of `offset`.",
    )

    def ask(self) -> DocumentQuery:
        """The same in the words of the service. Raises InvalidArguments, naming the field."""
        given = {name: getattr(self, name) for name in DocumentSearchRequest.model_fields if name != "filters"}
        given["metadata_fields"] = None if self.metadata_fields is None else tuple(self.metadata_fields)
        return DocumentQuery(**given, where=self.filters.to_filter() if self.filters else EVERYTHING)


class DocumentRequest(_Asked):
    """A document without its id."""

    text: str = Field(
        min_length=1, max_length=10_000_000, description="What is searched.", examples=["The notice period is ..."]
    )
    title: str | None = Field(default=None, max_length=1000, description="Searched too.", examples=["Lease of 2024"])
    metadata: Annotated[dict[str, Any] | None, WithJsonSchema({"anyOf": [_METADATA, {"type": "null"}]})] = Field(
        default=None,
        description="Texts, numbers, true or false, ISO dates, and lists of these, to filter by.",
        examples=[{"tags": ["contract"], "year": 2024}],
    )

    def document(self, doc_id: str, place: str = "") -> Document:
        """The document of that id. Raises InvalidArguments, naming the field after the place of the document."""
        document = Document(doc_id, self.text, self.title or "", self.metadata or {})
        try:
            check_document(document)
        except Invalid as error:
            field = f"{place}{error.details.get('field', '')}"
            told = f"{place.rstrip('.')}: {error.message}" if place else error.message
            raise InvalidArguments(told, details={**error.details, "field": field}) from error
        return document


class NamedDocumentRequest(DocumentRequest):
    """A document."""

    id: str = Field(min_length=1, max_length=512, description="Its name, unique to the tenant.", examples=["lease/7"])


class DocumentBatchRequest(_Asked):
    """Documents to be added or replaced: all of them, or none when one of them cannot be."""

    documents: list[NamedDocumentRequest] = Field(max_length=MOST_DOCUMENTS, fail_fast=True)

    def every(self) -> list[Document]:
        """The documents. Raises InvalidArguments, naming the number of the document and the field."""
        return [given.document(given.id, f"documents.{number}.") for number, given in enumerate(self.documents)]


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DocumentHitResponse(_Told):
    """A document that was found."""

    doc_id: str
    score: float = Field(description="How well it fits, by the ranking that was asked for; 0 without a query.")
    metadata: dict[str, Any]
    snippet: str | None = Field(description="The part of the text that fits best.")


class DocumentPageSummary(_Told):
    """Everything of an answer but its hits."""

    query_id: str = Field(description="The id of the request, also in `X-Request-ID` and in the logs.")
    took_ms: float
    total: int = Field(description="How many documents fit, the same on every page.")
    total_relation: Literal["eq", "gte"] = Field(description="Whether that is all of them, or there may be more.")
    next_page_token: str | None = Field(description="For `page_token`, to get what follows.")
    degraded: list[SearchPart] = Field(description="Parts that the search had to do without.")


class DocumentPageResponse(DocumentPageSummary):
    """The answer to a search."""

    hits: list[DocumentHitResponse]


class PutDocumentResponse(_Told):
    """What became of a document."""

    doc_id: str
    status: Literal["added", "changed", "unchanged"]


class PutDocumentsResponse(_Told):
    """What became of how many documents."""

    added: int
    changed: int
    unchanged: int


class DocumentResponse(_Told):
    """A document as it was put in."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class ListedDocumentResponse(_Told):
    """A document without its text."""

    id: str
    title: str
    metadata: dict[str, Any]
    characters: int = Field(description="How long the text is.")


class DocumentListResponse(_Told):
    """Documents by id."""

    documents: list[ListedDocumentResponse]
    next: str | None = Field(description="For `after`, to get what follows.")


class HealthResponse(_Told):
    """That everything answers."""

    status: Literal["ok"]
