"""Logs in at authorization servers with the authorization code flow, renews tokens and revokes them.

Discovery, PKCE and the models are the SDK's; its OAuthClientProvider is not used. Why: docs/decisions/0020."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError, PKCEParameters
from mcp.client.auth.oauth2 import check_registration_usable
from mcp.client.auth.utils import (
    create_client_registration_request,
    handle_registration_response,
    is_valid_client_metadata_url,
    union_scopes,
    validate_authorization_response_iss,
)
from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, OAuthToken

from toolscript.adapters.mcp.oauth.discovery import UNAUTHORIZED, AuthorizationPlan, discover, probe
from toolscript.adapters.mcp.oauth.http import (
    describe_answer,
    describe_host,
    fetch,
    find_current_reach,
    find_error_code,
)
from toolscript.adapters.outgoing.addresses import Reach
from toolscript.domain.errors import Invalid, LoginDeclined, Unauthorized, Unavailable, UpstreamFailed
from toolscript.domain.logins import Login
from toolscript.domain.servers import ServerSpec
from toolscript.ports.logins import Browser

OK = 200
# No token is valid for longer; a date has at most four digits for the year.
MAX_TOKEN_SECONDS = 10 * 366 * 86_400
_REFUSALS = frozenset({400, 401, 403})
_BASIC, _POST, _NONE = "client_secret_basic", "client_secret_post", "none"


class OAuthServers:
    """The authorization servers of MCP servers."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    async def authorize(self, spec: ServerSpec, browser: Browser, scopes: Sequence[str]) -> Login:
        plan = await discover(spec)
        scope = union_scopes(" ".join(spec.oauth.scopes) or plan.scope, " ".join(scopes)) or ""
        client_id, client_secret, method = await self._choose_client(spec, plan, browser.redirect_uri, scope)
        code, verifier = await _request_code(plan, client_id, scope, browser)
        login = Login(
            id=secrets.token_hex(16),
            issuer=plan.issuer,
            resource=plan.resource,
            client_id=client_id,
            client_secret=client_secret,
            auth_method=method,
            token_endpoint=str(plan.metadata.token_endpoint),
            revocation_endpoint=str(plan.metadata.revocation_endpoint or "") or None,
            access_token="",
            scope=scope,
        )
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier}
        form["redirect_uri"] = browser.redirect_uri
        response = await _post(login, login.token_endpoint, form, plan.reach)
        if response.status_code != OK:
            raise Unauthorized(f"{describe_host(plan.issuer)} issued no token: {describe_answer(response)}")
        login = self._read_tokens(login, response)
        if (await probe(spec, login.access_token)).status_code == UNAUTHORIZED:
            raise UpstreamFailed(
                f"server {spec.name} refuses the token that {describe_host(plan.issuer)} issued: it may be for another "
                "audience",
                details={"server": spec.name},
            )
        return login

    async def refresh(self, login: Login) -> Login:
        form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token or ""}
        response = await _post(login, login.token_endpoint, form, await find_current_reach(login.resource))
        if response.status_code == OK:
            return self._read_tokens(login, response)
        about = f"{describe_host(login.issuer)} does not renew the login: {describe_answer(response)}"
        if response.status_code in _REFUSALS and find_error_code(response) != "temporarily_unavailable":
            raise Unauthorized(about)
        raise Unavailable(about)

    async def revoke(self, login: Login) -> bool:
        if not login.revocation_endpoint:
            return False
        token, kind = (login.refresh_token, "refresh_token") if login.refresh_token else (login.access_token, "")
        form = {"token": token or "", "token_type_hint": kind or "access_token"}
        reach = await find_current_reach(login.resource)
        return (await _post(login, login.revocation_endpoint, form, reach, with_resource=False)).status_code == OK

    async def _choose_client(
        self, spec: ServerSpec, plan: AuthorizationPlan, redirect_uri: str, scope: str
    ) -> tuple[str, str | None, str]:
        """A client id document where the server supports them, the configured client id, or a new registration: the id,
        the secret, and how the client authenticates."""
        own, document = spec.oauth.client_id, ""
        if is_valid_client_metadata_url(own) and not spec.oauth.client_secret:
            own, document = "", own
        if own:
            method = _choose_method(plan.metadata) if spec.oauth.client_secret else _NONE
            return own, spec.oauth.client_secret or None, method
        if document and plan.metadata.client_id_metadata_document_supported:
            return document, None, _NONE
        return await _register(spec, plan, redirect_uri, scope)

    def _read_tokens(self, login: Login, response: httpx2.Response) -> Login:
        """The login with the tokens of an answer. What the answer leaves out stays as it is."""
        try:
            token = OAuthToken.model_validate_json(response.content)
        except ValueError:
            # Without the cause: its text repeats the answer, and with it tokens.
            raise Unavailable(f"the token answer of {describe_host(login.token_endpoint)} cannot be read") from None
        return replace(
            login,
            access_token=token.access_token,
            refresh_token=token.refresh_token or login.refresh_token,
            expires_at=None if token.expires_in is None else self._clock() + _clamp(token.expires_in),
            scope=token.scope or login.scope,
        )


