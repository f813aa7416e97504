"""Where clients log in with OAuth: the metadata of the protected resource."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Path

from toolscript.domain.errors import NotFound
from toolscript.settings import Settings
from toolscript.surfaces.http.dependencies import PUBLIC, Served
from toolscript.surfaces.http.oauth import METADATA_PATH, ResourceMetadataResponse, build_resource_metadata
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse

# The same for everyone: pages of any origin may read it, where the guard lets pages through.
HEADERS = {"Cache-Control": "public, max-age=3600", "Access-Control-Allow-Origin": "*"}

router = APIRouter(tags=["discovery"], dependencies=[PUBLIC])


@router.get(
    METADATA_PATH,
    summary="Where callers log in with OAuth: the metadata of the protected resource (RFC 9728)",
    responses=errors(404),
)
async def get_resource_metadata(served: Served) -> JsonResponse[ResourceMetadataResponse]:
    return _build_metadata_response(served.settings)


@router.get(
    f"{METADATA_PATH}/{{path:path}}",
    summary="The same for clients that add the path of the MCP endpoint, as RFC 9728 has it",
    responses=errors(404),
)
async def get_resource_metadata_by_path(
    served: Served, path: Annotated[str, Path(description="The path of the MCP endpoint.", examples=["mcp"])]
) -> JsonResponse[ResourceMetadataResponse]:
    return _build_metadata_response(served.settings, path)


def _build_metadata_response(settings: Settings, path: str | None = None) -> JsonResponse[ResourceMetadataResponse]:
    """Raises NotFound where callers cannot log in, and for the path of another resource."""
    resource = settings.oauth_resource
    if resource is None or path not in {None, urlsplit(resource).path.lstrip("/")}:
        raise NotFound("callers cannot log in with OAuth here: TOOLSCRIPT_OAUTH_RESOURCE is not set, or another URL")
    return JsonResponse(build_resource_metadata(settings, resource), headers=HEADERS)


def is_discovery_path(path: str) -> bool:
    """Whether clients read this path before they connect."""
    return path.startswith(METADATA_PATH)
