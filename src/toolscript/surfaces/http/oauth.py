"""What an HTTP client needs to log in with OAuth: the metadata of the protected resource (RFC 9728), and the challenge
in refused responses that names it (RFC 6750)."""

from __future__ import annotations

from typing import Annotated, TypedDict
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Scope, Send

from toolscript.domain import access
from toolscript.settings import Settings

METADATA_PATH = "/.well-known/oauth-protected-resource"
# What an agent needs; the others are for operators, who ask for them.
USER_SCOPES = (access.Scope.SEARCH, access.Scope.CALL, access.Scope.DOCUMENTS, access.Scope.KNOWLEDGE)
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403
_CHALLENGE = "www-authenticate"


class ResourceMetadataResponse(TypedDict):
    """Where callers log in, as RFC 9728 describes it."""

    resource: Annotated[str, "The audience that access tokens need."]
    authorization_servers: list[str]
    scopes_supported: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


def build_resource_metadata(settings: Settings, resource: str) -> ResourceMetadataResponse:
    """Names the authorization server that issues tokens for this gateway, and the scopes."""
    return {
        "resource": resource,
        "authorization_servers": [settings.jwt_issuer or ""],
        "scopes_supported": [scope.value for scope in USER_SCOPES],
        "bearer_methods_supported": ["header"],
        "resource_name": "Toolscript",
    }


def describe_missing_scope(scope: str) -> str:
    """The challenge for a token or key that lacks a scope."""
    return f'Bearer error="insufficient_scope", scope="{scope}"'


def add_challenge(scope: Scope, send: Send, resource: str) -> Send:
    """Returns a `send` that tells refused clients where to log in, and the scopes to ask for. A call over MCP that
    lacks a scope gets the status 403, so that clients ask for more; its result says the same."""
    parts = urlsplit(resource)
    metadata = f'resource_metadata="{parts.scheme}://{parts.netloc}{METADATA_PATH}{parts.path.rstrip("/")}"'

    async def send_with_challenge(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            if (missing := scope.get("missing_scope")) and message["status"] == _OK:
                message["status"], headers[_CHALLENGE] = _FORBIDDEN, describe_missing_scope(missing)
            if message["status"] == _UNAUTHORIZED:
                has_sent_token = any(name == b"authorization" for name, _ in scope["headers"])
                wanted = " ".join(each.value for each in USER_SCOPES)
                error = 'error="invalid_token", ' if has_sent_token else ""
                headers[_CHALLENGE] = f'Bearer {error}scope="{wanted}"'
            if _CHALLENGE in headers:
                headers[_CHALLENGE] += f", {metadata}"
            message["headers"] = headers.raw
        await send(message)

    return send_with_challenge
