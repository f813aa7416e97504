"""The MCP endpoint of the HTTP application.

Importing the MCP package takes a second, a third of a start. So the endpoint is opened in the background once the
application is ready, or by the first request to it. That request waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from toolscript.app.extras import IMPORTING_MCP
from toolscript.surfaces.http.input_limits import MAX_BODY_BYTES
from toolscript.surfaces.http.served_app import ServedApp


class McpEndpoint:
    """An ASGI application that serves MCP while its `run` lasts."""

    def __init__(self, served: ServedApp) -> None:
        self._served = served
        self._is_wanted = asyncio.Event()
        self._opened: asyncio.Future[ASGIApp] | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Accepts requests for as long as the block lasts."""
        self._opened = asyncio.get_running_loop().create_future()
        tasks = [asyncio.create_task(self._serve(self._opened)), asyncio.create_task(self._open_when_ready())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request. Raises RuntimeError outside of `run`, and what opening the endpoint raised."""
        if self._opened is None:
            raise RuntimeError("the MCP endpoint is not running")
        self._is_wanted.set()
        app = await asyncio.shield(self._opened)
        await app(scope, receive, send)

    async def _open_when_ready(self) -> None:
        await self._served.has_become_ready.wait()
        self._is_wanted.set()

    async def _serve(self, opened: asyncio.Future[ASGIApp]) -> None:
        await self._is_wanted.wait()
        try:
            endpoint = await asyncio.to_thread(self._build)
        except Exception as error:  # noqa: BLE001  (it belongs to the requests that wait)
            opened.set_exception(error)
            return
        async with endpoint.run():
            opened.set_result(endpoint.asgi_app)
            await asyncio.Event().wait()

    def _build(self) -> Any:
        with IMPORTING_MCP:
            from toolscript.surfaces.mcp.server import build_endpoint

        return build_endpoint(self._served.wait_until_open, MAX_BODY_BYTES, self._served.settings.page_secret)
