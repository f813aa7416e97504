"""The server that MCP's conformance suite describes, and a relay that gives it back its names.

The suite calls tools, prompts and resources by fixed names, which a gateway has under its own. So its scenarios run
against the relay: it passes every request on to the gateway, with the names that the gateway has. The server is run as
a script with the standard library alone, like `scripted.py`.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAME = "suite"
PREFIX = f"toolscript:{NAME}/"
HEADERS = ("accept", "content-type", "mcp-protocol-version", "mcp-session-id")
TIMEOUT_SECONDS = 60
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="

TEXT = {"type": "text", "text": "This is a simple text response for testing."}
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAA==", "mimeType": "audio/wav"}
EMBEDDED = {"type": "resource", "resource": {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "x"}}
TOOLS: dict[str, dict[str, Any]] = {
    "test_simple_text": {"content": [TEXT]},
    "test_image_content": {"content": [IMAGE]},
    "test_audio_content": {"content": [AUDIO]},
    "test_embedded_resource": {"content": [EMBEDDED]},
    "test_multiple_content_types": {"content": [TEXT, IMAGE, EMBEDDED]},
    "test_error_handling": {"content": [TEXT], "isError": True},
    "test_tool_with_progress": {"content": [TEXT]},
}
PROMPTS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "test_simple_prompt": ((), TEXT),
    "test_prompt_with_arguments": (("arg1", "arg2"), TEXT),
    "test_prompt_with_embedded_resource": (("resourceUri",), EMBEDDED),
    "test_prompt_with_image": ((), IMAGE),
}
RESOURCES: dict[str, dict[str, str]] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PIXEL},
    "test://template/123/data": {"mimeType": "application/json", "text": '{"id": "123"}'},
}


def list_entries() -> dict[str, dict[str, Any]]:
    """The answers to the requests for lists."""
    about = {"description": "Of the conformance suite."}
    prompts = [
        {"name": name, **about, "arguments": [{"name": each, "required": True} for each in arguments]}
        for name, (arguments, _) in PROMPTS.items()
    ]
    listed = [uri for uri in RESOURCES if "template" not in uri]
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", **about}
    return {
        "tools/list": {"tools": [{"name": name, **about, "inputSchema": {"type": "object"}} for name in TOOLS]},
        "prompts/list": {"prompts": prompts},
        "resources/list": {"resources": [{"uri": uri, "name": uri, **about} for uri in listed]},
        "resources/templates/list": {"resourceTemplates": [template]},
    }


def answer(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            offered: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}
            info = {"name": NAME, "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": offered, "serverInfo": info}
        case "tools/call":
            token = (params.get("_meta") or {}).get("progressToken")
            if params["name"] == "test_tool_with_progress" and token is not None:
                for done in (0, 50, 100):
                    report = {"progressToken": token, "progress": done, "total": 100}
                    send(method="notifications/progress", params=report)
            return TOOLS[params["name"]]
        case "prompts/get":
            given = {"type": "text", "text": json.dumps(params.get("arguments") or {})}
            blocks = (PROMPTS[params["name"]][1], given)
            return {"messages": [{"role": "user", "content": block} for block in blocks]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], **RESOURCES[params["uri"]]}]}
        case "completion/complete":
            return {"completion": {"values": ["paris", "park"], "total": 2, "hasMore": False}}
    return list_entries().get(method, {})


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            send(id=message["id"], result=answer(message["method"], message.get("params") or {}))


class _QuietServer(ThreadingHTTPServer):
    """Clients of the suite close connections while they are answered."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextmanager
def relay_names(url: str) -> Iterator[str]:
    """The URL of an MCP server that has the suite's names and is the gateway at `url` otherwise."""

    class Relay(BaseHTTPRequestHandler):
        """Passes requests on."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name: self.headers[name] for name in HEADERS if self.headers[name]}
            request = urllib.request.Request(f"{url}/mcp", rename_request(body), headers, method=self.command)
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                    self._respond(response.status, response.headers, response.read())
            except urllib.error.HTTPError as error:
                with error:
                    self._respond(error.code, error.headers, error.read())

        do_GET = do_DELETE = do_POST  # noqa: N815  (the names of the base class)

        def _respond(self, status: int, headers: Any, body: bytes) -> None:
            content = body.replace(PREFIX.encode(), b"")
            self.send_response(status)
            self.send_header("Content-Type", headers.get("content-type") or "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002  (the name of the base class)
            pass

    server = _QuietServer(("127.0.0.1", 0), Relay)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def rename_request(body: bytes) -> bytes:
    """The request with the names that a gateway has for what it is about."""
    message = json.loads(body) if body else {}
    params = message.get("params") or {}
    match message.get("method"):
        case "tools/call":
            arguments = {"tool_id": f"{NAME}__{params['name']}", "arguments": params.get("arguments") or {}}
            message["params"] = {**params, "name": "call_tool", "arguments": arguments}
        case "prompts/get":
            params["name"] = f"{NAME}__{params['name']}"
        case "resources/read":
            params["uri"] = PREFIX + params["uri"]
        case "completion/complete":
            params["ref"]["name"] = f"{NAME}__{params['ref']['name']}"
        case _:
            return body
    return json.dumps(message).encode()


if __name__ == "__main__":
    main()
