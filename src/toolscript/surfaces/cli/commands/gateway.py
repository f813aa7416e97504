"""`toolscript gateway`: every server behind one door, over HTTP and MCP, until told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolscript.configuration.files import Configuration
from toolscript.domain.errors import Invalid
from toolscript.domain.servers import ServerSpec, ServerState, ServerStatus
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli.client.catalogue import Known, configuration_of, digest_of, is_demo, load_demo
from toolscript.surfaces.cli.client.gateway import announced
from toolscript.surfaces.cli.commands.search import show
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.server_board import Board
from toolscript.surfaces.cli.terminal.text import marked, when_told_to_stop
from toolscript.surfaces.logs import configure_logging

if TYPE_CHECKING:
    from rich.console import Console

    from toolscript.app.app import App
    from toolscript.surfaces.http.server import HttpServer

# How many objects more there are before Python looks for circles among the new ones, and how often it looks among the
# others then: among those of ten thousand tools that takes a fifth of a second, during which nobody is answered.
SELDOM = 10_000, 50, 100
# How long a thread that computes may keep the others waiting. A search needs Python's lock some thirty times: with the
# usual 5 ms it takes a sixth of a second while another thread is at work, such as the one that looks at all tools anew.
SOON_SECONDS = 0.0002
SAMPLE = "put my changes into version control"
# A server that is slower than this is waited for in the background.
FIRST_ROUND_SECONDS = 9.0
# How soon, and how seldom at last, documents are tried again that could not be indexed.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 600.0

log = logging.getLogger(__name__)


@click.group()
def gateway() -> None:
    """Serve every configured MCP server behind one door."""


@gateway.command()
@options.config
@options.overrides("host", "--host", metavar="ADDRESS")
@options.overrides("port", "--port", metavar="N")
@options.model
@options.data_dir
def start(**flags: Any) -> None:
    """Connect to all configured servers and serve HTTP and MCP until interrupted.

    Reads ~/.toolscript.json and ./.toolscript.json, or the file of --config: one of ours, of Claude Desktop, Cursor or
    VS Code. An edit of it is taken over while running. With nothing configured a built-in demo catalogue is served.
    """
    settings = load_settings(**flags)
    configure_logging(settings.log_level)
    from rich.console import Console

    with asyncio.Runner(loop_factory=_quick_loop()) as runner:
        runner.run(_until_told(Run(settings, Console(highlight=False, soft_wrap=True))))


def _quick_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return None
    return uvloop.new_event_loop


async def _until_told(run: Run) -> None:
    gc.set_threshold(*SELDOM)
    sys.setswitchinterval(SOON_SECONDS)
    when_told_to_stop(run.server.stop)
    await run.until_stopped()


class Run:
    """One run of the gateway: takes the port, opens the application behind it, and follows the configuration."""

    def __init__(self, settings: Settings, console: Console) -> None:
        """Raises Invalid for a configuration that cannot be used, or an address that strangers could call."""
        self._settings = settings
        self._console = console
        self._began = time.monotonic()
        self._folder = Path.cwd()  # it may be gone by the time that a file in it changes
        self._configuration = configuration_of(settings, self._folder)
        self._stamps = _stamps(self._configuration)
        self.server = _http_server(settings)

    async def until_stopped(self) -> None:
        """Serves until the server is stopped, or this is cancelled."""
        serving = asyncio.create_task(self.server.run())
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait({serving, work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.server.stop()
            work.cancel()
            ended = await asyncio.gather(work, serving, return_exceptions=True)
        for fault in ended:
            if isinstance(fault, Exception):
                raise fault

    async def _work(self) -> None:
        from toolscript.app.app import open_app

        async with open_app(self._settings, serving=True) as app:
            self.server.served.current = app
            with announced(self._settings.data, self.server.url, self._settings.config, key=app.local_key):
                await self._serve(app)

    async def _serve(self, app: App) -> None:
        app.gateway.watch(self._remember)
        if is_demo(self._configuration):
            await self._serve_demo(app)
        else:
            await self._connect(app)
        self.server.served.mark_ready()
        url = self.server.url
        self._console.print(f"\nServing {url}   try {url}/search?q=read+a+file   MCP at {url}/mcp   Ctrl-C stops")
        following = app.gateway.follow(self._stamps, lambda: _stamps(self._configuration), self._reloaded)
        await asyncio.gather(following, app.snapshots.warm_up(), _finish_documents(app))

    async def _serve_demo(self, app: App) -> None:
        from toolscript.surfaces.json.tools import build_search_response

        with self._console.status("Indexing the demo catalogue"):
            await load_demo(app)
        indexed = await app.count_indexed_tools()
        self._console.print(f'No servers are configured. Searching {indexed} demo tools for "{SAMPLE}":\n')
        found = await app.tool_search.search(
            SAMPLE, limit=self._settings.search_limit, threshold=self._settings.search_threshold
        )
        show(build_search_response(found))

    async def _connect(self, app: App) -> None:
        board = Board(self._console)
        app.gateway.watch(board.update)
        if self._console.is_terminal and self._settings.log_level == "warning":
            told_already = logging.getLogger("toolscript.services.catalogue.gateway")
            told_already.addFilter(lambda record: record.getMessage() != "server_failed")  # the board tells that
        specs = self._configuration.servers
        held = Known(self._settings.data).read()
        with board.shown():
            await app.gateway.apply(specs)
            if all(held.get(s.name) == digest_of(s) for s in specs):
                self.server.served.mark_ready()  # the catalogue of the last run is theirs, and calls wait for them
            await app.gateway.settle(FIRST_ROUND_SECONDS)
        ready = sum(s.state is ServerState.READY for s in app.gateway.statuses)
        took = time.monotonic() - self._began
        self._console.print(f"{ready} of {len(specs)} servers ready after {took:.1f} s")
        for status in app.gateway.statuses:
            if status.state is ServerState.CONNECTING:
                told = marked(f"{status.name}  {status.reason or 'no answer yet'}")
                self._console.print(f"[yellow]waiting[/]  {told}; this goes on in the background")

    def _reloaded(self) -> tuple[ServerSpec, ...]:
        self._configuration = configuration_of(self._settings, self._folder)
        names = ", ".join(s.name for s in self._configuration.servers) or "none"
        self._console.print(f"configuration changed; servers: {marked(names)}")
        return self._configuration.servers

    def _remember(self, status: ServerStatus) -> None:
        if status.state is ServerState.READY:
            current = {s.name: digest_of(s) for s in self._configuration.servers}
            known = Known(self._settings.data)
            held = {name: digest for name, digest in known.read().items() if current.get(name) == digest}
            known.write({**held, **({status.name: current[status.name]} if status.name in current else {})})


async def _finish_documents(app: App) -> None:
    """Finishes what a gateway before this one had no time for, however often it takes. Documents must not keep tools
    from being served, whatever is wrong with them."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            if finished := await app.ingest_documents.repair():
                log.info("documents_finished", extra={"documents": finished})
            if app.model.embedder is None or not await app.documents.list_pending():
                return
        except Exception as error:  # noqa: BLE001
            log.warning("documents_unfinished", extra={"reason": f"{type(error).__name__}: {error}"})
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _http_server(settings: Settings) -> HttpServer:
    try:
        from toolscript.surfaces.http.guard import is_loopback
        from toolscript.surfaces.http.server import HttpServer
    except ImportError as error:
        raise Invalid("serving HTTP needs an extra that is not installed: pip install 'toolscript[server]'") from error
    if not is_loopback(settings.host) and not settings.api_key:
        raise Invalid(
            f"--host {settings.host} is not a loopback address, and nothing would keep strangers out: use 127.0.0.1, "
            "or set a key in TOOLSCRIPT_API_KEY",
            details={"field": "--host", "allowed": ["127.0.0.1", "localhost", "::1"]},
        )
    return HttpServer(settings)


def _stamps(configuration: Configuration) -> list[tuple[int, int] | None]:
    """What changes when a configuration file does."""
    stamps: list[tuple[int, int] | None] = []
    for file in configuration.files:
        try:
            about = file.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((about.st_mtime_ns, about.st_size))
    return stamps
