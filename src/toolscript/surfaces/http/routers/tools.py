"""Tools over HTTP: search, list, describe and call them, and generate typed clients."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import PlainTextResponse

from toolscript.codegen.python import generate_python
from toolscript.codegen.typescript import generate_typescript
from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.search import MAX_CLOSEST
from toolscript.domain.servers import TRACE_FIELDS, CallRelay, CallResult
from toolscript.services.results.large_results import MAX_TOKENS, MIN_TOKENS
from toolscript.surfaces.callers import find_user
from toolscript.surfaces.http.bodies import ONE_LINE, read_body, run_while_connected
from toolscript.surfaces.http.dependencies import CALL, SEARCH, CurrentApp, get_caller
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import tools as responses

router = APIRouter(tags=["tools"], dependencies=[SEARCH])
clients_router = APIRouter(prefix="/runtime", tags=["clients"], dependencies=[SEARCH])

ToolFilter = Annotated[
    str | None,
    Query(
        alias="filter",
        pattern=ONE_LINE,
        description="Servers and tools, comma-separated: `github,filesystem__read_file`. Default: all.",
    ),
]
ToolId = Annotated[str, Path(description="`server__tool`, as searches return it.", examples=["filesystem__read_file"])]
Closest = Annotated[
    int | None,
    Query(
        ge=0,
        le=MAX_CLOSEST,
        description="Maximum number of tools below the threshold that follow where fewer than the limit are above it. "
        f"Default: {MAX_CLOSEST}, and 0 with a `threshold`.",
    ),
]


@router.get("/search/stats", summary="What is searched, with which model, and why not with the requested one")
async def get_search_stats(app: CurrentApp) -> JsonResponse[responses.SearchStatsResponse]:
    return JsonResponse(responses.build_stats_response(app, await app.count_indexed_tools()))


@router.get("/search", summary="Find the tools for a task", responses=errors(400))
async def search_tools(
    request: Request,
    app: CurrentApp,
    q: Annotated[
        str,
        Query(
            description="What the tool should do, a whole task, or a name; typos allowed. Up to 8000 characters.",
            examples=["read a text file"],
        ),
    ] = "",
    limit: Annotated[
        int | None, Query(ge=1, le=100, description="Maximum number of results. Default: TOOLSCRIPT_SEARCH_LIMIT.")
    ] = None,
    threshold: Annotated[
        float | None, Query(ge=0, le=1, description="Minimum confidence. Default: TOOLSCRIPT_SEARCH_THRESHOLD.")
    ] = None,
    alpha: Annotated[
        float | None,
        Query(
            ge=0,
            le=1,
            description="Weight of meaning; the rest is that of words. Default: TOOLSCRIPT_SEARCH_ALPHA.",
        ),
    ] = None,
    closest: Closest = None,
    explain: Annotated[
        bool, Query(description="Include what each confidence is made of, and how long the stages took.")
    ] = False,
) -> JsonResponse[responses.ToolSearchResponse]:
    limit = app.settings.search_limit if limit is None else limit
    if closest is None:
        closest = MAX_CLOSEST if threshold is None else 0
    threshold = app.settings.search_threshold if threshold is None else threshold
    if "q" not in request.query_params:
        raise Invalid("q is missing: say what to search for, as in /search?q=read+a+file", details={"field": "q"})
    try:
        results = await app.tools.search.search(q, limit=limit, threshold=threshold, alpha=alpha, closest=closest)
    except Invalid as error:
        if error.details.get("field") == "query":
            error.details["field"] = "q"
        raise
    app.tools.feedback.note_search(get_caller(request), results.query, results.ids)
    response = responses.build_search_response(results, app.servers.gateway.find_call_state)
    if explain:
        responses.add_explanation(response, results)
        tokens = app.tools.token_costs.of(json.dumps(response["results"], ensure_ascii=False))
        response["tokens"] = {"answer": tokens, "allTools": await app.tools.token_costs.of_everything()}
    return JsonResponse(response)


@router.get("/tools", summary="List tools, prompts and resources")
async def list_tools(app: CurrentApp, names: ToolFilter = None) -> JsonResponse[responses.ToolListResponse]:
    items = await app.tools.listing.matching(names)
    return JsonResponse(await asyncio.to_thread(responses.build_tools_response, items))


@router.get("/tools/{tool_id:path}", summary="Everything about a tool that a call needs", responses=errors(404))
async def describe_tool(tool_id: ToolId, app: CurrentApp) -> JsonResponse[responses.ToolResponse]:
    item = await app.tools.call.describe(tool_id)
    needs_approval = app.tools.approvals.are_needed(item)
    return JsonResponse(
        responses.build_tool_response(item, app.servers.gateway.find_call_state, needs_approval=needs_approval)
    )


@router.post(
    "/tools/{tool_id:path}",
    summary="Call a tool: the body is a JSON object with its arguments",
    responses=errors(404, 409, 429, 502, 504),
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}},
    dependencies=[CALL],
)
async def call_tool(
    tool_id: ToolId,
    request: Request,
    app: CurrentApp,
    timeout: Annotated[  # noqa: ASYNC109
        float | None, Query(ge=0.1, le=3600, description="Timeout of the call in seconds, instead of the default.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        Query(
            ge=MIN_TOKENS,
            le=MAX_TOKENS,
            description="Cut a larger answer, of four bytes a token: `GET /api/v1/results/{handle}` reads the whole.",
        ),
    ] = None,
) -> JsonResponse[Any]:
    arguments = _parse_arguments(await read_body(request))
    trace = {name: request.headers[name] for name in TRACE_FIELDS if name in request.headers}
    relay = CallRelay(trace=trace, user=find_user(request.scope["grant"]))
    call = app.tools.call.call(tool_id, arguments, within=timeout, relay=relay)
    result = await run_while_connected(request, call)
    app.tools.feedback.note_call(get_caller(request), tool_id)
    if max_tokens is not None:
        result = CallResult(await app.texts.large_results.cut(result.raw, relay.user or "", max_tokens))
    return JsonResponse(responses.build_call_response(result))


class _TypeScriptResponse(PlainTextResponse):
    media_type = "application/typescript"


class _PythonResponse(PlainTextResponse):
    media_type = "text/x-python"


@clients_router.get("/tools.ts", summary="A typed TypeScript client", response_class=_TypeScriptResponse)
async def generate_typescript_client(app: CurrentApp, names: ToolFilter = None) -> _TypeScriptResponse:
    items = await app.tools.listing.matching(names)
    return _TypeScriptResponse(await asyncio.to_thread(generate_typescript, items))


@clients_router.get("/tools.py", summary="A typed Python client", response_class=_PythonResponse)
async def generate_python_client(app: CurrentApp, names: ToolFilter = None) -> _PythonResponse:
    items = await app.tools.listing.matching(names)
    return _PythonResponse(await asyncio.to_thread(generate_python, items))


def _parse_arguments(body: bytes) -> Any:
    if not body.strip():
        return {}
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"the body is not valid JSON: {error}", details={"field": ""}) from error
