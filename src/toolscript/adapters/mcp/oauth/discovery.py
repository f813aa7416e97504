"""Finds the authorization server of an MCP server: RFC 9728, then RFC 8414 or OpenID Connect discovery."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    issuers_match,
)
from mcp.shared.auth import DEFAULT_GRANT_TYPES, OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url

from toolscript.adapters.mcp.oauth.http import (
    describe_host,
    fetch,
    find_answering_reach,
    require_allowed,
)
from toolscript.adapters.outgoing.addresses import Reach
from toolscript.domain.errors import Unavailable, UpstreamFailed
from toolscript.domain.servers import ServerSpec, Transport

UNAUTHORIZED = 401
SERVER_ERROR = 500
TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True)
class AuthorizationPlan:
    """The authorization server of a server, and what to request there."""

    metadata: OAuthMetadata
    issuer: str
    resource: str
    scope: str
    """The scopes that the server asks for."""
    reach: Reach
    """Which addresses the server may name: none further inside than its own."""


async def probe(spec: ServerSpec, token: str | None = None) -> httpx2.Response:
    """The server's answer to a first request, without its body."""
    headers = dict(spec.headers) | ({"Authorization": f"Bearer {token}"} if token else {})
    if spec.transport is Transport.SSE:
        return await fetch(
            "GET", spec.url, reach=None, headers=headers | {"Accept": "text/event-stream"}, read_body=False
        )
    if spec.transport is Transport.OPENAPI:
        return await fetch("GET", spec.url, reach=None, headers=headers, read_body=False)
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}  # opens no session
    accept = {"Accept": "application/json, text/event-stream"}
    return await fetch("POST", spec.url, reach=None, headers=headers | accept, json=body, read_body=False)


async def discover(spec: ServerSpec) -> AuthorizationPlan:
    """Raises UpstreamFailed when the server or its authorization server does not do what the specification requires,
    Unavailable when one does not answer."""
    challenge = await probe(spec)
    reach = find_answering_reach(challenge, spec.url)
    described = await _find_resource_metadata(spec, challenge, reach)
    if described is None and challenge.status_code != UNAUTHORIZED:
        raise UpstreamFailed(
            f"server {spec.name} does not ask for a login: it answered HTTP status {challenge.status_code}",
            details={"server": spec.name},
        )
    resource = str(described.resource) if described else resource_url_from_server_url(spec.url)
    listed = str(described.authorization_servers[0]) if described else None
    metadata = await _find_authorization_server(spec, listed, reach)
    _require_usable(spec, metadata, reach)
    scope = get_client_metadata_scopes(
        extract_scope_from_www_auth(challenge), described, metadata, list(DEFAULT_GRANT_TYPES)
    )
    return AuthorizationPlan(metadata, str(metadata.issuer), resource, scope or "", reach)


async def _find_resource_metadata(
    spec: ServerSpec, challenge: httpx2.Response, reach: Reach
) -> ProtectedResourceMetadata | None:
    given = extract_resource_metadata_from_www_auth(challenge) if challenge.status_code == UNAUTHORIZED else None
    failed = None
    for url in build_protected_resource_metadata_discovery_urls(given, spec.url):
        response = await fetch("GET", require_allowed(url, spec.url, "resource metadata", reach), reach=reach)
        found = await handle_protected_resource_response(response)
        if found is None:
            if response.status_code >= SERVER_ERROR or response.status_code == TOO_MANY_REQUESTS:
                failed = response.status_code
            continue
        expected = resource_url_from_server_url(spec.url)
        if not check_resource_allowed(requested_resource=expected, configured_resource=str(found.resource)):
            raise UpstreamFailed(
                f"server {spec.name} describes itself as another resource: {describe_host(str(found.resource))} "
                f"instead of {describe_host(spec.url)}. Its tokens would be for that one",
                details={"server": spec.name},
            )
        return found
    if failed is not None:  # it says nothing about whether there is metadata
        raise Unavailable(f"the resource metadata of {spec.name} cannot be read: HTTP status {failed}")
    return None


async def _find_authorization_server(spec: ServerSpec, listed: str | None, reach: Reach) -> OAuthMetadata:
    """The metadata of the listed server; without one, of the server's own origin, as the specification of 2025-03-26
    had it."""
    for url in build_oauth_authorization_server_metadata_discovery_urls(listed, spec.url):
        response = await fetch("GET", require_allowed(url, spec.url, "authorization server", reach), reach=reach)
        goes_on, metadata = await handle_auth_metadata_response(response)
        if metadata is not None:
            expected = listed or f"{urlsplit(url).scheme}://{describe_host(url)}"
            if not issuers_match(str(metadata.issuer), expected):
                raise UpstreamFailed(
                    f"mixed-up issuer: the metadata of {describe_host(expected)} names {metadata.issuer} as its issuer",
                    details={"server": spec.name},
                )
            return metadata
        if not goes_on:
            raise Unavailable(f"{describe_host(url)} cannot be asked: HTTP status {response.status_code}")
    raise UpstreamFailed(
        f"no metadata of an authorization server at {describe_host(listed or spec.url)}: if server {spec.name} wants a "
        "key instead of a login, give it in its `headers`",
        details={"server": spec.name},
    )


def _require_usable(spec: ServerSpec, metadata: OAuthMetadata, reach: Reach) -> None:
    for role in ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"):
        if endpoint := getattr(metadata, role):
            require_allowed(str(endpoint), spec.url, role.replace("_", " "), reach)
    if "S256" not in (metadata.code_challenge_methods_supported or []):
        raise UpstreamFailed(
            f"the authorization server {describe_host(str(metadata.issuer))} does not support PKCE with S256, which "
            "MCP requires",
            details={"server": spec.name},
        )
