"""What lets clients log in with OAuth."""

from __future__ import annotations

from pydantic import Field

from toolscript.surfaces.http.schemas.models import ResponseModel


class ResourceMetadataResponse(ResponseModel):
    """Where callers log in, as RFC 9728 describes it."""

    resource: str = Field(description="The audience that access tokens need.")
    authorization_servers: list[str]
    scopes_supported: list[str]
    bearer_methods_supported: list[str]
    resource_name: str
