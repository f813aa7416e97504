"""Answers of APIs, also wrong and hostile ones, become results."""

from __future__ import annotations

import zlib
from typing import Any

import httpx2
import pytest

from toolscript.adapters.mcp.server_log import ServerLog
from toolscript.adapters.openapi.response import read_result
from toolscript.domain.servers import CallResult, ServerSpec, Transport

pytestmark = pytest.mark.req("O-01", "X-11")

SPEC = ServerSpec(
    "s", Transport.OPENAPI, headers={"X-Dry-Run": "true", "X-Tenant": "1234"}, url="https://api.example.com"
)


async def read(content: bytes, media: str, status: int = 200, **headers: str) -> CallResult:
    request = httpx2.Request("GET", "https://api.example.com/a")
    about = {"content-type": media, **headers}
    response = httpx2.Response(status, headers=about, content=content, request=request)
    plan: dict[str, Any] = {"wraps": False, "parameters": []}
    return await read_result(response, plan, ServerLog(SPEC, lambda _: None).redact)


@pytest.mark.parametrize(
    ("charset", "content", "text"),
    [
        ("iso-8859-1", b"caf\xe9", "café"),
        ("Windows-1252", b"\x80", "€"),
        ("Shift_JIS", b"\x82\xa0", "あ"),
        ("utf-16", "ü".encode("utf-16"), "ü"),
        ("utf-8", b"a\xff", "a\ufffd"),
        *((name, b"abc\\ud800", "abc\\ud800") for name in ("hex", "rot13", "unicode_escape", "idna", "none", "a\0")),
    ],
)
@pytest.mark.parametrize("status", [200, 400])
async def test_a_text_is_decoded_as_its_encoding_says(charset: str, content: bytes, text: str, status: int) -> None:
    result = await read(content, f'text/plain; charset="{charset}"', status)
    assert result.text.splitlines()[-1] == text


async def test_an_encoding_cannot_make_an_answer_grow() -> None:
    content = zlib.compress(b"a" * 1_000_000)
    assert len((await read(content, "text/plain; charset=zlib")).text) <= len(content)


async def test_secrets_are_redacted_in_the_values_of_an_error() -> None:
    body = b'{"ok": true, "n": 12345, "of": ["1234", {"1234": null}], "price": 0.5}'
    result = await read(body, "application/json", 400)
    assert result.structured["body"] == {"ok": True, "n": "***5", "of": ["***", {"***": None}], "price": 0.5}


async def test_a_link_that_nobody_can_read_costs_no_answer() -> None:
    result = await read(b"x", "text/plain", link='<http://[>; rel="next"')
    assert result.text == "x\nThere is more."
