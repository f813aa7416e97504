"""The log of a connected server: lines of its standard error and the log messages that it sends, without secrets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.client.session import ClientSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolscript.adapters.mcp.lenient_reader import find_secrets
from toolscript.adapters.mcp.stdio import MIN_LINE_BYTES, pass_on
from toolscript.domain.redaction import redact_secrets
from toolscript.domain.servers import ServerSpec
from toolscript.ports.servers import OnLog

MAX_LOG_CHARACTERS = 1000
MAX_NAME_CHARACTERS = 100
# Servers send messages of this level and above. Those for debugging would push the others out of a log of 200 lines.
LEVEL: types.LoggingLevel = "info"


class ServerLog:
    """Passes lines on without the secrets of the server's configuration, and without what looks like one."""

    def __init__(self, spec: ServerSpec, on_log: OnLog) -> None:
        self._on_log = on_log
        self._secrets = sorted(find_secrets(spec), key=len, reverse=True)
        sizes = [len(secret.encode("utf-8", "replace")) for secret in self._secrets]
        # So long that a secret which is cut in two lies behind what is shown of the line.
        self.line_bytes = max(MIN_LINE_BYTES, max(sizes, default=0) + 4 * MAX_LOG_CHARACTERS)

    def redact(self, text: str) -> str:
        """Replaces the secrets of the configuration by `***`."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def add_line(self, line: str) -> None:
        """Passes a line on. It is cut last: a part of a secret would not be recognized."""
        text = redact_secrets(self.redact(line))
        self._on_log(text if len(text) <= MAX_LOG_CHARACTERS else f"{text[:MAX_LOG_CHARACTERS]}…")

    def add_message(self, params: Mapping[str, Any] | None) -> None:
        """Passes the lines of a log message on: `[warning] disk: almost full`. Never raises."""
        message = params or {}
        data = message.get("data")
        try:
            text = data if isinstance(data, str) else json.dumps(data)
        except (ValueError, RecursionError):
            text = "a message that is nested too deeply"
        level, logger = (self._shorten_name(str(message.get(name) or "")) for name in ("level", "logger"))
        whole = f"[{level or 'log'}] {logger}{': ' if logger else ''}{text}"
        pass_on(whole.encode("utf-8", "replace").split(b"\n"), self.add_line, self.line_bytes)

    def _shorten_name(self, name: str) -> str:
        """Cut last, as lines are."""
        return redact_secrets(self.redact(name[: self.line_bytes]))[:MAX_NAME_CHARACTERS]


def request_messages(stack: AsyncExitStack, session: ClientSession) -> None:
    """Asks a server that offers logging for its messages. Nothing waits for the answer: a server that owes it can be
    used all the same. Since 2026-07-28 each request asks for them, and the session does that."""
    offered = session.server_capabilities
    if not offered or offered.logging is None or session.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return

    async def ask() -> None:
        with suppress(MCPError, RuntimeError, ValueError):
            request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=LEVEL))
            await session.send_request(request, types.EmptyResult)

    stack.callback(asyncio.create_task(ask(), name="level of the log").cancel)
