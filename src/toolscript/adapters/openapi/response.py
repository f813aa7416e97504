"""Turns the answer of an API into the result of a tool."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import httpx2

from toolscript.adapters.mcp.lenient_reader import MAX_DEPTH, clean_result, count_depth
from toolscript.domain.servers import CallResult

MAX_ERROR_TEXT = 4000
# A larger body is read in a thread: json keeps Python's lock, and a megabyte takes 10 ms.
MAX_INLINE_BYTES = 100_000
_TEXT_KINDS = ("/xml", "+xml", "yaml", "/javascript", "graphql", "ndjson", "urlencoded", "/csv", "/sql")
# Encodings of texts. Python has others, which unpack, raise, or make half of a surrogate pair.
_ENCODING = re.compile(
    r"(?:us-)?ascii|utf-?(?:8|16|32)(?:-?[bl]e)?|(?:iso-?)?8859-\d+|latin-?\d+|(?:windows|cp|ibm)-?\d+|shift[-_]jis|"
    r"euc-(?:jp|kr)|iso-2022-(?:jp|kr)|gb(?:k|2312|18030)|big5|koi8-[ru]|tis-620|macintosh",
    re.IGNORECASE,
)
_PAGE_HEADERS = ("x-next-page", "x-total-count", "x-total", "x-total-pages")


async def read_result(response: httpx2.Response, plan: Mapping[str, Any], redact: Callable[[str], str]) -> CallResult:
    """The result of a call, from an answer that has been read."""
    body, media = response.content, response.headers.get("content-type", "").partition(";")[0].strip().lower()
    value, is_json = await _read_json(body, media)
    if response.is_error or response.next_request is not None:
        return _build_error(response, value, is_json=is_json, redact=redact)
    notes = [note for note in (_describe_pages(response, plan), _describe_place(response)) if note]
    if not body:
        status = f"HTTP status {response.status_code} ({_name_status(response.status_code)}), without content"
        return CallResult({"content": [_text(line) for line in (status, *notes)]})
    if is_json:
        structured = {"result": value} if plan["wraps"] or not isinstance(value, dict) else value
        cleaned = await clean_result({"structuredContent": structured})
        blocks = [_text(_decode(response))]
        return CallResult({"content": [*blocks, *map(_text, notes)], **cleaned})
    return CallResult({"content": [_build_block(response, media), *map(_text, notes)]})


async def _read_json(body: bytes, media: str) -> tuple[Any, bool]:
    """The value of a body, and whether it is JSON."""
    is_stated = media.endswith(("/json", "+json")) or (not media and body[:1] in {b"{", b"["})
    if not is_stated or not body:
        return None, False
    try:
        value = json.loads(body) if len(body) <= MAX_INLINE_BYTES else await asyncio.to_thread(json.loads, body)
    except (ValueError, RecursionError):
        return None, False
    return value, count_depth(value) <= MAX_DEPTH


def _build_error(response: httpx2.Response, value: Any, *, is_json: bool, redact: Callable[[str], str]) -> CallResult:
    status = response.status_code
    lines = [f"HTTP status {status} ({_name_status(status)})"]
    about = value if isinstance(value, dict) else {}
    problem = [about[key] for key in ("title", "detail") if isinstance(about.get(key), str)]  # RFC 9457
    if response.next_request is not None:
        target = str(response.next_request.url.copy_with(query=None))
        lines[0] += f": a redirect to {target[:200]}, which is not followed: calls go only to the address of the API"
    elif problem:
        lines[0] += f": {': '.join(problem)}"
    if retry := response.headers.get("retry-after"):
        lines.append(f"Try again after {retry[:40]}{' seconds' if retry.isdecimal() else ''}.")
    if status == HTTPStatus.UNAUTHORIZED:
        lines.append("The credentials are those of the server's entry: check its `headers`, or log in.")
    body = _decode(response)
    text = redact(body[: MAX_ERROR_TEXT * 4])
    if text and response.next_request is None:
        lines.append(text if len(text) <= MAX_ERROR_TEXT else f"{text[:MAX_ERROR_TEXT]}…")
    result: dict[str, Any] = {"content": [_text(redact("\n".join(lines)))], "isError": True}
    if is_json and len(body) <= MAX_ERROR_TEXT:
        result["structuredContent"] = {"status": status, "body": _redact_values(value, redact)}
    return CallResult(result)


def _redact_values(value: Any, redact: Callable[[str], str]) -> Any:
    match value:
        case dict():
            return {redact(key): _redact_values(each, redact) for key, each in value.items()}
        case list():
            return [_redact_values(each, redact) for each in value]
        case None | bool():
            return value
        case _:
            shown = redact(str(value))
            return value if shown == str(value) else shown


def _decode(response: httpx2.Response) -> str:
    """The text of an answer, by its stated encoding if that is one of texts, otherwise as UTF-8."""
    charset = response.charset_encoding or ""
    try:
        return response.content.decode(charset if _ENCODING.fullmatch(charset) else "utf-8", "replace")
    except LookupError:
        return response.content.decode("utf-8", "replace")


def _describe_pages(response: httpx2.Response, plan: Mapping[str, Any]) -> str:
    """What to call for the next page, as the headers have it."""
    link = response.links.get("next", {}).get("url")
    lines = [f"{name}: {response.headers[name][:40]}" for name in _PAGE_HEADERS if name in response.headers]
    if link:
        names = {each["name"]: each["argument"] for each in plan["parameters"] if each["in"] == "query"}
        query = link.partition("#")[0].partition("?")[2]
        given = [(names[key], value) for key, value in parse_qsl(query) if key in names]
        arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in given)
        lines.insert(0, f"There is a next page: call this tool again with {arguments}" if given else "There is more.")
    return "\n".join(lines)


def _describe_place(response: httpx2.Response) -> str:
    place = (
        response.headers.get("location") if response.status_code in {HTTPStatus.CREATED, HTTPStatus.ACCEPTED} else ""
    )
    return f"Location: {place[:500]}" if place else ""


def _build_block(response: httpx2.Response, media: str) -> dict[str, Any]:
    if media.startswith("text/") or media.endswith(_TEXT_KINDS) or media.endswith(("/json", "+json")):
        return _text(_decode(response))
    data = base64.b64encode(response.content).decode()
    kind = media or "application/octet-stream"
    for family in ("image", "audio"):
        if media.startswith(f"{family}/"):
            return {"type": family, "data": data, "mimeType": kind}
    address = str(response.request.url.copy_with(query=None))
    return {"type": "resource", "resource": {"uri": address, "mimeType": kind, "blob": data}}


def _name_status(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text.replace("\0", "")}