async def _register(
    spec: ServerSpec, plan: AuthorizationPlan, redirect_uri: str, scope: str
) -> tuple[str, str | None, str]:
    metadata = plan.metadata
    host = describe_host(str(metadata.issuer))
    if metadata.registration_endpoint is None:
        raise Invalid(
            f"{host} does not register clients by itself: register Toolscript there with the redirect address "
            f"{redirect_uri}, and set oauth.clientId (and redirectPort) of server {spec.name}",
            details={"server": spec.name, "field": "oauth.clientId"},
        )
    about = OAuthClientMetadata.model_validate(
        {
            "client_name": "Toolscript",
            "redirect_uris": [redirect_uri],
            "token_endpoint_auth_method": _NONE,
            "scope": scope or None,
        }
    )
    request = create_client_registration_request(metadata, about, str(metadata.issuer))
    headers = {"Content-Type": "application/json"}
    response = await fetch("POST", str(request.url), reach=plan.reach, content=request.content, headers=headers)
    try:
        client = await handle_registration_response(response)
        check_registration_usable(client)
    except OAuthFlowError:
        raise UpstreamFailed(f"{host} did not register Toolscript: {describe_answer(response)}") from None
    return client.client_id, client.client_secret, client.token_endpoint_auth_method or _NONE


def _clamp(seconds: int) -> int:
    return max(0, min(seconds, MAX_TOKEN_SECONDS))


def _choose_method(metadata: OAuthMetadata) -> str:
    supported = metadata.token_endpoint_auth_methods_supported or [_BASIC]
    return _POST if _BASIC not in supported and _POST in supported else _BASIC


async def _request_code(plan: AuthorizationPlan, client_id: str, scope: str, browser: Browser) -> tuple[str, str]:
    """Sends the user to the authorization server; returns the code and the verifier of PKCE."""
    pkce, state = PKCEParameters.generate(), secrets.token_urlsafe(32)
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": browser.redirect_uri,
        "state": state,
        "code_challenge": pkce.code_challenge,
        "code_challenge_method": "S256",
        "resource": plan.resource,
    }
    if scope:
        query["scope"] = scope
    if "offline_access" in scope.split():
        query["prompt"] = "consent"  # OpenID Connect grants offline access only with it
    # The endpoint may have parameters, but not a second state or client, nor what hides ours (RFC 6749, section 3.1).
    parts = urlsplit(str(plan.metadata.authorization_endpoint))
    own = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in query]
    answered = await browser.visit(parts._replace(query=urlencode([*own, *query.items()]), fragment="").geturl())
    given = dict(parse_qsl(urlsplit(answered).query))
    if not secrets.compare_digest(given.get("state", "").encode(), state.encode()):
        raise Unauthorized("the address does not belong to this login: its state is another")
    try:
        validate_authorization_response_iss(given.get("iss"), plan.metadata)
    except OAuthFlowError as error:
        raise Unauthorized(f"mixed-up issuer: the answer does not come from {describe_host(plan.issuer)}") from error
    host = describe_host(plan.issuer)
    if given.get("error") == "access_denied":
        raise LoginDeclined(f"the login was cancelled or refused at {host} (access_denied), and nothing has changed")
    if "error" in given:
        code = given["error"] if given["error"].replace("_", "").isalnum() else "unknown error"
        raise Unauthorized(f"{host} refused the login: {code[:40]}")
    if not given.get("code"):
        raise Unauthorized(f"{host} sent no authorization code")
    return given["code"], pkce.code_verifier


async def _post(
    login: Login, url: str, form: dict[str, str], reach: Reach, *, with_resource: bool = True
) -> httpx2.Response:
    """Posts a form as the login's client (RFC 6749, section 2.3.1)."""
    form = {**form, "client_id": login.client_id} | ({"resource": login.resource} if with_resource else {})
    headers = {"Accept": "application/json"}
    if login.client_secret and login.auth_method == _POST:
        form["client_secret"] = login.client_secret
    elif login.client_secret:
        pair = f"{quote(login.client_id, safe='')}:{quote(login.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return await fetch("POST", url, reach=reach, data=form, headers=headers)
