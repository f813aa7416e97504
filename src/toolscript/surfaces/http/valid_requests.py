"""Ends requests when their key is revoked, or expires, while they are being answered: streams, subscriptions, slow
calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscript.domain.errors import ToolscriptError, Unauthorized
from toolscript.surfaces.http.errors import error_response

# With the second for which keys are kept, less than the two seconds that the guide promises.
CHECK_SECONDS = 0.5

Check = Callable[[], Awaitable[object]]


async def run_while_valid(app: ASGIApp, scope: Scope, receive: Receive, send: Send, check: Check) -> None:
    """Runs the request until `check` raises Unauthorized. Its client gets that error, or if it has a part of the
    response already, the end of the connection."""
    request = asyncio.current_task()
    assert request  # noqa: S101  (coroutines run in tasks)
    reason: ToolscriptError | None = None
    is_started = False

    async def send_and_note(message: Message) -> None:
        nonlocal is_started
        is_started = True
        await send(message)

    async def watch() -> None:
        nonlocal reason
        while True:
            try:
                await check()
            except Unauthorized as error:
                reason = error
                request.cancel()
                return
            except ToolscriptError:
                pass  # keys cannot be read right now: the last ones stay valid
            await asyncio.sleep(CHECK_SECONDS)

    watching: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    timer = loop.call_later(CHECK_SECONDS, lambda: watching.append(loop.create_task(watch())))  # most end before
    try:
        await app(scope, receive, send_and_note)
    except asyncio.CancelledError:
        if reason is None or request.uncancel():
            raise
        if not is_started:
            await error_response(reason)(scope, receive, send)
    finally:
        timer.cancel()
        for task in watching:
            task.cancel()
