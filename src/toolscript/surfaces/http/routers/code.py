"""Code mode over HTTP: run a program, and the types that it needs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from toolscript.domain.access import Scope
from toolscript.domain.programs import Language
from toolscript.domain.servers import TRACE_FIELDS, CallRelay
from toolscript.services.code.host import RunCaller
from toolscript.services.results.large_results import MAX_TOKENS, MIN_TOKENS
from toolscript.surfaces.callers import find_user
from toolscript.surfaces.http.bodies import read_json, run_while_connected
from toolscript.surfaces.http.dependencies import CALL, SEARCH, CurrentApp, get_caller
from toolscript.surfaces.http.openapi import errors, request_body
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.http.schemas import code as schemas
from toolscript.surfaces.json import code as responses

MAX_TOOLS = 20

router = APIRouter(prefix="/api/v1/run", tags=["code"], dependencies=[CALL])


@router.post(
    "",
    summary="Run a program that calls tools",
    description="Only what the program returns and prints comes back. It is checked against the types of the tools "
    "that it names before it runs, and every call that it makes takes the same road as any other call: profile, "
    "scopes, argument check, quarantine, approval, limits, audit. Off until TOOLSCRIPT_CODE names languages.",
    responses=errors(400, 404, 429),
    openapi_extra=request_body(schemas.RunBody),
)
async def run_code(
    request: Request,
    app: CurrentApp,
    max_tokens: Annotated[
        int | None,
        Query(
            ge=MIN_TOKENS,
            le=MAX_TOKENS,
            description="Cut a larger value, of four bytes a token: `GET /api/v1/results/{handle}` reads the whole.",
        ),
    ] = None,
) -> JsonResponse[responses.RunResponse]:
    code = app.code
    wanted = await read_json(
        request, schemas.RunBody, lambda body: body.to_request(code.default_language, code.max_limits)
    )
    grant = request.scope["grant"]
    trace = {name: request.headers[name] for name in TRACE_FIELDS if name in request.headers}
    relay = CallRelay(trace=trace, user=find_user(grant))
    caller = RunCaller(get_caller(request), relay, Scope.SEARCH in grant.scopes)
    response = responses.build_run_response(await run_while_connected(request, app.code.run_code.run(wanted, caller)))
    if max_tokens is not None:
        response = await responses.cut_value(app, response, relay.user or "", max_tokens)
    return JsonResponse(response)


@router.get(
    "/types",
    summary="The types of the tools for a task, for a program that calls them",
    responses=errors(400),
    dependencies=[SEARCH],
)
async def get_program_types(
    request: Request,
    app: CurrentApp,
    q: Annotated[str, Query(min_length=1, max_length=1000, description="What the tools should do.")],
    language: Annotated[
        Language | None, Query(description="The language of the program. Default: the first of TOOLSCRIPT_CODE.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_TOOLS, description="Maximum number of tools.")] = 5,
    max_tokens: Annotated[
        int, Query(ge=MIN_TOKENS, le=MAX_TOKENS, description="Leave out tools that would make it longer.")
    ] = responses.DEFAULT_TYPE_TOKENS,
    threshold: Annotated[
        float | None, Query(ge=0, le=1, description="Minimum confidence. Default: TOOLSCRIPT_SEARCH_THRESHOLD.")
    ] = None,
) -> JsonResponse[responses.ProgramTypesResponse]:
    query = responses.TypesQuery(q, language, limit, max_tokens, threshold)
    return JsonResponse(await responses.build_types_response(app, query, get_caller(request)))
