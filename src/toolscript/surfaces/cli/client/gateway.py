"""A gateway that is running says where; commands on the same data folder ask it instead of opening the folder."""

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

from toolscript.domain.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    TimedOut,
    ToolscriptError,
    Unauthorized,
    Unavailable,
    UpstreamFailed,
)
from toolscript.settings import Settings

FILE = "gateway.json"
PATIENCE_SECONDS = 10
# What a gateway takes in one request; it hangs up on more.
MAX_BODY_BYTES = 16 * 2**20
_KINDS = (Invalid, NotFound, Conflict, Unavailable, Unauthorized, Forbidden, RateLimited, UpstreamFailed, TimedOut)
_ERRORS: dict[str, type[ToolscriptError]] = {kind.code: kind for kind in _KINDS}


@contextmanager
def announced(data: Path, url: str, config: Path | None = None, *, key: str | None = None) -> Iterator[None]:
    """Leaves a note in the data folder for as long as the gateway runs: its address, the file it was told to read, and
    the key that the folder's owner signs tokens with. Only the owner can read it."""
    note, draft = data / FILE, data / f"{FILE}.new"
    data.mkdir(parents=True, exist_ok=True)
    told = json.dumps({"url": url, "pid": os.getpid(), "config": _place(config), "key": key})
    draft.unlink(missing_ok=True)  # one that a gateway could not finish may be open to others
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(told)
    draft.replace(note)
    try:
        yield
    finally:
        with suppress(OSError):
            if note.read_text(encoding="utf-8") == told:
                note.unlink()


def address(data: Path) -> str | None:
    """Where the gateway on that folder says that it is."""
    url = _note(data).get("url")
    return url if isinstance(url, str) else None


def credentials(settings: Settings, tenant: str | None = None) -> dict[str, str]:
    """The headers that the gateway on the data folder lets us in with: its key, if it has one, and for a tenant a token
    that is signed with what it left for the folder's owner. Raises Unavailable where it left nothing."""
    if tenant is None:
        return {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    key = _note(settings.data).get("key")
    if not isinstance(key, str) or not key:
        raise Unavailable(
            f"the gateway that runs on {settings.data} has left no key to sign for a tenant with: stop it and start it "
            "anew"
        )
    from toolscript.app.app import local_token

    token = {"Authorization": f"Bearer {local_token(key, tenant)}"}
    return token | ({"X-API-Key": settings.api_key} if settings.api_key else {})


def _note(data: Path) -> dict[str, Any]:
    """What the gateway on that folder left. What outlived a gateway that was killed counts for nothing: somebody else
    may have its port by now, and must not be sent our key."""
    try:
        note = json.loads((data / FILE).read_text(encoding="utf-8"))
        pid = note["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return note if isinstance(note, dict) and isinstance(pid, int) and _is_alive(pid) else {}


def _place(config: Path | None) -> str | None:
    return str(config.expanduser().absolute()) if config else None


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # where asking would end it
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def ask(
    settings: Settings,
    path: str,
    *,
    method: str | None = None,
    body: Any = None,
    patience: float = PATIENCE_SECONDS,
    tenant: str | None = None,
    **query: Any,
) -> Any:
    """What the gateway on the data folder answers (JSON, or text where it is none, which is empty where it answers
    nothing); None when there is no gateway.

    Without a method it is a GET, with a body a POST; with a tenant it is asked in that tenant's name. An error of the
    gateway is raised as the error that it is; one that takes the question and does not answer is Unavailable, because
    nobody may ask it twice.
    """
    url = address(settings.data)
    if url is None:
        return None
    _check_configuration(settings)
    asked = f"{url}{path}?{urllib.parse.urlencode({k: v for k, v in query.items() if v is not None}, errors='replace')}"
    data = None if body is None else said(body)
    if data and len(data) > MAX_BODY_BYTES:
        raise Invalid(
            f"what is sent has {len(data) / 2**20:.1f} MiB, and the gateway at {url} takes at most "
            f"{MAX_BODY_BYTES // 2**20}: send less at a time, or stop the gateway and run the command without it"
        )
    request = urllib.request.Request(asked, data=data, method=method)  # noqa: S310
    for name, value in credentials(settings, tenant).items():
        request.add_header(name, value)
    if body is not None:
        request.add_header("Content-Type", "application/json")
    return _answer(request, url, patience, is_signed=tenant is not None)


def said(body: Any) -> bytes:
    """A body as it is sent: in UTF-8, where each character has few bytes, unless half a character is among them."""
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()


def _check_configuration(settings: Settings) -> None:
    ours = _place(settings.config)
    theirs = _note(settings.data).get("config", ours)
    if ours and ours != theirs:
        raise Unavailable(
            f"the gateway that runs on {settings.data} reads {theirs or 'the usual files'}, not {settings.config}: "
            "stop it, or choose another folder with --data-dir"
        )


def _answer(request: urllib.request.Request, url: str, patience: float, *, is_signed: bool) -> Any:
    straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # what is on this machine needs no proxy
    try:
        with straight.open(request, timeout=patience) as answer:
            told = answer.read()
            is_json = bool(told) and answer.headers.get_content_type() == "application/json"
            return json.loads(told) if is_json else told.decode()
    except urllib.error.HTTPError as refused:
        raise _error(refused, is_signed=is_signed) from refused
    except (OSError, ValueError, HTTPException) as error:
        if isinstance(getattr(error, "reason", error), ConnectionRefusedError):
            return None
        raise Unavailable(
            f"the gateway at {url} did not answer ({error}): whether it did what was asked is not known"
        ) from error


def _error(refused: urllib.error.HTTPError, *, is_signed: bool) -> ToolscriptError:
    try:
        told = json.load(refused)["error"]
        if told["code"] == Unauthorized.code and not is_signed:
            return Unauthorized("the gateway asks for its key: set TOOLSCRIPT_API_KEY", details=told["details"])
        # Some routes have fewer codes than there are errors; the status says it too.
        kind = Unavailable if refused.code == HTTPStatus.SERVICE_UNAVAILABLE else _ERRORS.get(told["code"])
        return (kind or ToolscriptError)(told["message"], details=told["details"])
    except (ValueError, KeyError, TypeError):
        return Unavailable(f"the gateway answered {refused.code} without saying why")
