"""Serves the files of the console. They are public and hold no data: the page asks the HTTP interface for it, with the
key of the person who uses it."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

PAGE_PATH, FILES_PATH = "/", "/console/"
CONSOLE_PATHS = (PAGE_PATH, f"{FILES_PATH}{{name:path}}")
FOLDER = Path(__file__).parent / "static"
PAGE = "index.html"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# No script or style inside a page, nothing from elsewhere, and no text that becomes HTML (trusted types): whatever a
# tool is called, it stays text. Images may be data, because tools answer with them.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",  # the browser asks with the ETag: the files of another version never mix
    "Vary": "Accept, Accept-Encoding",
}
OK, NOT_MODIFIED, NOT_FOUND = 200, 304, 404


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the console."""

    media_type: str
    content: bytes
    compressed: bytes
    digest: str


class ConsoleFiles:
    """An ASGI application that answers with the files of the console; programs that ask for the page get `index`."""

    path = FILES_PATH.rstrip("/")
    """Its name in metrics and logs: one for all files."""

    def __init__(self, index: Mapping[str, str]) -> None:
        self._index = index

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request. Raises HTTPException for a name that is not one of its files."""
        scope["route"] = self
        if scope["path"] == PAGE_PATH and not _accepts_html(scope):
            await JSONResponse(self._index, headers={"Vary": HEADERS["Vary"]})(scope, receive, send)
            return
        name = PAGE if scope["path"] == PAGE_PATH else scope["path"].removeprefix(FILES_PATH)
        file = (await asyncio.to_thread(load_files)).get(name)
        if file is None or not is_console_request(scope):
            raise HTTPException(NOT_FOUND)
        await _build_response(file, Headers(scope=scope))(scope, receive, send)


def is_console_request(scope: Scope) -> bool:
    """Whether a request is for a file of the console: the page only if a browser asks for it."""
    if scope["method"] not in {"GET", "HEAD"}:
        return False
    path: str = scope["path"]
    return path.startswith(FILES_PATH) or (path == PAGE_PATH and _accepts_html(scope))


def _accepts_html(scope: Scope) -> bool:
    return "text/html" in Headers(scope=scope).get("accept", "")


@cache
def load_files() -> dict[str, StaticFile]:
    """Reads and compresses all files, once for a process, by their paths below the folder."""
    paths = [path for path in FOLDER.rglob("*") if path.suffix in MEDIA_TYPES]
    return {path.relative_to(FOLDER).as_posix(): _load(path) for path in paths}


def _load(path: Path) -> StaticFile:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:32]
    return StaticFile(MEDIA_TYPES[path.suffix], content, gzip.compress(content, mtime=0), digest)


def _build_response(file: StaticFile, sent: Headers) -> Response:
    accepted = [each.strip().lower().replace(" ", "") for each in sent.get("accept-encoding", "").split(",")]
    is_compressed = any(each.partition(";")[0] == "gzip" and not each.endswith(";q=0") for each in accepted)
    tag = f'"{file.digest}{"-gzip" if is_compressed else ""}"'
    headers = HEADERS | {"ETag": tag}
    if tag in {each.strip().removeprefix("W/") for each in sent.get("if-none-match", "").split(",")}:
        return Response(status_code=NOT_MODIFIED, headers=headers)
    headers |= {"Content-Encoding": "gzip"} if is_compressed else {}
    content = file.compressed if is_compressed else file.content
    return Response(content, status_code=OK, headers=headers | {"Content-Type": file.media_type})
