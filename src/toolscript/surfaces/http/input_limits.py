"""Checks the path and the size of the body of every request that the guard let through, also of `/mcp`."""

from __future__ import annotations

import unicodedata
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscript.domain.errors import InvalidArguments, TooLarge, ToolscriptError
from toolscript.domain.requests import current_request
from toolscript.services.support.shares import MAX_BODIES_BYTES, Shares
from toolscript.surfaces.http.errors import error_response

MAX_BODY_BYTES = 16 * 2**20
# Arguments of tools become lists and objects of Python on the event loop, in 0.2 s for as many. Those in texts count,
# too: to leave them out takes longer.
MAX_PARTS = 250_000
PATHS_WITH_ARGUMENTS = ("/tools/", "/mcp")
# A larger file cannot be read anyway.
UPLOAD_PATHS, MAX_UPLOAD_BYTES = frozenset({"/api/v1/ingest", "/api/v1/knowledge/import"}), 256 * 2**20


class InputLimits:
    """ASGI middleware that refuses a body above a limit, whether its size is declared or not, and a path with ids that
    could be taken for other ids: with control characters, or not in UTF-8."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._bytes = Shares("bytes of request bodies", MAX_BODIES_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif error := _check_path(scope) or _check_declared_size(scope):
            await error_response(error)(scope, receive, send)
        else:
            body = _LimitedBody(scope, receive, send, self._bytes)
            try:
                await self._app(scope, body.receive, body.send)
            finally:
                body.give_back()


class _LimitedBody:
    """The messages of one request. When the body grows too large, the client gets an error, and the application learns
    that the client is gone."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, shares: Shares) -> None:
        """All bodies take their bytes from the shares, but files: files are written to disk, or come from an admin."""
        self._scope, self._receive, self._send = scope, receive, send
        self._size, self._max_size = 0, _find_limit(scope)
        self._parts, self._has_arguments = 0, scope["path"].startswith(PATHS_WITH_ARGUMENTS)
        self._is_over = self._is_started = self._is_refused = False
        self._shares, self._holder, self._taken = shares, current_request().share_holder, 0
        self._is_file = scope["path"] in UPLOAD_PATHS

    async def receive(self) -> Message:
        if self._is_over:
            return {"type": "http.disconnect"}
        message = await self._receive()
        try:
            self._count(message.get("body", b""))
        except ToolscriptError as error:
            self._is_over = True
            if not self._is_started:
                self._is_refused = True
                await error_response(error)(self._scope, self._receive, self._send)
            return {"type": "http.disconnect"}
        return message

    def give_back(self) -> None:
        """Gives back the bytes, when the request has ended."""
        self._shares.give_back(self._holder, self._taken)

    def _count(self, body: bytes) -> None:
        size = len(body)
        self._size += size
        if self._size > self._max_size:
            raise build_too_large("body", self._max_size)
        if self._has_arguments:
            self._parts += body.count(b"[") + body.count(b"{")
        if self._parts > MAX_PARTS:
            raise TooLarge(
                f"the body has more than {MAX_PARTS} lists and objects, counted with those in texts: send less at once",
                details={"field": "body"},
            )
        if size and not self._is_file:
            self._shares.take(self._holder, size)
            self._taken += size

    async def send(self, message: Message) -> None:
        self._is_started = True
        if not self._is_refused:
            await self._send(message)


def build_too_large(field: str, max_bytes: int) -> TooLarge:
    """Builds the error for a body above `max_bytes`."""
    return TooLarge(f"the body is larger than {max_bytes // 2**20} MiB", details={"field": field})


def _check_path(scope: Scope) -> ToolscriptError | None:
    """The router ignores a line end after an id, and the server replaces bytes that are not UTF-8: without this check,
    `DELETE /documents/a%0A` would remove the document `a`."""
    path: str = scope["path"]
    problem = None
    if not path.isprintable() and any(unicodedata.category(letter) == "Cc" for letter in path):
        problem = "contains a control character"
    elif "\ufffd" in path:
        try:
            unquote_to_bytes(scope.get("raw_path") or path).decode()
        except UnicodeDecodeError:
            problem = "is not valid UTF-8"
    return (
        InvalidArguments(f"the path {problem}: ids are UTF-8 without control characters", details={"field": "path"})
        if problem
        else None
    )


def _find_limit(scope: Scope) -> int:
    return MAX_UPLOAD_BYTES if scope["path"] in UPLOAD_PATHS else MAX_BODY_BYTES


def _check_declared_size(scope: Scope) -> ToolscriptError | None:
    size = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if size.isdigit() and int(size) > _find_limit(scope):
        return build_too_large("Content-Length", _find_limit(scope))
    return None
