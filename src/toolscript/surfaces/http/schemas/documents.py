"""What requests and answers about documents look like, for the OpenAPI document and for reading what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from toolscript.domain.documents import Document, check_document
from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.services.documents.search import DocumentAsk, SearchType

MOST_CONDITIONS = 100
LONGEST_LIST = 1000
MOST_DOCUMENTS = 1000

_SCALARS = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
_VALUE = {"anyOf": [*_SCALARS, {"type": "array", "items": {"anyOf": _SCALARS}, "maxItems": LONGEST_LIST}]}
_METADATA = {
    "type": "object",
    "maxProperties": 100,
    "propertyNames": {"minLength": 1, "maxLength": 128, "pattern": r'^[^"\u0000-\u001f\u007f-\u009f]+$'},
    "additionalProperties": _VALUE,
}


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ConditionModel(_Asked):
    """One test of one metadata field. A field that holds a list passes when any of its values does."""

    field: str = Field(min_length=1, max_length=128, description="A field of the metadata.", examples=["tags"])
    op: Op = Field(description="What is asked of it.", examples=["in"])
    value: Annotated[Any, WithJsonSchema(_VALUE)] = Field(
        description="A list for `in` and `nin`, true or false for `exists`, a number or an ISO date for `lt`, `lte`, "
        "`gt` and `gte`; else a text, a number, true or false.",
        examples=[["contract", "ruling"]],
    )


Conditions = Annotated[list[ConditionModel], Field(max_length=MOST_CONDITIONS, fail_fast=True)]


class FiltersModel(_Asked):
    """All of `must`, any of `should` (when there are some), none of `must_not`."""

    must: Conditions | None = None
    should: Conditions | None = None
    must_not: Conditions | None = None

    def filter(self) -> Filter:
        """The same in the one filter language. Raises InvalidArguments, naming the condition."""
        parts = {name: getattr(self, name) or [] for name in FiltersModel.model_fields}
        if sum(map(len, parts.values())) > MOST_CONDITIONS:
            raise InvalidArguments(
                f"filters: more than {MOST_CONDITIONS} conditions: give fewer",
                details={"field": "filters", "most": MOST_CONDITIONS},
            )
        return Filter(**{name: _conditions(f"filters.{name}", given) for name, given in parts.items()})


class SearchModel(_Asked):
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

    def ask(self) -> DocumentAsk:
        """The same in the words of the service. Raises InvalidArguments, naming the field."""
        given = {name: getattr(self, name) for name in SearchModel.model_fields if name != "filters"}
        given["metadata_fields"] = None if self.metadata_fields is None else tuple(self.metadata_fields)
        return DocumentAsk(**given, where=self.filters.filter() if self.filters else EVERYTHING)


class DocumentModel(_Asked):
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


class NamedDocumentModel(DocumentModel):
    """A document."""

    id: str = Field(min_length=1, max_length=512, description="Its name, unique to the tenant.", examples=["lease/7"])


class BatchModel(_Asked):
    """Documents to be added or replaced: all of them, or none when one of them cannot be."""

    documents: list[NamedDocumentModel] = Field(max_length=MOST_DOCUMENTS, fail_fast=True)

    def every(self) -> list[Document]:
        """The documents. Raises InvalidArguments, naming the number of the document and the field."""
        return [given.document(given.id, f"documents.{number}.") for number, given in enumerate(self.documents)]


def _conditions(place: str, given: Sequence[ConditionModel]) -> tuple[Condition, ...]:
    made = []
    for number, each in enumerate(given):
        where = f"{place}.{number}"
        if isinstance(each.value, list) and len(each.value) > LONGEST_LIST:
            raise InvalidArguments(
                f"{where}.value: more than {LONGEST_LIST} values: give fewer",
                details={"field": f"{where}.value", "most": LONGEST_LIST},
            )
        try:
            made.append(Condition(each.field, each.op, each.value))
        except Invalid as error:
            raise InvalidArguments(
                f"{where}: {error.message}", details={**error.details, "field": f"{where}.value"}
            ) from error
    return tuple(made)


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid")


class HitTold(_Told):
    """A document that was found."""

    doc_id: str
    score: float = Field(description="How well it fits, by the ranking that was asked for; 0 without a query.")
    metadata: dict[str, Any]
    snippet: str | None = Field(description="The part of the text that fits best.")


class DoneTold(_Told):
    """Everything of an answer but its hits."""

    query_id: str = Field(description="The id of the request, also in `X-Request-ID` and in the logs.")
    took_ms: float
    total: int = Field(description="How many documents fit, the same on every page.")
    total_relation: Literal["eq", "gte"] = Field(description="Whether that is all of them, or there may be more.")
    next_page_token: str | None = Field(description="For `page_token`, to get what follows.")
    degraded: list[str] = Field(description="What had to be done without.")


class PageTold(DoneTold):
    """The answer to a search."""

    hits: list[HitTold]


class PutTold(_Told):
    """What became of a document."""

    doc_id: str
    status: Literal["added", "changed", "unchanged"]


class BatchTold(_Told):
    """What became of how many documents."""

    added: int
    changed: int
    unchanged: int


class DocumentTold(_Told):
    """A document as it was put in."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class ListedTold(_Told):
    """A document without its text."""

    id: str
    title: str
    metadata: dict[str, Any]
    characters: int = Field(description="How long the text is.")


class ListingTold(_Told):
    """Documents by id."""

    documents: list[ListedTold]
    next: str | None = Field(description="For `after`, to get what follows.")


class HealthTold(_Told):
    """That everything answers."""

    status: Literal["ok"]
