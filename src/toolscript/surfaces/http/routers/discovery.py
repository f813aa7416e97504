"""How clients find the MCP server: its card beside the endpoint, the catalogue at its well-known address, and where to
log in."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Path, Request
from starlette.responses import JSONResponse

from toolscript.domain.errors import NotFound
from toolscript.settings import Settings
from toolscript.surfaces.http.dependencies import PUBLIC, Served
from toolscript.surfaces.http.oauth import METADATA_PATH, build_resource_metadata
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.request_tracking import CARD_NAME, MCP_PATH
from toolscript.surfaces.http.schemas.discovery import AiCatalogResponse, ResourceMetadataResponse, ServerCardResponse
from toolscript.surfaces.mcp.server_card import CARD_TYPE, CATALOG_TYPE, build_ai_catalog, build_server_card

CARD_PATH = f"{MCP_PATH}/{CARD_NAME}"
CATALOG_PATH = "/.well-known/ai-catalog.json"
# All are the same for everyone: pages of any origin may read them, where the guard lets pages through.
HEADERS = {"Cache-Control": "public, max-age=3600", "Access-Control-Allow-Origin": "*", "Vary": "X-Forwarded-Proto"}

router = APIRouter(tags=["discovery"], dependencies=[PUBLIC])


class CardResponse(JSONResponse):
    """A server card. FastAPI describes the model of this class's responses, but not that of our `JsonResponse`."""

    media_type = CARD_TYPE


class CatalogResponse(JSONResponse):
    """An AI catalogue."""

    media_type = CATALOG_TYPE


@router.get(
    CARD_PATH,
    summary="The card of the MCP server: what it is, and how to connect (SEP-2127)",
    response_model=ServerCardResponse,
    response_class=CardResponse,
)
async def get_server_card(request: Request) -> CardResponse:
    return CardResponse(build_server_card(_build_url(request, MCP_PATH)), headers=HEADERS)


@router.get(
    CATALOG_PATH,
    summary="The AI catalogue of this host, which names the card of the MCP server",
    response_model=AiCatalogResponse,
    response_class=CatalogResponse,
)
async def get_ai_catalog(request: Request) -> CatalogResponse:
    catalog = build_ai_catalog(_build_url(request, MCP_PATH), _build_url(request, CARD_PATH))
    return CatalogResponse(catalog, headers=HEADERS)


@router.get(
    METADATA_PATH,
    summary="Where callers log in with OAuth: the metadata of the protected resource (RFC 9728)",
    response_model=ResourceMetadataResponse,
    response_class=JSONResponse,
    responses=errors(404),
)
async def get_resource_metadata(served: Served) -> JSONResponse:
    return _build_metadata_response(served.settings)


@router.get(
    f"{METADATA_PATH}/{{path:path}}",
    summary="The same for clients that add the path of the MCP endpoint, as RFC 9728 has it",
    response_model=ResourceMetadataResponse,
    response_class=JSONResponse,
    responses=errors(404),
)
async def get_resource_metadata_by_path(
    served: Served, path: Annotated[str, Path(description="The path of the MCP endpoint.", examples=["mcp"])]
) -> JSONResponse:
    return _build_metadata_response(served.settings, path)


def _build_metadata_response(settings: Settings, path: str | None = None) -> JSONResponse:
    """Raises NotFound where callers cannot log in, and for the path of another resource."""
    resource = settings.oauth_resource
    if resource is None or path not in {None, urlsplit(resource).path.lstrip("/")}:
        raise NotFound("callers cannot log in with OAuth here: TOOLSCRIPT_OAUTH_RESOURCE is not set, or another URL")
    return JSONResponse(build_resource_metadata(settings, resource), headers=HEADERS)


def is_discovery_path(path: str) -> bool:
    """Whether clients read this path before they connect."""
    return path in {CARD_PATH, CATALOG_PATH} or path.startswith(METADATA_PATH)


def _build_url(request: Request, path: str) -> str:
    """The URL of a path under the name that the client used, which the guard has checked. A proxy that ends TLS names
    the client's scheme; a client that pretends to be one only gets another URL for itself."""
    forwarded = request.headers.get("x-forwarded-proto", "").lower()
    scheme = forwarded if forwarded in {"http", "https"} else request.url.scheme
    return f"{scheme}://{request.url.netloc}{path}"
