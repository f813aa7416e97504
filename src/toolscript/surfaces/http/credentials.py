"""Who is asking for documents: the tenant that a verified token names, and nobody else."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from fastapi import Request

from toolscript.app.app import App
from toolscript.domain.access import Principal
from toolscript.domain.errors import Unauthorized
from toolscript.services.access.environment import may_bypass

if TYPE_CHECKING:
    from toolscript.surfaces.http.serving import Serving

BYPASS_HEADER = "x-debug-bypass-auth"


def principal_of(serving: Serving) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency that says who is asking, before anything else of the request is looked at."""

    async def identify(request: Request) -> Principal:
        if len(request.headers.getlist("authorization")) > 1:
            raise _refused("the request brings several Authorization headers: send one")
        return await principal_from(serving.app, request.headers)

    return identify


async def principal_from(app: App, headers: Mapping[str, str]) -> Principal:
    """Who a request with these headers speaks for. A token that is brought is verified, also when the request asks to
    do without one. Raises Unauthorized, and Unavailable when the keys to verify it with cannot be had."""
    sent = {name.lower(): value for name, value in headers.items()}
    authorization = sent.get("authorization")
    if authorization is None:
        if may_bypass(app.settings) and sent.get(BYPASS_HEADER) == "1":
            return Principal(app.settings.tenant)
        raise _refused("documents are shown to whoever brings a token: send it as `Authorization: Bearer TOKEN`")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise _refused("the Authorization header is not understood: send `Authorization: Bearer TOKEN`")
    if app.settings.api_key and hmac.compare_digest(token.strip().encode(), app.settings.api_key.encode()):
        raise _refused(
            "that is the gateway's key, which names no tenant: send it as `X-API-Key: KEY`, and a token as "
            "`Authorization: Bearer TOKEN`"
        )
    return await app.verifier.verify(token.strip())


def _refused(why: str) -> Unauthorized:
    return Unauthorized(why, details={"field": "Authorization"})
