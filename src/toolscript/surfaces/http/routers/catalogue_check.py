"""The check of the catalogue over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from toolscript.app.catalogue_check import build_catalogue_check
from toolscript.services.catalogue_check.check import MAX_PROPOSALS, MIN_SIMILARITY
from toolscript.services.catalogue_check.findings import DEFAULT_SIMILARITY
from toolscript.surfaces.http.bodies import run_while_connected
from toolscript.surfaces.http.dependencies import ADMIN, CurrentApp
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import catalogue_check as responses

router = APIRouter(prefix="/api/v1/catalogue", tags=["quality"], dependencies=[ADMIN])

Similarity = Annotated[
    float, Query(ge=MIN_SIMILARITY, le=1, description="The cosine from which two tools of a server are listed.")
]
Proposals = Annotated[
    int,
    Query(
        ge=0,
        le=MAX_PROPOSALS,
        description="Ask the language model for better descriptions of up to so many tools. It is shown their "
        "definitions and recorded requests.",
    ),
]


@router.get(
    "/check",
    summary="List the tools that searches mistake for each other",
    description="Changes nothing. `toolscript catalogue check` and the console's page Quality use it.",
)
async def check_catalogue(
    request: Request, app: CurrentApp, similarity: Similarity = DEFAULT_SIMILARITY, proposals: Proposals = 0
) -> JsonResponse[responses.CatalogueCheckResponse]:
    checking = build_catalogue_check(app).run(similarity=similarity, proposals=proposals)
    return JsonResponse(responses.build_catalogue_check_response(await run_while_connected(request, checking)))
