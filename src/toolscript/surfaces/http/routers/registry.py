"""Servers that are not connected over HTTP: read registries, and search in what they list."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from toolscript.domain.errors import Forbidden
from toolscript.domain.requests import current_request
from toolscript.services.registry.catalogue import DEFAULT_LIMIT, MAX_LIMIT
from toolscript.surfaces.http.bodies import RequestModel
from toolscript.surfaces.http.dependencies import ADMIN, CurrentApp, require_known_caller
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import registry as responses


class RegistrySyncRequest(RequestModel):
    """The registry to read."""

    url: str = Field(
        max_length=2000,
        description="Its address, with or without the version of the API (`/v0`, `/v0.1`).",
    )
    full: bool = Field(default=False, description="Read everything again, not only what changed since the last time.")


router = APIRouter(prefix="/api/v1/registry", tags=["registry"], dependencies=[ADMIN])

KNOWN_CALLER = Depends(require_known_caller)


@router.get(
    "/search",
    summary="Find servers that are not connected",
    description="Searches in what `POST /api/v1/registry/sync` has read. Nothing is sent anywhere, and no result can "
    "be called. Callers with a profile are refused.",
    responses=errors(400, 403, 404),
)
async def search_registry(
    app: CurrentApp,
    q: Annotated[str, Query(description="What the server should do, or its name.", examples=["post to a channel"])],
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of servers.")] = DEFAULT_LIMIT,
) -> JsonResponse[responses.RegistrySearchResponse]:
    if not app.catalogue.visibility.shows_registry(current_request()):
        raise Forbidden("your key has a profile, and profiles show connected servers only: use a key without one")
    return JsonResponse(responses.build_registry_search_response(q, await app.registry.search(q, limit=limit)))


@router.post(
    "/sync",
    summary="Read a registry of servers",
    description="The gateway sends requests to that address, now and never by itself. What changed since the last time "
    "is read, page by page; if a page cannot be used, everything stays as it was.",
    responses=errors(400),
    dependencies=[KNOWN_CALLER],
)
async def sync_registry(app: CurrentApp, body: RegistrySyncRequest) -> JsonResponse[responses.RegistrySyncResponse]:
    return JsonResponse(responses.build_registry_sync_response(await app.registry.sync(body.url, full=body.full)))


@router.delete(
    "",
    summary="Forget a registry and what it lists",
    status_code=204,
    responses=errors(404),
    dependencies=[KNOWN_CALLER],
)
async def remove_registry(
    app: CurrentApp, url: Annotated[str, Query(max_length=2000, description="Its address.")]
) -> None:
    await app.registry.remove(url)
