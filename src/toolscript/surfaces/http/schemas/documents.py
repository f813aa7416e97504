"""Requests about documents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from toolscript.domain.documents import Document, check_document
from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.filters import EVERYTHING
from toolscript.services.documents.search import DocumentQuery, SearchType
from toolscript.surfaces.http.schemas.models import (
    StrictRequestModel,
)
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
