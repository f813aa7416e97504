"""A real MCP server of the official SDK on a loopback port: streamable HTTP at /mcp, and the older SSE at /sse.

`python http_server.py [--port N] [--key KEY]` prints one line of JSON that says where it listens, and ends with its
input. `tests.servers.serving_http` runs one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import threading
from collections import Counter

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send


def make_server() -> MCPServer[None]:
    """Tools that show what arrived, and one that changes the list of tools."""
    server: MCPServer[None] = MCPServer("web", version="1.0.0", log_level="CRITICAL")

    @server.tool()
    async def echo(text: str) -> dict[str, str]:
        """Returns its arguments, structured."""
        return {"text": text}

    @server.tool()
    async def authorization(context: Context) -> dict[str, str | None]:
        """Returns the Authorization header that came with the call."""
        return {"value": (context.headers or {}).get("authorization")}

    add_long_tools(server)

    @server.tool()
    async def note(text: str, context: Context) -> str:
        """Sends a log message."""
        await context.log("warning", {"text": text}, logger_name="disk")  # pyright: ignore[reportDeprecated]
        return "noted"

    @server.tool()
    async def grow(name: str, context: Context) -> str:
        """Adds a tool of that name, and says that the list of tools changed."""

        async def report() -> str:
            return f"{name} was added"

        server.add_tool(report, name=name, description=f"A tool that was added later: {name}")
        await context.notify_tools_changed()  # to clients of protocol 2026-07-28
        await context.session.send_tool_list_changed()  # to those before
        return f"{name} is there"

    @server.prompt()
    async def greet(who: str) -> str:
        """Greet somebody."""
        return f"Greet {who}."

    @server.resource("memo://welcome")
    async def welcome() -> str:
        """A first memo."""
        return "Welcome."

    return server


def add_long_tools(server: MCPServer[None]) -> None:
    """Adds tools that report progress, and that can be cancelled."""
    cancelled = Counter[str]()

    @server.tool()
    async def count(steps: int, context: Context) -> str:
        """Reports its progress at every step."""
        for step in range(1, steps + 1):
            await context.report_progress(step, steps, f"step {step}")
        return "counted"

    @server.tool()
    async def slow(seconds: float) -> str:
        """Answers after some seconds, unless it is cancelled."""
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            cancelled["notifications/cancelled"] += 1
            raise
        return f"It took {seconds} s."

    @server.tool()
    async def seen() -> dict[str, int]:
        """Returns how many calls were cancelled so far."""
        return dict(cancelled)


class Guard:
    """Answers 401 to requests without the key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != self._expected:
            refusal = JSONResponse({"error": "The key is wrong"}, 401, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _end_with_input() -> None:
    """Ends the process when its standard input ends, so that it does not outlive the test."""
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key")
    options = parser.parse_args()
    server = make_server()
    both = server.streamable_http_app()
    both.router.routes.extend(server.sse_app().routes)
    app: ASGIApp = Guard(both, options.key) if options.key else both
    listening = socket.create_server(("127.0.0.1", options.port))
    port = listening.getsockname()[1]
    root = f"http://127.0.0.1:{port}"
    sys.stdout.write(json.dumps({"http": f"{root}/mcp", "sse": f"{root}/sse", "port": port}) + "\n")
    sys.stdout.flush()
    threading.Thread(target=_end_with_input, daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])


if __name__ == "__main__":
    main()
