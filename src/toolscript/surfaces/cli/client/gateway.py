"""HTTP requests to a gateway: the one that `--gateway` names, or the one that has announced itself in the data
folder."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

from toolscript.domain.errors import Invalid, ToolscriptError, Unauthorized, Unavailable
from toolscript.domain.requests import COMMAND_LINE
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.announcement import Announcement, make_absolute, read_announcement

TIMEOUT_SECONDS = 10.0
# How long a command waits for a sign of life of another gateway before it assumes that it hangs.
HEALTH_TIMEOUT_SECONDS = 3.0
# The gateway closes the connection when a request body is larger.
MAX_BODY_BYTES = 16 * 2**20
# What OpenSSL calls an answer that is not TLS.
NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"})
LOCAL_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
_ERRORS = {kind.code: kind for kind in ToolscriptError.__subclasses__()}


def find_gateway_url(settings: Settings) -> str | None:
    """The URL of the gateway that commands use: the setting, or what the gateway on the data folder has announced.
    Raises Invalid for a setting that is not a URL."""
    if settings.gateway_url is None:
        announced = read_announcement(settings.data)
        return announced.url if announced else None
    url = settings.gateway_url.rstrip("/")
    try:
        parts = urllib.parse.urlsplit(url)
        is_valid = (
            parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and not set("@?#") & set(url)
        )
    except ValueError:
        is_valid = False
    if not is_valid or not url.isascii() or not url.isprintable() or " " in url:
        raise Invalid(
            f"invalid gateway {settings.gateway_url!r}: expected an http or https URL like http://127.0.0.1:3780, "
            "without a query",
            details={"field": "--gateway"},
        )
    return url


def is_gateway_running(settings: Settings) -> bool:
    """Whether a gateway responds. Raises Unavailable when the one that `--gateway` names does not, or when the one on
    the data folder reads another configuration file."""
    return send_to_gateway(settings, "/health") is not None


def find_running_gateway(settings: Settings) -> Announcement | None:
    """The gateway on the data folder that responds, or hangs; None when none runs."""
    announced = read_announcement(settings.data)
    if announced is None:
        return None
    request = urllib.request.Request(f"{announced.url}/health")  # noqa: S310
    try:
        is_running = _send(request, announced.url, HEALTH_TIMEOUT_SECONDS) is not None
    except ToolscriptError:
        is_running = True
    return announced if is_running else None


def require_no_gateway(settings: Settings, consequence: str) -> None:
    """Raises Unavailable while a gateway has the embedded index of the data folder open."""
    if not settings.index and (running := find_running_gateway(settings)):
        raise Unavailable(
            f"the gateway {running.describe()} uses {settings.data}, and {consequence} while it runs: stop it with "
            "`toolscript gateway stop`, run this command again, and restart the gateway",
            details={"folder": str(settings.data), "url": running.url, "pid": running.pid},
        )


def build_credentials(settings: Settings, tenant: str | None = None) -> dict[str, str]:
    """Request headers: the API key, if there is one, and for a tenant a token that is signed with the gateway's local
    key. Only the gateway on the data folder has left one; the tenant at another gateway is the tenant of the key.

    Raises Unavailable when there is no local key."""
    if tenant is None or settings.gateway_url:
        return {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    announced = read_announcement(settings.data)
    if not announced or not announced.key:
        raise Unavailable(
            f"the gateway that runs on {settings.data} has left no key to sign a tenant's token with: restart it"
        )
    from toolscript.app.app import local_token

    token = {"Authorization": f"Bearer {local_token(announced.key, tenant)}"}
    return token | ({"X-API-Key": settings.api_key} if settings.api_key else {})


def send_to_gateway(
    settings: Settings,
    path: str,
    /,
    *,
    method: str | None = None,
    body: Any = None,
    content: tuple[str, bytes] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    tenant: str | None = None,
    **query: Any,
) -> Any:
    """The gateway's response: JSON, or text when it is not JSON (empty when there is no body). None when no gateway
    runs on the data folder and none is named.

    Without a method it is a GET, with a body (JSON) or a content of another type a POST; with a tenant it carries that
    tenant's token. Raises the error that the gateway responds with; Unavailable when it accepts the request and does
    not respond, because the request must not be sent twice. Where the gateway on the data folder requires a key and
    there is none, the request carries the token of the folder's owner.
    """
    url = find_gateway_url(settings)
    if url is None:
        return None
    if settings.gateway_url is None:
        ours, announced = make_absolute(settings.config), read_announcement(settings.data)
        if ours and announced and announced.config not in {ours, ""}:
            raise Unavailable(
                f"the gateway {announced.describe()} on {settings.data} reads "
                f"{announced.config or 'the default files'}, not {settings.config}: stop it with "
                "`toolscript gateway stop`, or choose another folder with --data-dir"
            )
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
    given = {name: value for name, value in given.items() if value is not None}
    full_url = f"{url}{path}?{urllib.parse.urlencode(given, doseq=True, errors='replace')}"
    kind, data = content or ("application/json", None if body is None else encode_json(body))
    if data and len(data) > MAX_BODY_BYTES and content is None:
        raise Invalid(
            f"the request body has {len(data) / 2**20:.1f} MiB, and the gateway at {url} accepts at most "
            f"{MAX_BODY_BYTES // 2**20} MiB: send less at a time, or stop the gateway and run the command without it"
        )
    headers = {**build_credentials(settings, tenant), "User-Agent": COMMAND_LINE}
    if data is not None:
        headers["Content-Type"] = kind
    request = urllib.request.Request(full_url, data, headers, method=method)  # noqa: S310
    response = _send_as_owner(settings, request, url, timeout_seconds, tenant)
    if response is None and settings.gateway_url:
        raise Unavailable(
            f"no gateway responds at {url}: start one there, or correct --gateway or TOOLSCRIPT_GATEWAY_URL",
            details={"field": "--gateway"},
        )
    return response


def _send_as_owner(
    settings: Settings, request: urllib.request.Request, url: str, timeout_seconds: float, tenant: str | None
) -> Any:
    """Sends a request, and again as the owner of the data folder where its gateway requires a key and there is none.
    Raises Unauthorized, with what to do."""
    try:
        return _send(request, url, timeout_seconds, is_signed=tenant is not None)
    except Unauthorized:
        if tenant is not None and settings.gateway_url and not _may_have_tenant(settings.api_key or ""):
            raise Unauthorized(
                "documents need a key of their tenant: create one where the gateway runs, with `toolscript keys create "
                "NAME --scope documents --tenant TENANT`, and set TOOLSCRIPT_API_KEY to it",
                details={"field": "TOOLSCRIPT_API_KEY"},
            ) from None
        # Only then: importing what signs a token takes 0.4 s. The gateway checks keys before it does anything.
        if tenant is not None or settings.api_key or settings.gateway_url or not _sign_as_owner(settings, request):
            raise
        return _send(request, url, timeout_seconds)


def _may_have_tenant(key: str) -> bool:
    """Whether this is a named key, or a token: the key of a gateway's operator has no tenant."""
    from toolscript.services.access.keys import is_key

    return is_key(key) or key.count(".") == 2  # noqa: PLR2004


