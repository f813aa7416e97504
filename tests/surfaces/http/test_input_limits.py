"""Bodies above the limit and ids with control characters, on every route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.fixtures.serving import serve
from toolscript.app.app import open_app
from toolscript.settings import load_settings
from toolscript.surfaces.http.input_limits import MAX_BODY_BYTES, MAX_PARTS

BODIES = ["/mcp", "/tools/x", "/api/v1/search", "/api/v1/skills", "/api/v1/sync", "/search_knowledge", "/documents"]
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
async def http(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    settings = load_settings(variables={}, data_dir=tmp_path_factory.mktemp("limits"), search_model="hashed-64")
    async with (
        open_app(settings) as app,
        serve(app) as url,
        httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=30) as client,
    ):
        yield client


async def send_endless() -> AsyncIterator[bytes]:
    for _ in range(2 * MAX_BODY_BYTES // 2**20):
        yield b" " * 2**20
        await asyncio.sleep(0)


@pytest.mark.req("X-03", "D-11")
@pytest.mark.parametrize("path", BODIES)
async def test_a_body_without_an_end_is_a_413_on_every_route(http: httpx.AsyncClient, path: str) -> None:
    headers = {"X-Debug-Bypass-Auth": "1"} if path == "/documents" else {}
    answer = await http.post(path, content=send_endless(), headers=headers)
    if answer.status_code != 401:  # a body of a request without credentials is not read
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "VALIDATION_ERROR")
        assert answer.headers["x-request-id"]
    assert (await http.get("/health")).status_code == 200


@pytest.mark.req("X-03", "D-11")
async def test_a_declared_size_above_the_limit_is_a_413_before_the_body_is_sent(http: httpx.AsyncClient) -> None:
    reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
    size = MAX_BODY_BYTES + 1
    writer.write(f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n".encode())
    writer.write(b"Expect: 100-continue\r\n\r\n")
    async with asyncio.timeout(60):
        assert (await reader.readuntil(b"\r\n")).split()[1] == b"413"
    writer.close()


@pytest.mark.req("X-03", "X-12")
@pytest.mark.parametrize("path", ["/mcp", "/tools/x"])
@pytest.mark.parametrize("whole", [b"[%s]", b'{"jsonrpc":"2.0","id":1,"params":{"x":[%s]}}', b'{"text":"%s"}'])
async def test_a_body_of_very_many_lists_and_objects_is_refused_before_it_is_parsed(
    http: httpx.AsyncClient, path: str, whole: bytes
) -> None:
    answer = await http.post(path, content=whole % b",".join([b"{}"] * (MAX_PARTS + 1)))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "VALIDATION_ERROR")
    assert "lists and objects" in answer.json()["error"]["message"]


@pytest.mark.req("X-03")
async def test_a_body_at_the_limit_is_read(http: httpx.AsyncClient) -> None:
    call = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    answer = await http.post("/mcp", content=call + b" " * (MAX_BODY_BYTES - len(call)))
    assert answer.json()["result"] == {}


@pytest.mark.req("X-03", "D-11")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health%0A"),
        ("GET", "/tools/filesystem__read_file%0A"),
        ("POST", "/tools/a%00b"),
        ("GET", "/tools/a%C2%85"),
        ("GET", "/tools/%FF"),
        ("DELETE", "/documents/a%0A"),
        ("GET", "/api/v1/skills/a%7F"),
        ("GET", "/tools?filter=a%0Ab"),
        ("GET", "/runtime/tools.ts?filter=a%00"),
        ("GET", "/api/v1/search/tools?query=x&skill_ids=a%1F"),
    ],
)
async def test_a_control_character_in_an_id_is_a_422(http: httpx.AsyncClient, method: str, path: str) -> None:
    answer = await http.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "VALIDATION_ERROR")


@pytest.mark.req("X-03")
@pytest.mark.parametrize(("text", "status"), [("true", 200), ("false", 200), ("1", 422), ("yes", 422), ("True", 422)])
async def test_a_boolean_is_true_or_false(http: httpx.AsyncClient, text: str, status: int) -> None:
    assert (await http.get(f"/api/v1/skills/file_operations?details={text}")).status_code == status
    body = {"true": b"true", "false": b"false"}.get(text, b'"yes"')
    answer = await http.post("/api/v1/search", content=b'{"query": "read a file", "include_schemas": %s}' % body)
    assert answer.status_code == status
