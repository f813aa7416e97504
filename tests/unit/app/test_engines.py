"""Opening engines keeps the event loop free."""

from __future__ import annotations

import subprocess
import sys
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


IMPORT_AT_ONCE = """
import threading
from toolscript.app.engines import Servers
from toolscript.domain.servers import Transport
from toolscript.settings import load_settings
from toolscript.surfaces.http.mcp_endpoint import McpEndpoint
from toolscript.surfaces.http.served_app import ServedApp

endpoint = McpEndpoint(ServedApp(load_settings(variables={})))
work = [lambda: Servers(1)._import(Transport.HTTP), lambda: Servers(1)._import(Transport.OPENAPI), endpoint._build]
threads = [threading.Thread(target=each) for each in work]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
@pytest.mark.req("G-02", "O-01")
def test_servers_of_several_kinds_and_the_endpoint_import_the_mcp_package_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_AT_ONCE], capture_output=True, text=True, check=True)
    assert done.stderr == "", "a thread that fails says so"