def _sign_as_owner(settings: Settings, request: urllib.request.Request) -> bool:
    """Adds the token of the data folder's owner; returns whether that is possible."""
    try:
        credentials = build_credentials(settings, settings.tenant)
    except (Unavailable, ImportError):  # an installation without PyJWT
        return False
    for name, value in credentials.items():
        request.add_header(name, value)
    return True


def encode_json(body: Any) -> bytes:
    """JSON in UTF-8, not escaped to save bytes, unless it has half a surrogate pair: UTF-8 cannot encode that."""
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()


def uses_proxy(url: str) -> bool:
    """Whether requests go through the proxy of the environment: not to this machine."""
    return urllib.parse.urlsplit(url).hostname not in LOCAL_HOSTS


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the key would go to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _send(request: urllib.request.Request, url: str, timeout_seconds: float, *, is_signed: bool = False) -> Any:
    """The response; None when the connection is refused, or the host unknown."""
    proxy = urllib.request.ProxyHandler(None if uses_proxy(url) else {})
    opener = urllib.request.build_opener(proxy, _NoRedirect)
    try:
        with opener.open(request, timeout=timeout_seconds) as response:
            content = response.read()
            is_json = bool(content) and response.headers.get_content_type() == "application/json"
            return json.loads(content) if is_json else content.decode()
    except urllib.error.HTTPError as refusal:
        raise _read_error(refusal, is_signed=is_signed) from refusal
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ConnectionRefusedError | socket.gaierror):
            return None
        if isinstance(error, urllib.error.URLError) and isinstance(reason, ssl.SSLError):
            raise _explain_tls(reason, url) from error
        raise Unavailable(
            f"the gateway at {url} did not respond ({error}): it is unknown whether the request was carried out"
        ) from error


def _explain_tls(error: ssl.SSLError, url: str) -> Unavailable:
    """A failed handshake: nothing was sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unavailable(f"the certificate of {url} is not accepted: {error.verify_message}")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):  # perhaps after the handshake
        return Unavailable(f"{url} closed the connection ({error}): it is unknown whether the request was carried out")
    if error.reason in NOT_TLS:
        return Unavailable(f"{url} does not speak https ({error}): use http:// if it is a gateway without TLS")
    return Unavailable(f"no secure connection to {url} ({error}): nothing was sent")


def _read_error(refusal: urllib.error.HTTPError, *, is_signed: bool) -> ToolscriptError:
    try:
        error = json.load(refusal)["error"]
        if error["code"] == Unauthorized.code and not is_signed:
            return Unauthorized("the gateway requires a valid key: set TOOLSCRIPT_API_KEY", details=error["details"])
        # Some routes have fewer codes than there are errors; the status distinguishes them.
        kind = Unavailable if refusal.code == HTTPStatus.SERVICE_UNAVAILABLE else _ERRORS.get(error["code"])
        return (kind or ToolscriptError)(error["message"], details=error["details"])
    except (ValueError, KeyError, TypeError):
        return Unavailable(f"the gateway responded with status {refusal.code} and no error message")
