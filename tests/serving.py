"""An application on a real port, as callers reach it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolscript.app import App
from toolscript.surfaces.http.serve import HttpServer


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[str]:
    """The address of the application, for as long as the block lasts."""
    server = HttpServer(app.settings)
    server.serving.opened = app
    server.serving.be_ready()
    running = asyncio.create_task(server.run())
    try:
        yield server.url
    finally:
        server.stop()
        await running
