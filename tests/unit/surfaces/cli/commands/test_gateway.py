"""One run of the gateway, without its server."""

from __future__ import annotations

import asyncio
import threading
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from toolscript.domain.errors import Unavailable
from toolscript.settings import load_settings
from toolscript.surfaces.cli import main
from toolscript.surfaces.cli.commands import gateway
from toolscript.surfaces.cli.commands.gateway import GatewayRun
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("G-03")


async def test_the_record_of_the_catalogue_is_written_on_the_loop_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that become ready write it there, too; a thread of its own would lose one of two changes."""
    writers: list[threading.Thread] = []
    monkeypatch.setattr(gateway, "_create_http_server", lambda each: SimpleNamespace(served=ServedApp(each)))
    monkeypatch.setattr(gateway, "write_record", lambda *_: writers.append(threading.current_thread()))
    (tmp_path / "servers.json").write_text('{"mcpServers": {"good": {"command": "true"}}}')
    settings = load_settings(variables={}, data_dir=tmp_path / "data", config=tmp_path / "servers.json")
    run = GatewayRun(settings, Console(quiet=True))
    (spec,) = await asyncio.to_thread(run._reload, asyncio.get_running_loop())
    assert spec.name == "good"
    async with asyncio.timeout(30):
        while not writers:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert writers == [threading.current_thread()]


@pytest.mark.req("A-06")
async def test_requests_find_an_application_that_knows_its_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that wait for the application go on as soon as it is there, before a server is connected."""
    seen: list[list[str]] = []

    class Served(ServedApp):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "current" and value is not None:
                seen.append(value.servers.gateway.starting)
            super().__setattr__(name, value)

    monkeypatch.setattr(
        gateway, "_create_http_server", lambda each: SimpleNamespace(served=Served(each), url="http://127.0.0.1:9")
    )
    (tmp_path / "servers.json").write_text('{"mcpServers": {"good": {"command": "true"}}}')
    settings = load_settings(
        variables={}, data_dir=tmp_path / "data", config=tmp_path / "servers.json", search_model="hashed-64"
    )
    run = GatewayRun(settings, Console(quiet=True))
    work = asyncio.create_task(run._work())
    async with asyncio.timeout(30):
        await run.server.served.wait_until_open()
    await run.pipes.close()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert seen == [["good"]]


@pytest.mark.req("A-06")
@pytest.mark.parametrize("serves_agents_alone", [False, True])
async def test_a_gateway_without_a_socket_serves_http_and_ends_if_it_is_for_agents_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serves_agents_alone: bool
) -> None:
    monkeypatch.setattr(gateway, "_create_http_server", lambda each: SimpleNamespace(served=ServedApp(each)))
    (tmp_path / "data" / "gateway.sock").mkdir(parents=True)
    settings = load_settings(variables={}, data_dir=tmp_path / "data", search_model="hashed-64")
    console = Console(file=StringIO(), width=500)
    run = GatewayRun(settings, console, serves_agents_alone=serves_agents_alone)
    if serves_agents_alone:
        with pytest.raises(Unavailable, match="cannot listen for `toolscript mcp` on"):
            await run._open_pipes()
        return
    await run._open_pipes()
    assert "Agents cannot use `toolscript mcp`: cannot listen" in console.file.getvalue()  # type: ignore[attr-defined]


class PanicException(BaseException):
    """As pyo3 raises it when a library in Rust panics."""


@pytest.mark.req("X-12")
@pytest.mark.parametrize("where", ["_work", "server"])
async def test_a_panic_of_a_library_does_not_end_the_gateway_with_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async def panic() -> None:
        raise PanicException("index out of bounds")

    async def wait() -> None:
        await stopped.wait()

    stopped = asyncio.Event()
    server = SimpleNamespace(run=panic if where == "server" else wait, stop=stopped.set)
    monkeypatch.setattr(gateway, "_create_http_server", lambda each: SimpleNamespace(served=ServedApp(each)))
    settings = load_settings(variables={}, data_dir=tmp_path / "data")
    run = GatewayRun(settings, Console(quiet=True))
    monkeypatch.setattr(run, "server", server)
    monkeypatch.setattr(run, "_work", panic if where == "_work" else wait)
    async with asyncio.timeout(30):
        with pytest.raises(PanicException):
            await run.serve()


@pytest.mark.req("X-12")
def test_a_command_that_panics_prints_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(_: object) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr(main, "import_module", panic)
    monkeypatch.delitem(main.run.commands, "list-tools", raising=False)  # another test may have used it
    outcome = CliRunner().invoke(main.run, ["list-tools"])
    assert outcome.exit_code == 1
    assert "error: PanicException: index out of bounds. This is a bug in Toolscript" in outcome.output
