"""Opening engines keeps the event loop free."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolscript.adapters.mcp import client
from toolscript.app.engines import Servers
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.ports.servers import OnLog


@pytest.mark.req("G-01")
async def test_the_mcp_package_is_imported_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    class Recorded:
        def __init__(self, *_: object) -> None:
            threads.append(threading.current_thread())

        @asynccontextmanager
        async def connect(self, spec: ServerSpec, *, within: float, on_log: OnLog) -> AsyncIterator[Any]:
            yield f"{spec.name} within {within}"

    monkeypatch.setattr(client, "McpServers", Recorded)
    opened: list[Any] = []
    async with Servers(1).connect(ServerSpec("files", Transport.STDIO, command="x"), within=2.0) as server:
        opened.append(server)
    assert opened == ["files within 2.0"]
    assert threads != [threading.main_thread()]
