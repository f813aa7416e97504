"""The states of the servers as server-sent events: the whole list, whenever it has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from pydantic_core import to_json

from toolscript.app.app import App
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.json.servers import ServerListResponse, build_servers_response

MEDIA_TYPE = "text/event-stream"
POLL_SECONDS = 0.5
# Proxies close connections on which nothing happens; and a client that has gone is noticed by writing to it.
ALIVE_SECONDS = 15.0
# They count down: a change of them alone is no news.
COUNTDOWNS = ("retryInSeconds", "callsPausedSeconds")


async def describe_servers(app: App) -> ServerListResponse:
    """The response of `GET /servers`."""
    warnings = await app.tools.overviews.list_warnings()
    return build_servers_response(app.servers.gateway.statuses, app.servers.gateway.configuration_error, warnings)


async def stream_servers(served: ServedApp) -> AsyncIterator[bytes]:
    """Yields an event with the list of servers now, and after each change, until the gateway stops or serves another
    application."""
    app, sent, silent = served.app, None, 0.0
    while served.current is app and not served.is_stopping.is_set():
        current = await describe_servers(app)
        news = {
            **current,
            "servers": [{k: v for k, v in each.items() if k not in COUNTDOWNS} for each in current["servers"]],
        }
        if news != sent:
            sent, silent = news, 0.0
            yield b"event: servers\ndata: " + to_json(current) + b"\n\n"
        elif silent >= ALIVE_SECONDS:
            silent = 0.0
            yield b": alive\n\n"
        silent += POLL_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await served.is_stopping.wait()
