"""How clients find the MCP server: its card beside the endpoint, and the catalogue at its well-known address."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from toolscript.surfaces.http.dependencies import PUBLIC
from toolscript.surfaces.http.request_tracking import MCP_PATH
from toolscript.surfaces.http.schemas.discovery import AiCatalogResponse, ServerCardResponse
from toolscript.surfaces.mcp.server_card import CARD_TYPE, CATALOG_TYPE, build_ai_catalog, build_server_card

CARD_PATH = f"{MCP_PATH}/server-card"
CATALOG_PATH = "/.well-known/ai-catalog.json"
DISCOVERY_PATHS = frozenset({CARD_PATH, CATALOG_PATH})
# Both are the same for everyone: pages of any origin may read them, where the guard lets pages through.
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


def _build_url(request: Request, path: str) -> str:
    """The URL of a path under the name that the client used, which the guard has checked. A proxy that ends TLS names
    the client's scheme; a client that pretends to be one only gets another URL for itself."""
    forwarded = request.headers.get("x-forwarded-proto", "").lower()
    scheme = forwarded if forwarded in {"http", "https"} else request.url.scheme
    return f"{scheme}://{request.url.netloc}{path}"
