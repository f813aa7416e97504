"""What Prometheus collects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from starlette.responses import Response

from toolscript.domain.errors import NotFound
from toolscript.surfaces.http.openapi import errors

if TYPE_CHECKING:
    from toolscript.surfaces.http.served_app import ServedApp


def add_metrics(http: FastAPI, serving: ServedApp) -> None:
    """Adds `GET /metrics`."""

    @http.get(
        "/metrics",
        summary="Requests, searches and their stages, counted and timed, as Prometheus reads them",
        response_class=PlainTextResponse,
        tags=["states"],
        responses=errors(404),
    )
    async def metrics() -> Response:
        kept = serving.app.metrics
        if kept is None:
            raise NotFound("this application keeps no metrics: those that `toolscript gateway start` serves do")
        told, kind = kept.exposition()
        return Response(told, headers={"Content-Type": kind})
