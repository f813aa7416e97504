"""Large results over HTTP: read or search what a call with `max_tokens` has cut."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from toolscript.services.results.large_results import MAX_PAGE
from toolscript.surfaces.callers import find_user
from toolscript.surfaces.http.bodies import ONE_LINE
from toolscript.surfaces.http.dependencies import CALL, CurrentApp
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import results as responses

router = APIRouter(prefix="/api/v1/results", tags=["results"], dependencies=[CALL])


@router.get("/{handle}", summary="Read or search a result that was cut", responses=errors(400, 404))
async def read_result(
    handle: Annotated[str, Path(pattern=ONE_LINE, max_length=64, description="The handle of a cut result.")],
    request: Request,
    app: CurrentApp,
    query: Annotated[str | None, Query(max_length=500, description="What to find in it.")] = None,
    path: Annotated[
        str | None, Query(max_length=500, description="A part of its JSON: `items.3.name`, or `items.10:20`.")
    ] = None,
    page: Annotated[int | None, Query(ge=1, le=MAX_PAGE, description="The page, from 1.")] = None,
) -> JsonResponse[responses.ResultPageResponse | responses.ResultHitsResponse]:
    user = find_user(request.scope["grant"])
    return JsonResponse(await responses.build_result_response(app, handle, user, query=query, path=path, page=page))
