"""Knowledge over HTTP: one search, without credentials unless the settings require a key, limited for each client."""

from __future__ import annotations

from io import BytesIO
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field, WithJsonSchema
from starlette.responses import Response

from toolscript.domain.errors import InvalidArguments, NotFound, Unavailable
from toolscript.domain.files.kinds import FileKind
from toolscript.domain.filters import EVERYTHING
from toolscript.domain.knowledge import EXTRACTION_TYPES
from toolscript.domain.search import MAX_QUERY_CHARACTERS
from toolscript.services.knowledge.context import MAX_SECTION_CHARACTERS, PassageContext
from toolscript.services.knowledge.search import (
    DEFAULT_HITS,
    MAX_HITS,
    MAX_WORD_CHARACTERS,
    MAX_WORDS,
    KnowledgeQuery,
)
from toolscript.surfaces.callers import require_answer_caller
from toolscript.surfaces.http.bodies import (
    ONE_LINE,
    StrictRequestModel,
    read_body,
    read_json,
    run_while_connected,
)
from toolscript.surfaces.http.dependencies import ADMIN, KNOWLEDGE_CLIENT, CurrentApp, Served
from toolscript.surfaces.http.errors import KnowledgeUnavailable
from toolscript.surfaces.http.input_limits import MAX_UPLOAD_BYTES
from toolscript.surfaces.http.openapi import errors, request_body
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json.filters import FiltersModel
from toolscript.surfaces.json.knowledge import (
    ImportResponse,
    KnowledgeResponse,
    SourceListResponse,
    build_import_response,
    build_knowledge_response,
    build_sources_response,
    parse_words,
    public_error_message,
)

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


MAX_SEARCH_BYTES = 2**20
LISTS = frozenset({"type", "topics"})
JSON_LINES = ("application/x-ndjson", "text/plain")
SEVERAL = " Several values: repeat the parameter, or separate them by commas."

router = APIRouter(tags=["knowledge"])

SourceId = Annotated[str, Path(pattern=ONE_LINE, max_length=64, description="The source's id.")]


@router.post(
    "/search_knowledge",
    operation_id="search_knowledge",
    summary="Search knowledge: chunks of books and extractions from them, with their sources",
    description="The query string, the body, or both may have the fields; in both, they must be the same. With "
    "TOOLSCRIPT_KNOWLEDGE_PUBLIC it needs no authentication. If one of the two collections cannot be searched, "
    "the other one still is.",
    responses=errors(429),
    openapi_extra=request_body(KnowledgeRequest, required=False),
    dependencies=[KNOWLEDGE_CLIENT],
)
async def search_knowledge(
    request: Request,
    app: CurrentApp,
    served: Served,
    query: Annotated[str | None, Query(max_length=MAX_QUERY_CHARACTERS, description=QUERY)] = None,
    limit: Annotated[int | None, Query(ge=1, le=MAX_HITS, description=LIMIT)] = None,
    type: Annotated[list[str] | None, Query(description=TYPES + SEVERAL)] = None,  # noqa: A002
    topics: Annotated[list[str] | None, Query(description=TOPICS + SEVERAL)] = None,
    answer: Annotated[bool | None, Query(description=ANSWER)] = None,
    context: Annotated[PassageContext | None, Query(description=CONTEXT)] = None,
    min_relevance: Annotated[float | None, Query(ge=0, le=1, description=MIN_RELEVANCE)] = None,
) -> JsonResponse[KnowledgeResponse]:
    names = [name for name, _ in request.query_params.multi_items()]
    repeated = [name for name in dict.fromkeys(names) if name not in LISTS and names.count(name) > 1]
    if repeated:
        raise InvalidArguments(
            f"{', '.join(repeated)}: given more than once in the query string: give one of each",
            details={"field": repeated[0]},
        )
    parameters = {
        "query": query,
        "limit": limit,
        "type": _join_words(type),
        "topics": _join_words(topics),
        "answer": answer,
        "context": context,
        "min_relevance": min_relevance,
    }
    ask = await read_json(
        request, KnowledgeRequest, lambda body: _merge(parameters, body), MAX_SEARCH_BYTES, required=False
    )
    if ask.answer:
        await require_answer_caller(served.settings, app, request.headers, is_owner=request.scope["is_owner"])
    try:
        results = await app.texts.knowledge_search.search(ask)
    except Unavailable as error:
        raise KnowledgeUnavailable(public_error_message(error), details=error.details) from error
    return JsonResponse(build_knowledge_response(ask.query, results))


@router.post(
    "/api/v1/knowledge/import",
    summary="Import sources, chunks and extractions as JSON lines",
    description="The lines of `toolscript knowledge export`, up to 256 MiB. Invalid lines are refused, and the others "
    "imported. Responds when the sources can be found; repeating a request that was interrupted completes it.",
    responses=errors(400, 413),
    openapi_extra={
        "requestBody": {"content": {kind: {"schema": {"type": "string"}} for kind in JSON_LINES}, "required": True}
    },
    dependencies=[ADMIN],
)
async def import_knowledge(request: Request, app: CurrentApp) -> JsonResponse[ImportResponse]:
    body = await read_body(request, MAX_UPLOAD_BYTES)
    report = await run_while_connected(request, app.texts.import_knowledge.take_stream(BytesIO(body)))
    return JsonResponse(build_import_response(report))


@router.get("/api/v1/knowledge/sources", summary="List the sources of knowledge by title", dependencies=[ADMIN])
async def list_sources(app: CurrentApp) -> JsonResponse[SourceListResponse]:
    counts = await app.stores.knowledge.count_contents()
    return JsonResponse(build_sources_response(await app.stores.knowledge.list_sources(), counts))


@router.delete(
    "/api/v1/knowledge/sources/{source_id}",
    summary="Remove a source with its chunks and extractions",
    status_code=204,
    response_class=Response,
    responses=errors(404),
    dependencies=[ADMIN],
)
async def remove_source(source_id: SourceId, app: CurrentApp) -> None:
    if not await app.texts.ingest_knowledge.remove(source_id):
        raise NotFound(f"no such source: {source_id!r}", details={"source_id": source_id})


def _join_words(words: list[str] | None) -> str | None:
    return None if words is None else ",".join(words)


def _merge(parameters: dict[str, Any], body: KnowledgeRequest) -> KnowledgeQuery:
    fields = {name: _pick(name, value, getattr(body, name)) for name, value in parameters.items()}
    if fields["query"] is None:
        raise InvalidArguments(
            "query: missing, give it in the query string (?query=) or in the body", details={"field": "query"}
        )
    return KnowledgeQuery(
        fields["query"],
        DEFAULT_HITS if fields["limit"] is None else fields["limit"],
        fields["type"] or (),
        fields["topics"] or (),
        bool(fields["answer"]),
        PassageContext(fields["context"] or PassageContext.PASSAGE),
        body.filters.to_filter() if body.filters else EVERYTHING,
        fields["min_relevance"],
    )


def _pick(name: str, parameter: Any, field: Any) -> Any:
    if name in LISTS:
        parameter, field = parse_words(name, parameter), parse_words(name, field)
    if parameter is not None and field is not None and parameter != field:
        raise InvalidArguments(
            f"{name}: the query string and the body differ: give it in one of them, or the same in both",
            details={"field": name},
        )
    return field if parameter is None else parameter
