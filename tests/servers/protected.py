"""An MCP server of the official SDK that wants the tokens of an authorization server: the one of `http_server`, behind
a check of JWTs as RFC 9068 describes it.

`python protected.py OPTIONS` prints one line of JSON that says where it listens, and ends with its input. OPTIONS is
JSON with `issuer`, and optionally `audience` (the one it accepts, instead of its own), `resource` and `listed_issuer`
(what its metadata says instead of the truth), `hint` (false: no metadata address in the 401), `moved_to` (where /moved
redirects to) and `port`. Calls of the tool `grow` need the scope `tools:write`; with `strict` everything does.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from typing import Any

import jwt
import uvicorn
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.servers.http_server import _end_with_input as end_with_input
from tests.servers.http_server import make_server


class JwtGuard:
    """Lets requests with a valid token through."""

    def __init__(self, app: ASGIApp, root: str, options: dict[str, Any]) -> None:
        self._app = app
        self._root = root
        self._options = options
        self._keys = jwt.PyJWKClient(f"{options['issuer']}/jwks")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, options = scope["path"], self._options
        if path.startswith("/.well-known/oauth-protected-resource/"):
            resource = options.get("resource") or f"{self._root}/{path.rpartition('/')[2]}"
            listed = options.get("listed_issuer") or options["issuer"]
            body = {"resource": resource, "authorization_servers": [listed], "scopes_supported": ["tools:read"]}
            await JSONResponse(body)(scope, receive, send)
            return
        if path == "/moved":
            await RedirectResponse(options["moved_to"], 307)(scope, receive, send)
            return
        body_bytes, receive = await _buffer(receive)
        refusal = self._refuse(path, dict(scope["headers"]), body_bytes)
        await (refusal or self._app)(scope, receive, send)

    def _refuse(self, path: str, headers: dict[bytes, bytes], body: bytes) -> Response | None:
        endpoint = "sse" if path in {"/sse", "/messages/"} else "mcp"
        metadata = f'resource_metadata="{self._root}/.well-known/oauth-protected-resource/{endpoint}"'
        hint = f"{metadata}, " if self._options.get("hint", True) else ""
        token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
        try:
            claims = jwt.decode(
                token,
                self._keys.get_signing_key_from_jwt(token),
                algorithms=["RS256"],
                audience=self._options.get("audience") or f"{self._root}/{endpoint}",
                issuer=self._options["issuer"],
            )
        except jwt.PyJWTError as error:
            challenge = f'Bearer {hint}error="invalid_token"'
            return JSONResponse({"error": type(error).__name__}, 401, {"WWW-Authenticate": challenge})
        needs_more = self._options.get("strict") or b'"grow"' in body
        if needs_more and "tools:write" not in claims["scope"].split():
            challenge = f'Bearer {hint}error="insufficient_scope", scope="tools:write"'
            return JSONResponse({"error": "more scopes"}, 403, {"WWW-Authenticate": challenge})
        return None


async def _buffer(receive: Receive) -> tuple[bytes, Receive]:
    """The body of a request, and a `receive` that gives it again."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return body, again


def main() -> None:
    options = json.loads(sys.argv[1])
    server = make_server()
    both = server.streamable_http_app()
    both.router.routes.extend(server.sse_app().routes)
    listening = socket.create_server(("127.0.0.1", options.get("port", 0)))
    port = listening.getsockname()[1]
    root = f"http://127.0.0.1:{port}"
    where = {"http": f"{root}/mcp", "sse": f"{root}/sse", "moved": f"{root}/moved", "port": port}
    sys.stdout.write(json.dumps(where) + "\n")
    sys.stdout.flush()
    threading.Thread(target=end_with_input, daemon=True).start()
    uvicorn.Server(uvicorn.Config(JwtGuard(both, root, options), log_level="critical")).run(sockets=[listening])


if __name__ == "__main__":
    main()
