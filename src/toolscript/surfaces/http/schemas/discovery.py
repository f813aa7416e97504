"""Responses that let clients find the MCP server: its card, and the catalogue of this host."""

from __future__ import annotations

from pydantic import Field

from toolscript.surfaces.http.schemas.models import CamelResponseModel, ResponseModel


class RemoteHeader(CamelResponseModel):
    """A header that the server accepts."""

    name: str
    description: str
    is_secret: bool


class Remote(CamelResponseModel):
    """Where and how to connect."""

    type: str
    url: str
    headers: list[RemoteHeader]
    supported_protocol_versions: list[str]


class ServerCardResponse(CamelResponseModel):
    """The card of the MCP server, as SEP-2127 describes it."""

    schema_url: str = Field(alias="$schema")
    name: str
    title: str
    description: str
    version: str
    remotes: list[Remote]


class CatalogEntry(CamelResponseModel):
    """A server of this host."""

    identifier: str
    display_name: str
    description: str
    type: str = Field(description="The media type of the card.")
    url: str = Field(description="Where the card is.")


class AiCatalogResponse(CamelResponseModel):
    """What this host offers to agents, as the AI Catalog describes it."""

    spec_version: str
    entries: list[CatalogEntry]


class ResourceMetadataResponse(ResponseModel):
    """Where callers log in, as RFC 9728 describes it."""

    resource: str = Field(description="The audience that access tokens need.")
    authorization_servers: list[str]
    scopes_supported: list[str]
    bearer_methods_supported: list[str]
    resource_name: str
