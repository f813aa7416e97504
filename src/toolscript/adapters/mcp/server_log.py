"""The log of a connected server: lines of its standard error and the log messages that it sends, without secrets."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from itertools import takewhile
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.client.session import ClientSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolscript.adapters.mcp.lenient_reader import MIN_SECRET_LENGTH, find_secrets
from toolscript.adapters.mcp.stdio import MIN_LINE_BYTES, pass_on
from toolscript.domain.redaction import MARGIN, list_proxy_secrets, redact_secrets
from toolscript.domain.servers import ServerSpec
from toolscript.ports.servers import OnLog

MAX_LOG_CHARACTERS = 1000
MAX_NAME_CHARACTERS = 100
# A message can have as many megabytes as an answer, and a line takes up to 7 ms to redact: so much is looked at.
MAX_MESSAGE_CHARACTERS = 4000
MAX_MESSAGE_LINES = 20
MAX_LINES_PER_SECOND = 50
MAX_DEPTH = 20
MAX_BITS = 1000
# Servers send messages of this level and above. Those for debugging would push the others out of a log of 200 lines.
LEVEL: types.LoggingLevel = "info"


class ServerLog:
    """Passes lines on without the secrets of the server's configuration and of proxies, and without what looks like
    one."""

    def __init__(self, spec: ServerSpec, on_log: OnLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._on_log = on_log
        self._clock = clock
        proxies = (secret for variables in (os.environ, spec.env) for secret in list_proxy_secrets(variables))
        known = {*find_secrets(spec), *(secret for secret in proxies if len(secret) >= MIN_SECRET_LENGTH)}
        self._secrets = sorted(known, key=len, reverse=True)
        self._max_secret_length = len(self._secrets[0]) if self._secrets else 0
        self._line_characters = MAX_LOG_CHARACTERS + MARGIN + self._max_secret_length
        # More than is read of a line, so that it is known to be cut: a character has up to four bytes.
        self.line_bytes = max(MIN_LINE_BYTES, 4 * (self._line_characters + 1))
        self._second_began = clock()
        self._lines_of_second = 0
        self._messages_left_out = 0

    def redact(self, text: str) -> str:
        """Replaces the secrets of the configuration and of proxies by `***`."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def add_line(self, line: str) -> None:
        """Passes a line on, or its beginning."""
        self._on_log(self._redact_beginning(line, MAX_LOG_CHARACTERS))

    def add_message(self, params: Mapping[str, Any] | None) -> None:
        """Passes the lines of a log message on: `[warning] disk: almost full`. Long messages are cut, and only the
        first messages of a second are passed on. Never raises."""
        if not self._has_room():
            return
        message = params or {}
        level, logger = (self._read_name(message.get(name)) for name in ("level", "logger"))
        data, room = message.get("data"), MAX_MESSAGE_CHARACTERS + self._line_characters
        text = data if isinstance(data, str) else json.dumps(_JsonBeginning(room + 1).copy(data))
        lines = f"[{level or 'log'}] {logger}{': ' if logger else ''}{text[:room]}".split("\n")
        # A secret may be cut in two at the end of a part. `add_line` takes care of a line that is long enough for it.
        if len(text) > room and len(lines[-1]) <= self._line_characters:
            lines[-1] = "…"
        if len(lines) > MAX_MESSAGE_LINES:
            lines[MAX_MESSAGE_LINES - 1 :] = ["…"]
        self._lines_of_second += len(lines)
        pass_on([line.encode("utf-8", "replace") for line in lines], self.add_line, self.line_bytes)

    def _redact_beginning(self, text: str, length: int) -> str:
        """The first characters without secrets, and `…` if there are more. A secret that is cut in two is not
        recognized: so more is redacted than shown, and the end of that goes, as the rest may have become shorter."""
        window = text[: length + MARGIN + self._max_secret_length]
        known = self.redact(window)
        if len(window) < len(text):
            known = known[: len(known) - self._max_secret_length]
        is_cut = len(window) < len(text) or len(known) > length + MARGIN
        cleaned = redact_secrets(known[: length + MARGIN])
        if is_cut:
            return f"{cleaned[:-MARGIN][:length]}…"
        return cleaned if len(cleaned) <= length else f"{cleaned[:length]}…"

    def _read_name(self, name: object) -> str:
        return self._redact_beginning(name, MAX_NAME_CHARACTERS) if isinstance(name, str) else ""

    def _has_room(self) -> bool:
        """Whether this second has room for a message. The first one of the next second says how many had none."""
        now = self._clock()
        if now >= self._second_began + 1:
            if self._messages_left_out:
                self._on_log(f"[log] {self._messages_left_out} messages left out: too many in a second")
            self._second_began, self._lines_of_second, self._messages_left_out = now, 0, 0
        has_room = self._lines_of_second < MAX_LINES_PER_SECOND
        self._messages_left_out += not has_room
        return has_room


class _JsonBeginning:
    """Copies so much of a value that its JSON has at least `room` characters, or all of it."""

    def __init__(self, room: int) -> None:
        self._room = room

    def copy(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            value = value[: max(self._room, 0)]
            self._room -= len(value)
            return value
        self._room -= 1
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            return "a large number"
        if not isinstance(value, dict | list):
            return value
        if depth == MAX_DEPTH:
            return "nested too deeply"
        if isinstance(value, list):
            return [self.copy(each, depth + 1) for each in takewhile(self._has_room, value)]
        items = takewhile(self._has_room, value.items())
        return {self.copy(str(key)): self.copy(each, depth + 1) for key, each in items}

    def _has_room(self, _: object) -> bool:
        return self._room > 0


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
