"""HTTP requests to the gateway that runs on the data folder. The gateway announces itself in a file there, so that
commands on the same folder use it instead of opening the folder."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid, ToolscriptError, Unauthorized, Unavailable
from toolscript.settings import Settings

FILE = "gateway.json"
TIMEOUT_SECONDS = 10.0
# The gateway closes the connection when a request body is larger.
MAX_BODY_BYTES = 16 * 2**20
_ERRORS = {kind.code: kind for kind in ToolscriptError.__subclasses__()}


@contextmanager
def announce_gateway(data: Path, url: str, config: Path | None = None, *, key: str | None = None) -> Iterator[None]:
    """Writes the gateway's URL, its configuration file and the key that signs the owner's tokens to the data folder,
    and removes them at the end of the block. Only the owner of the folder can read the file."""
    note, draft = data / FILE, data / f"{FILE}.new"
    data.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"url": url, "pid": os.getpid(), "config": _make_absolute(config), "key": key})
    draft.unlink(missing_ok=True)  # a draft that an earlier gateway left may be readable by others
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(note)
    try:
        yield
    finally:
        with suppress(OSError):
            if note.read_text(encoding="utf-8") == text:
                note.unlink()


def find_gateway_url(data: Path) -> str | None:
    """The URL that the gateway on that folder has announced."""
    url = _read_note(data).get("url")
    return url if isinstance(url, str) else None


def is_gateway_running(settings: Settings) -> bool:
    """Whether a gateway on the data folder responds. Raises Unavailable when it reads another configuration file."""
    return send_to_gateway(settings, "/health") is not None


def build_credentials(settings: Settings, tenant: str | None = None) -> dict[str, str]:
    """Request headers: the API key, if there is one, and for a tenant a token that is signed with the gateway's local
    key. Raises Unavailable when the gateway has left no such key."""
    if tenant is None:
        return {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    key = _read_note(settings.data).get("key")
    if not isinstance(key, str) or not key:
        raise Unavailable(
            f"the gateway that runs on {settings.data} has left no key to sign a tenant's token with: restart it"
        )
    from toolscript.app.app import local_token

    token = {"Authorization": f"Bearer {local_token(key, tenant)}"}
    return token | ({"X-API-Key": settings.api_key} if settings.api_key else {})


def send_to_gateway(
    settings: Settings,
    path: str,
    *,
    method: str | None = None,
    body: Any = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    tenant: str | None = None,
    **query: Any,
) -> Any:
    """The gateway's response: JSON, or text when it is not JSON (empty when there is no body). None when no gateway
    runs on the data folder.

    Without a method it is a GET, with a body a POST; with a tenant it carries that tenant's token. Raises the error
    that the gateway responds with; Unavailable when it accepts the request and does not respond, because the request
    must not be sent twice.
    """
    url = find_gateway_url(settings.data)
    if url is None:
        return None
    _check_configuration(settings)
    given = {name: value for name, value in query.items() if value is not None}
    full_url = f"{url}{path}?{urllib.parse.urlencode(given, errors='replace')}"
    data = None if body is None else encode_json(body)
    if data and len(data) > MAX_BODY_BYTES:
        raise Invalid(
            f"the request body has {len(data) / 2**20:.1f} MiB, and the gateway at {url} accepts at most "
            f"{MAX_BODY_BYTES // 2**20} MiB: send less at a time, or stop the gateway and run the command without it"
        )
    headers = build_credentials(settings, tenant)
    if body is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(full_url, data, headers, method=method)  # noqa: S310
    return _send(request, url, timeout_seconds, is_signed=tenant is not None)


def encode_json(body: Any) -> bytes:
    """JSON in UTF-8, not escaped to save bytes, unless it has half a surrogate pair, which UTF-8 cannot encode."""
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()


def _read_note(data: Path) -> dict[str, Any]:
    """What the gateway on that folder has announced; empty when its process has ended: another program may have its
    port by now, and must not get our key."""
    try:
        note = json.loads((data / FILE).read_text(encoding="utf-8"))
        pid = note["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return note if isinstance(note, dict) and isinstance(pid, int) and _is_alive(pid) else {}


def _make_absolute(config: Path | None) -> str | None:
    return str(config.expanduser().absolute()) if config else None


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # os.kill would end the process there
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _check_configuration(settings: Settings) -> None:
    ours = _make_absolute(settings.config)
    theirs = _read_note(settings.data).get("config", ours)
    if ours and ours != theirs:
        raise Unavailable(
            f"the gateway that runs on {settings.data} reads {theirs or 'the default files'}, not {settings.config}: "
            "stop it, or choose another folder with --data-dir"
        )


def _send(request: urllib.request.Request, url: str, timeout_seconds: float, *, is_signed: bool) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy: it is local
    try:
        with opener.open(request, timeout=timeout_seconds) as response:
            content = response.read()
            is_json = bool(content) and response.headers.get_content_type() == "application/json"
            return json.loads(content) if is_json else content.decode()
    except urllib.error.HTTPError as refusal:
        raise _read_error(refusal, is_signed=is_signed) from refusal
    except (OSError, ValueError, HTTPException) as error:
        if isinstance(getattr(error, "reason", error), ConnectionRefusedError):
            return None
        raise Unavailable(
            f"the gateway at {url} did not respond ({error}): it is unknown whether the request was carried out"
        ) from error


def _read_error(refusal: urllib.error.HTTPError, *, is_signed: bool) -> ToolscriptError:
    try:
        error = json.load(refusal)["error"]
        if error["code"] == Unauthorized.code and not is_signed:
            return Unauthorized("the gateway requires its API key: set TOOLSCRIPT_API_KEY", details=error["details"])
        # Some routes have fewer codes than there are errors; the status distinguishes them.
        kind = Unavailable if refusal.code == HTTPStatus.SERVICE_UNAVAILABLE else _ERRORS.get(error["code"])
        return (kind or ToolscriptError)(error["message"], details=error["details"])
    except (ValueError, KeyError, TypeError):
        return Unavailable(f"the gateway responded with status {refusal.code} and no error message")
