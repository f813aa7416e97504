"""Probes, server states and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from starlette.responses import Response, StreamingResponse

from toolscript.app.code import describe_languages
from toolscript.domain.errors import NotFound, Unavailable
from toolscript.domain.requests import current_request
from toolscript.surfaces.http.dependencies import ADMIN, METRICS, PUBLIC, CurrentApp, Served
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.http.server_events import MEDIA_TYPE, describe_servers, stream_servers
from toolscript.surfaces.json.calls import HealthResponse, build_health_response
from toolscript.surfaces.json.servers import ServerListResponse
from toolscript.surfaces.json.tools import ReadinessResponse, build_readiness_response

router = APIRouter(tags=["states"])


@router.get("/health", summary="Liveness: the process runs", dependencies=[PUBLIC])
async def get_health(served: Served) -> JsonResponse[HealthResponse]:
    problem = served.current.observability.audit_problem if served.current else None
    return JsonResponse(build_health_response(problem, describe_languages(served.settings)))


@router.get(
    "/ready",
    summary="Readiness: store and index answer, and no server is still starting that searches should wait for",
    description="A server is waited for until it has been listed once or has failed, for at most 9 seconds after the "
    "start, and not at all if the catalogue already has what it listed in an earlier run. Servers that join later do "
    "not make the gateway unready. `servers` counts the states: `connecting` are those that it no longer waits for.",
    dependencies=[PUBLIC],
)
async def get_readiness(served: Served, app: CurrentApp) -> JsonResponse[ReadinessResponse]:
    await app.check_ready()
    if not served.is_ready:
        waiting = [s.name for s in app.servers.gateway.statuses if s.state == "connecting"]
        what = f"servers are still starting: {', '.join(waiting)}" if waiting else "the gateway is still starting"
        raise Unavailable(f"{what}; try again in a moment", details={"servers": waiting})
    return JsonResponse(build_readiness_response(app.servers.gateway.statuses, app.model))


@router.get(
    "/servers",
    summary="The servers behind the gateway and their states",
    description="With `Accept: text/event-stream`, a stream of server-sent events: the same list now, and whenever it "
    "has changed.",
    response_model=JsonResponse[ServerListResponse],
    dependencies=[ADMIN],
)
async def list_servers(request: Request, served: Served, app: CurrentApp) -> Response:
    if request.headers.get("accept", "").startswith(MEDIA_TYPE):
        return StreamingResponse(stream_servers(served), media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})
    return JsonResponse(await describe_servers(app))


@router.get(
    "/metrics",
    summary="Counters and timings of requests, searches and their stages, for Prometheus",
    response_class=PlainTextResponse,
    responses=errors(404),
    dependencies=[METRICS],
)
async def get_metrics(app: CurrentApp) -> Response:
    if app.observability.metrics is None:
        raise NotFound("this application has no metrics: `toolscript gateway start` serves them")
    metrics, context = app.observability.metrics, current_request()
    hidden = [name for name in metrics.servers if not await app.catalogue.visibility.shows_server(name, context)]
    text, content_type = metrics.exposition(await app.count_points(), hidden_servers=hidden)
    return Response(text, headers={"Content-Type": content_type})
