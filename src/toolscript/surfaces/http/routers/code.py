"""Code mode over HTTP: run a program, and the types that it needs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from toolscript.domain.access import Scope
from toolscript.domain.programs import DEFAULT_LIMITS, MAX_LIMITS, Language, RunLimits
from toolscript.domain.servers import TRACE_FIELDS, CallRelay
from toolscript.services.code.host import RunCaller
from toolscript.services.code.run import MAX_SESSION_LENGTH, MAX_SOURCE_BYTES, RunRequest, parse_limits
from toolscript.services.results.large_results import MAX_TOKENS, MIN_TOKENS
from toolscript.surfaces.callers import find_user
from toolscript.surfaces.http.bodies import RequestModel, read_json, run_while_connected
from toolscript.surfaces.http.dependencies import CALL, SEARCH, CurrentApp, get_caller
from toolscript.surfaces.http.openapi import errors, request_body
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import code as responses


class LimitsRequest(RequestModel):
    """What the run may use."""

    seconds: float = Field(
        DEFAULT_LIMITS.seconds, gt=0, le=MAX_LIMITS.seconds, description="Time from the start to the end."
    )
    cpu_seconds: float = Field(
        DEFAULT_LIMITS.cpu_seconds,
        gt=0,
        le=MAX_LIMITS.cpu_seconds,
        description="Time in which the program itself runs; waiting for tools does not count.",
    )
    memory_mb: int = Field(
        DEFAULT_LIMITS.memory_mb, gt=0, le=MAX_LIMITS.memory_mb, description="Memory of the program in MiB."
    )
    calls: int = Field(
        DEFAULT_LIMITS.calls, gt=0, le=MAX_LIMITS.calls, description="Calls of tools, searches and descriptions."
    )
    output_bytes: int = Field(
        DEFAULT_LIMITS.output_bytes,
        gt=0,
        le=MAX_LIMITS.output_bytes,
        description="Size of the value as JSON, and apart from it of what is printed.",
    )


class RunBody(RequestModel):
    """A program to run."""

    code: str = Field(
        description="The program. `await tools.SERVER.NAME({…})` calls a tool; its value is that of `return`, or in "
        f"Python of a last line that is an expression. At most {MAX_SOURCE_BYTES} bytes.",
        examples=['found = await tools.filesystem.list_directory({"path": "."})\nlen(found["content"])'],
    )
    language: Language | None = Field(
        None, description="Its language. Default: the first of TOOLSCRIPT_CODE, where the gateway runs."
    )
    limits: LimitsRequest | None = Field(None, description="What the run may use.")
    session: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_SESSION_LENGTH,
        description="Names the results that runs keep for each other, for an hour, with `save_result` and "
        "`load_result`. Without it nothing is kept.",
    )
    check_only: bool = Field(False, description="Only check the program, and do not run it.")

    def to_request(self, default_language: Language, max_limits: RunLimits) -> RunRequest:
        """The request of the service. Raises InvalidArguments for limits above the operator's."""
        limits = parse_limits(self.limits.model_dump(exclude_unset=True) if self.limits else {}, max_limits)
        return RunRequest(
            self.code, self.language or default_language, limits, self.session, checks_only=self.check_only
        )


MAX_TOOLS = 20

router = APIRouter(prefix="/api/v1/run", tags=["code"], dependencies=[CALL])


@router.post(
    "",
    summary="Run a program that calls tools",
    description="Only what the program returns and prints comes back. It is checked against the types of the tools "
    "that it names before it runs, and every call that it makes takes the same road as any other call: profile, "
    "scopes, argument check, quarantine, approval, limits, audit. Off until TOOLSCRIPT_CODE names languages.",
    responses=errors(400, 404, 429),
    openapi_extra=request_body(RunBody),
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
    wanted = await read_json(request, RunBody, lambda body: body.to_request(code.default_language, code.max_limits))
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
