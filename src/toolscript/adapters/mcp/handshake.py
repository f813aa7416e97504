"""The first messages between us and a server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.client.session import ClientSession
from mcp.client.subscriptions import listen

log = logging.getLogger(__name__)


async def refuse(*_: Any, **__: Any) -> types.ErrorData:
    """Makes the SDK declare what our callers may be able to do: servers hide tools from clients that cannot be asked.
    The dispatcher answers the requests themselves."""
    return types.ErrorData(code=types.INVALID_REQUEST, message="not supported")


async def initialize(session: ClientSession, may_be_lost: Callable[[MCPError], bool]) -> None:
    """Does the classic handshake; a server that refuses it gets the newer discovery."""
    try:
        await session.initialize()
    except MCPError as refused:
        if may_be_lost(refused):
            raise
        try:
            await session.discover()
        except (MCPError, RuntimeError, ValueError):  # ValueError: its answer is no discovery
            raise refused from None


async def subscribe_to_lists(stack: AsyncExitStack, session: ClientSession) -> None:
    """Has the server report changes of its lists, until the stack is closed."""
    try:
        await stack.enter_async_context(
            listen(session, tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
        )
    except (MCPError, RuntimeError) as error:
        log.info("no_change_notices", extra={"reason": str(error)})
