"""How `toolscript mcp --gateway` forwards calls to a gateway at a URL."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import Mock

import pytest
from mcp_types import CallToolRequestParams

from toolscript.domain.errors import Unavailable
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.remote_gateway import RemoteGateway

pytestmark = pytest.mark.req("G-05", "G-08")

PAGE = b"<html>504 Gateway Time-out</html>"


class Proxy(ThreadingHTTPServer):
    """Answers pings as a gateway does, and calls with the page of a proxy whose gateway took too long."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ProxyRequest)
        self.methods: list[str] = []


class ProxyRequest(BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        method = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["method"]
        self.server.methods.append(method)
        body = b'{"jsonrpc": "2.0", "id": 1, "result": {}}' if method == "ping" else PAGE
        self.send_response(200 if method == "ping" else 504)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_a_call_that_a_proxy_answers_with_a_page_is_sent_once(proxy: Proxy, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{proxy.server_port}"
    remote = RemoteGateway(load_settings(variables={}, data_dir=tmp_path, gateway_url=url), "default")
    with pytest.raises(Unavailable, match=r"status 504.* it is unknown whether the request was carried out"):
        await remote.answer(
            CallToolRequestParams(name="call_tool", arguments={"tool_id": "pay__send"}),
            Mock(params={}, meta={}, protocol_version="2026-07-28"),
        )
    assert proxy.methods == ["tools/call"]
