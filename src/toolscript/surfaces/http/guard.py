"""Who may call: Host and Origin are checked before anything else, and the key where there is one.

A browser can be talked into calling a server on its own machine, under a name that an attacker chose (DNS rebinding)
or from a page of theirs. So on loopback only loopback names are answered, whoever asks.

The key is the operator's. Documents belong to tenants, who have tokens instead: their routes ask for those themselves
(`credentials.py`), and a tenant need not be told the key. Knowledge is for everybody, so often (`clients.py`).
"""

from __future__ import annotations

import hmac
import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from toolscript.domain.errors import Forbidden, InvalidArguments, ToolscriptError, Unauthorized
from toolscript.surfaces.http.errors import error_response

OPEN_PATHS = frozenset({"/health", "/search/health", "/search_knowledge"})
MAX_BODY_BYTES = 16 * 2**20


def is_loopback(host: str) -> bool:
    """Whether a name or address can only mean this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def asks_for_token(method: str, path: str) -> bool:
    """Whether a request is for documents, which are shown for a token and not for the key."""
    return (method, path) == ("POST", "/search") or path == "/documents" or path.startswith("/documents/")


class Guard:
    """ASGI middleware that lets through who may call, and answers the others."""

    def __init__(self, app: ASGIApp, *, bound_to: str, allowed: tuple[str, ...] = (), key: str | None = None) -> None:
        self._app = app
        self._allowed = frozenset(name.lower() for name in allowed) | {bound_to.lower()}
        self._local = is_loopback(bound_to)
        self._key = key.encode() if key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope) if scope["type"] == "http" else None
        if refused is None:
            await self._app(scope, receive, send)
        else:
            await error_response(refused)(scope, receive, send)

    def _refusal(self, scope: Scope) -> ToolscriptError | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = _name("//" + headers.get(b"host", b"").decode("latin-1"))
        if not self._may_be_called(host):
            return Forbidden(
                f"Host {host!r} is not a name of this gateway: call it by its address, or add the name to "
                "TOOLSCRIPT_ALLOWED_HOSTS",
                details={"field": "Host"},
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._may_be_called(_name(origin.decode("latin-1"))):
            return Forbidden(
                f"pages of {origin.decode('latin-1')!r} may not call this gateway: add the name to "
                "TOOLSCRIPT_ALLOWED_HOSTS",
                details={"field": "Origin"},
            )
        if self._key and not _is_open(scope) and not self._has_key(headers):
            return Unauthorized(
                "this gateway asks for a key: send it as `Authorization: Bearer KEY`, or as `X-API-Key: KEY`",
                details={"field": "Authorization"},
            )
        size = headers.get(b"content-length", b"0")
        if size.isdigit() and int(size) > MAX_BODY_BYTES:
            return InvalidArguments(
                f"the body is larger than {MAX_BODY_BYTES // 2**20} MiB", details={"field": "Content-Length"}
            )
        return None

    def _may_be_called(self, name: str) -> bool:
        """An address cannot be rebound by a name server, so off loopback any address will do."""
        if name.lower() in self._allowed or is_loopback(name):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return not self._local

    def _has_key(self, headers: dict[bytes, bytes]) -> bool:
        key = self._key or b""
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), key):
            return True
        return hmac.compare_digest(headers.get(b"x-api-key", b"").strip(), key)


def _is_open(scope: Scope) -> bool:
    return scope["path"] in OPEN_PATHS or asks_for_token(scope["method"], scope["path"])


@lru_cache(maxsize=256)
def _name(url: str) -> str:
    """The host that a URL names; nothing where it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
