"""Knowledge over HTTP: one search, for everybody, so many times a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from pydantic_core import to_json
from starlette.datastructures import QueryParams
from starlette.responses import Response

from toolscript.domain.errors import InvalidArguments, ToolscriptError, Unavailable
from toolscript.domain.search import MAX_QUERY_CHARACTERS
from toolscript.services.knowledge.search import DEFAULT_HITS, MAX_HITS, KnowledgeQuery
from toolscript.surfaces.callers import admit_client
from toolscript.surfaces.http.bodies import read_body
from toolscript.surfaces.http.openapi import NEEDS_NOTHING, body_of, errors
from toolscript.surfaces.http.schemas.knowledge import LIMIT, QUERY, TOPICS, TYPES, KnowledgeRequest, KnowledgeResponse
from toolscript.surfaces.json.knowledge import build_knowledge_response, public_error_message
from toolscript.surfaces.json.knowledge_request import parse_words

if TYPE_CHECKING:
    from toolscript.surfaces.http.served_app import ServedApp

MAX_SEARCH_BYTES = 2**20
LISTS = frozenset({"type", "topics"})
SEVERAL = " Several: repeat it, or put commas between them."


class KnowledgeUnavailable(Unavailable):
    """Unavailable, in the words of this interface, which knows four codes and this is the one for it."""

    code = ToolscriptError.code


def add_knowledge(http: FastAPI, serving: ServedApp) -> None:
    """Adds the search in knowledge. Whether the client may ask at all is looked at before anything else."""

    async def admit(request: Request) -> None:
        try:
            admit_client(serving.app, request.headers, request.client.host if request.client else None)
        except Unavailable as error:
            raise KnowledgeUnavailable(error.message, details=error.details) from error

    @http.post(
        "/search_knowledge",
        operation_id="search_knowledge",
        summary="Search in knowledge: chunks of books and what was extracted from them, with their sources",
        description="What is asked may stand in the address, in the body, or in both, if it is the same. No "
        "authentication. When one of the two collections cannot be searched, the other one is, and "
        "`metadata.degraded` says so.",
        tags=["knowledge"],
        responses={200: {"model": KnowledgeResponse}, **errors(429)},
        openapi_extra={**body_of(KnowledgeRequest, required=False), **NEEDS_NOTHING},
        dependencies=[Depends(admit)],
    )
    async def search_knowledge(
        request: Request,
        query: Annotated[str | None, Query(max_length=MAX_QUERY_CHARACTERS, description=QUERY)] = None,
        limit: Annotated[int | None, Query(ge=1, le=MAX_HITS, description=LIMIT)] = None,
        type: Annotated[list[str] | None, Query(description=TYPES + SEVERAL)] = None,  # noqa: A002
        topics: Annotated[list[str] | None, Query(description=TOPICS + SEVERAL)] = None,
    ) -> Response:
        _check_address(request.query_params)
        in_address = {"query": query, "limit": limit, "type": _joined(type), "topics": _joined(topics)}
        ask = await read_body(
            request, KnowledgeRequest, lambda body: _ask(in_address, body), MAX_SEARCH_BYTES, required=False
        )
        try:
            found = await serving.app.knowledge_search.search(ask)
        except Unavailable as error:
            raise KnowledgeUnavailable(public_error_message(error), details=error.details) from error
        answer = build_knowledge_response(ask.query, found)
        return Response(to_json(answer, inf_nan_mode="null"), media_type="application/json")


def _check_address(given: QueryParams) -> None:
    """Raises InvalidArguments, naming them, for parameters that nobody knows, and for a second of what is one."""
    known = list(KnowledgeRequest.model_fields)
    names = [name for name, _ in given.multi_items()]
    strange = [name for name in dict.fromkeys(names) if name not in known]
    if strange:
        raise InvalidArguments(
            f"the address has parameters that are not known: {', '.join(map(repr, strange))}; known are "
            f"{', '.join(known)}",
            details={"field": strange[0], "allowed": known},
        )
    repeated = [name for name in dict.fromkeys(names) if name not in LISTS and names.count(name) > 1]
    if repeated:
        raise InvalidArguments(
            f"{', '.join(repeated)}: given more than once in the address: give one of each",
            details={"field": repeated[0]},
        )


def _joined(given: list[str] | None) -> str | None:
    return None if given is None else ",".join(given)


def _ask(in_address: dict[str, Any], body: KnowledgeRequest) -> KnowledgeQuery:
    given = {name: _agreed(name, in_address[name], getattr(body, name)) for name in KnowledgeRequest.model_fields}
    if given["query"] is None:
        raise InvalidArguments(
            "query: give what to look for, in the address (?query=) or in the body", details={"field": "query"}
        )
    return KnowledgeQuery(
        given["query"],
        DEFAULT_HITS if given["limit"] is None else given["limit"],
        given["type"] or (),
        given["topics"] or (),
    )


def _agreed(name: str, address: Any, body: Any) -> Any:
    if name in LISTS:
        address, body = parse_words(name, address), parse_words(name, body)
    if address is not None and body is not None and address != body:
        raise InvalidArguments(
            f"{name}: the address and the body say different things: give it in one of them, or the same in both",
            details={"field": name},
        )
    return body if address is None else address
