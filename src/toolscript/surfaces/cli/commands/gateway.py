"""`toolscript gateway`: serves all configured servers over HTTP and MCP until it is stopped."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolscript.configuration.files import Configuration
from toolscript.configuration.snippets import ConfigurationPlace
from toolscript.domain.errors import Invalid, ToolscriptError, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.servers import ServerSpec, ServerState, ServerStatus
from toolscript.pipe.place import GATEWAY, HAS_PIPES, locate_socket, lock_folder
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.announcement import FILE as ANNOUNCEMENT_FILE
from toolscript.surfaces.cli.client.announcement import announce_gateway, make_absolute
from toolscript.surfaces.cli.client.catalogue import (
    choose_catalogue,
    compute_digests,
    load_demo,
    read_configuration,
    read_record,
    retire_renamed,
    write_record,
)
from toolscript.surfaces.cli.client.gateway import find_running_gateway
from toolscript.surfaces.cli.client.port_owner import describe_port_owner
from toolscript.surfaces.cli.client.session import read_settings, wait_for_folder
from toolscript.surfaces.cli.client.shutdown import on_stop_signal
from toolscript.surfaces.cli.commands import gateway_control
from toolscript.surfaces.cli.commands.search import show
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.server_board import Board
from toolscript.surfaces.cli.terminal.tables import open_console
from toolscript.surfaces.cli.terminal.text import escape_markup, format_count

if TYPE_CHECKING:
    from rich.console import Console

    from toolscript.app.app import App
    from toolscript.surfaces.http.server import HttpServer

# Garbage collection of the oldest generation takes 0.2 s with ten thousand tools, and no request is answered meanwhile:
# Python's default thresholds (700, 10, 10) run it too often.
GC_THRESHOLDS = 10_000, 50, 100
# A search needs the interpreter lock some 30 times. With Python's default of 5 ms it takes 150 ms while another thread
# computes, for instance a sync.
SWITCH_INTERVAL_SECONDS = 0.0002
# glibc gives threads up to eight heaps a core, and each keeps what was freed in it: a gateway whose servers list new
# tools all the time needed twice the memory for each of them.
MAX_HEAPS, M_ARENA_MAX = 2, -8
SAMPLE = "put my changes into version control"
# Slower servers connect in the background.
FIRST_CONNECT_SECONDS = 9.0
# How often the demo looks for a configuration.
POLL_SECONDS = 1.0
# How often a gateway records that it uses its configuration.
RENEW_SECONDS = 3600.0

log = logging.getLogger(__name__)


@click.group(cls=CommandGroup)
def gateway() -> None:
    """Serve all configured MCP servers as one."""


for command in (gateway_control.status, gateway_control.stop):
    gateway.add_command(command)


@gateway.command()
@options.config
@options.overrides("host", "--host", metavar="ADDRESS")
@options.overrides("port", "--port", metavar="N")
@options.overrides("read_only", "--read-only", is_flag=True, flag_value="true")
@options.overrides("require_key", "--require-key", is_flag=True, flag_value="true")
@options.model
@options.data_dir
def start() -> None:
    """Connect to all configured servers and serve HTTP and MCP until interrupted.

    Reads ~/.toolscript.json and ./.toolscript.json, or the file of --config. It may be a configuration of Claude
    Desktop, Cursor or VS Code. Changes of the file are applied while running. Without any configuration, a built-in
    demo catalogue is served.
    """
    settings = read_settings(is_service=True)
    if running := find_running_gateway(settings):
        raise Unavailable(
            f"a gateway already runs on {settings.data}: {running.describe()}. Use it, stop it with "
            "`toolscript gateway stop`, or choose another folder with --data-dir",
            details={"folder": str(settings.data), "url": running.url, "pid": running.pid},
        )
    run = GatewayRun(settings, open_console(soft_wrap=True))
    _lock_data_folder(settings)
    run_gateway(run)


def _lock_data_folder(settings: Settings) -> None:
    """Keeps the folder for this process until it ends. Until then agents start no other gateway."""
    details = {"folder": str(settings.data)}
    try:
        lock = lock_folder(str(settings.data), GATEWAY)
    except OSError as error:
        problem = f"cannot use the data folder {settings.data}: {error.strerror}"
        raise Unavailable(f"{problem}. Choose another one with --data-dir", details=details) from error
    if lock is None:
        problem = f"another gateway is starting on {settings.data}"
        raise Unavailable(f"{problem}: use it, or choose another folder with --data-dir", details=details)


def run_gateway(run: GatewayRun, watch: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
    """Runs a gateway until it is stopped by a signal, or by what watches it."""
    with asyncio.Runner(loop_factory=_find_uvloop()) as runner:
        runner.run(_run_until_stopped(run, watch))


def _find_uvloop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # it does not exist for Windows
        return None
    return uvloop.new_event_loop


async def _run_until_stopped(run: GatewayRun, watch: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    gc.set_threshold(*GC_THRESHOLDS)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another libc than glibc
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, MAX_HEAPS)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    on_stop_signal(run.stop)
    watching = asyncio.create_task(watch()) if watch else None
    await run.serve()
    if watching:
        watching.cancel()


class GatewayRun:
    """One run of the gateway: binds the port, opens the application, and watches the configuration."""

    def __init__(self, settings: Settings, console: Console, *, serves_agents_alone: bool = False) -> None:
        """For agents alone, it ends when they cannot reach it. Raises Invalid for an invalid configuration, or a public
        address without an API key; Unavailable when the data folder cannot be used."""
        self._given = settings
        self._console = console
        self._serves_agents_alone = serves_agents_alone
        self._started = time.monotonic()
        self._folder = Path.cwd()  # the folder may be deleted while the gateway runs
        self._choose()
        file = settings.data / ANNOUNCEMENT_FILE
        if file.is_dir():
            raise Unavailable(
                f"{file} is a folder, and the gateway writes a file of that name: remove it, or choose another folder "
                "with --data-dir",
                details={"path": str(file)},
            )
        self.server = _create_http_server(settings)
        from toolscript.surfaces.mcp.pipe_server import PipeServer, build_accept

        accept = build_accept(self.server.served.wait_until_open, settings.data, make_absolute(settings.config))
        self.pipes = PipeServer(
            Path(locate_socket(str(settings.data), GATEWAY)), settings.data, accept, settings.page_secret
        )

    def is_used(self) -> bool:
        """Whether an agent or another client is connected."""
        return self.pipes.is_used or self.server.is_used

    def stop(self) -> None:
        """Lets `serve` end."""
        self.pipes.refuse_new()
        self.server.stop()

    async def serve(self) -> None:
        """Serves until the server is stopped, or the task is cancelled."""
        serving = asyncio.create_task(self.server.run())
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait({serving, work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.server.stop()
            await self.pipes.close()
            work.cancel()
            results = await asyncio.gather(work, serving, return_exceptions=True)
        for error in results:
            # Also what is no Exception: a panic of a library in Rust must not look like a normal stop.
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error

    async def _open_app(self, stack: AsyncExitStack) -> App:
        from toolscript.app.app import open_app

        return await stack.enter_async_context(open_app(self._settings, serving=True, demo=self._choice.is_demo))

    async def _work(self) -> None:
        while True:
            async with AsyncExitStack() as stack:
                app = await wait_for_folder(partial(self._open_app, stack))
                app.access.profiles.replace(self._configuration.profiles)
                self.server.served.place = ConfigurationPlace(
                    self._settings.config, Path.home(), self._choice.folder, os.environ
                )
                if self._choice.is_demo:
                    with self._console.status("Indexing the demo catalogue"):
                        await load_demo(app)
                else:
                    app.servers.gateway.expect(self._configuration.servers, listed=self._choice.record.servers)
                self.server.served.current = app
                with announce_gateway(self._settings, self.server.url, key=app.access.local_key):
                    await self._open_pipes()
                    await self._connect_and_watch(app)
                self.server.served.current = None  # the demo has ended

    async def _open_pipes(self) -> None:
        """Begins to serve agents. Where the data folder can have no sockets, HTTP is served all the same."""
        if not HAS_PIPES:
            return
        try:
            await self.pipes.open()
        except Unavailable as error:
            if self._serves_agents_alone:
                raise
            self._console.print(f"Agents cannot use `toolscript mcp`: {error.message}", markup=False)

    async def _connect_and_watch(self, app: App) -> None:
        """Serves until cancelled; the demo only until servers are configured."""
        if self._choice.is_demo:
            await self._serve_demo(app)
        else:
            app.servers.gateway.watch(self._record)
            await self._connect(app)
        self.server.served.mark_ready()
        url = self.server.url
        await self._announce_access(app)
        for language, state in app.code.states.items():
            if language in self._settings.code and language not in app.code.languages:
                self._console.print(f"[yellow]warning[/]  {escape_markup(f'programs in {language}: {state}')}")
        self._console.print(f"\nServing {url}   open it in a browser   MCP at {url}/mcp   Ctrl-C stops")
        background = asyncio.gather(_warm_up(app), _finish_documents(app), _repair_knowledge(app))
        try:
            if self._choice.is_demo:
                await self._wait_for_configuration(app)
                return
            loop = asyncio.get_running_loop()
            following = app.servers.gateway.follow(
                self._stamps, lambda: _read_stamps(self._configuration), lambda: self._reload(loop)
            )
            await asyncio.gather(background, following, _renew_configuration(app))
        finally:
            background.cancel()
            await asyncio.gather(background, return_exceptions=True)

    def _choose(self) -> None:
        """Reads the configuration. Raises Invalid or Unavailable."""
        self._choice = choose_catalogue(self._given, self._folder, switching=True)
        self._settings, self._configuration = self._choice.settings, self._choice.configuration
        self._stopped: Mapping[str, str] = self._choice.record.stopped
        self._stamps = _read_stamps(self._configuration)

    async def _wait_for_configuration(self, app: App) -> None:
        """Returns when a configuration file has appeared."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if _read_stamps(self._configuration) == self._stamps:
                continue
            try:
                self._choose()
            except (Invalid, Unavailable) as error:
                self._stamps = _read_stamps(self._configuration)
                app.servers.gateway.configuration_error = error.message
                log.warning("configuration_not_applied", extra={"reason": error.message})
            if not self._choice.is_demo:
                return

    async def _announce_access(self, app: App) -> None:
        """Says who needs no key, and who may search knowledge, where other requests need a key."""
        from toolscript.surfaces.callers import requires_key
        from toolscript.surfaces.owner import admits_owner

        with suppress(Unavailable):  # the store: the requests say so
            if not requires_key(self._settings) and not await app.access.keys.exist():
                return
        if admits_owner(self._settings):
            self._console.print(
                "Programs and pages of this machine need no key, all others do. --require-key asks them, too"
            )
        if self._settings.knowledge_public:
            self._console.print(
                f"[yellow]Knowledge is public:[/] everyone who can reach {self._settings.host} may search it without a "
                "key. Unset TOOLSCRIPT_KNOWLEDGE_PUBLIC to require one"
            )
        else:
            self._console.print(
                "Knowledge needs a key with the scope knowledge. TOOLSCRIPT_KNOWLEDGE_PUBLIC=true makes it public"
            )

    async def _serve_demo(self, app: App) -> None:
        from toolscript.surfaces.json.tools import build_search_response

        indexed = await app.count_indexed_tools()
        self._console.print(f'No servers are configured. Searching {indexed} demo tools for "{SAMPLE}":\n')
        found = await app.tools.search.search(
            SAMPLE, limit=self._settings.search_limit, threshold=self._settings.search_threshold, recorded=False
        )
        show(build_search_response(found))

    async def _connect(self, app: App) -> None:
        from toolscript.services.servers import connection

        # A failure is shown once: by the board in a terminal, elsewhere by the log, which has the time.
        is_logged = not self._console.is_terminal and self._settings.log_level != "error"
        board = Board(self._console, logged=(ServerState.FAILED,) if is_logged else ())
        app.servers.gateway.watch(board.update)
        if self._console.is_terminal and self._settings.log_level == "warning":
            logger = logging.getLogger(connection.__name__)
            logger.addFilter(lambda record: record.getMessage() != "server_failed")
        specs, record = self._configuration.servers, self._choice.record
        if self._choice.note:
            self._console.print(escape_markup(self._choice.note))
        with board.show():
            await app.servers.gateway.apply(specs, listed=record.servers, stopped=record.stopped)
            await retire_renamed(app, self._choice)
            self._keep_record()
            if compute_digests(specs).items() <= record.servers.items():
                self.server.served.mark_ready()  # all servers are indexed already; calls wait for their connection
            await app.servers.gateway.settle(FIRST_CONNECT_SECONDS)
        states = Counter(s.state for s in app.servers.gateway.statuses)
        took = time.monotonic() - self._started
        others = (ServerState.ASLEEP, ServerState.STOPPED)
        rest = "".join(f", {states[state]} {state}" for state in others if states[state])
        self._console.print(
            f"{states[ServerState.READY]} of {format_count(len(specs), 'server')} ready{rest} after {took:.1f} s"
        )
        lazy = {spec.name for spec in specs if spec.is_lazy}
        late = [status for status in app.servers.gateway.statuses if status.state is ServerState.CONNECTING]
        for status in (status for status in late if status.name not in lazy):
            text = escape_markup(f"{status.name}  {status.reason or 'no answer yet'}")
            self._console.print(f"[yellow]waiting[/]  {text}; it connects in the background")
        if unlisted := sum(status.name in lazy for status in late):
            self._console.print(
                f"[yellow]waiting[/]  {format_count(unlisted, 'lazy server')} will be listed in the background"
            )
        for warning in await app.tools.overviews.list_warnings():
            self._console.print(f"[yellow]warning[/]  {escape_markup(warning)}")

    def _reload(self, loop: asyncio.AbstractEventLoop) -> tuple[ServerSpec, ...]:
        """Reads the configuration, in a thread. The record is written on the loop, as everywhere."""
        self._configuration = read_configuration(self._settings, self._choice.folder)
        loop.call_soon_threadsafe(self._apply_profiles)
        loop.call_soon_threadsafe(self._keep_record)
        names = ", ".join(s.name for s in self._configuration.servers) or "none"
        profiles = ", ".join(p.name for p in self._configuration.profiles) or "none, everyone sees everything"
        self._console.print(f"configuration changed; servers: {escape_markup(names)}; profiles: {profiles}")
        return self._configuration.servers

    def _apply_profiles(self) -> None:
        if app := self.server.served.current:
            app.access.profiles.replace(self._configuration.profiles)

    def _record(self, status: ServerStatus) -> None:
        app = self.server.served.current
        has_changed = app is not None and app.servers.gateway.stopped != self._stopped
        if status.state is ServerState.READY or has_changed:
            self._keep_record(status.name if status.state is ServerState.READY else "")

    def _keep_record(self, ready: str = "") -> None:
        """Records the configuration, its listed servers, and its stopped servers."""
        current = compute_digests(self._configuration.servers)
        listed = dict(read_record(self._settings.data).servers.items() & current.items())
        if ready in current:
            listed[ready] = current[ready]
        if app := self.server.served.current:
            self._stopped = app.servers.gateway.stopped
        write_record(self._choice, listed, self._stopped)


async def _renew_configuration(app: App) -> None:
    """Records every hour that a gateway uses the configuration: what nobody uses is forgotten."""
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        try:
            if await app.catalogue.sync.renew():
                await app.servers.gateway.refresh()
        except ToolscriptError as error:  # the store: the next hour comes
            log.warning("configuration_not_renewed", extra={"reason": error.message})


async def _warm_up(app: App) -> None:
    try:
        await app.catalogue.snapshots.warm_up()
    except ToolscriptError as error:  # the next search reads what it needs
        log.warning("catalogue_not_read", extra={"reason": error.message})
    with suppress(Unavailable):  # the first call tries again, and logs why
        await app.argument_checker.prepare()


async def _finish_documents(app: App) -> None:
    """Indexes documents that were stored and not indexed, by an earlier run or while the index failed; repeats until
    all are. Errors are logged and ignored: tools must be served whatever is wrong with documents."""
    pause = current_limits().repair_first_pause
    while True:
        try:
            if finished := await app.texts.ingest_documents.repair():
                log.info("documents_finished", extra={"documents": finished})
            if app.text_model.embedder is None or not await app.stores.documents.list_pending():
                await app.texts.ingest_documents.is_unfinished.wait()
                app.texts.ingest_documents.is_unfinished.clear()
                pause = current_limits().repair_first_pause
        except Exception as error:  # noqa: BLE001
            log.warning("documents_unfinished", extra={"reason": f"{type(error).__name__}: {error}"})
        await asyncio.sleep(pause)
        pause = min(2 * pause, current_limits().repair_max_pause)


async def _repair_knowledge(app: App) -> None:
    """Completes the terms of knowledge that an earlier version has ingested, and an embedded index that was damaged.
    Tries a few times; errors are logged and ignored: tools must be served whatever is wrong with knowledge, and a
    gateway may have no permission to write."""
    pause = current_limits().repair_first_pause
    while pause <= current_limits().repair_max_pause:
        try:
            repaired = await app.texts.ingest_knowledge.repair(completing=not app.settings.index)
        except Exception as error:  # noqa: BLE001
            log.warning("knowledge_not_repaired", extra={"reason": f"{type(error).__name__}: {error}"})
        else:
            if repaired:
                log.info("knowledge_repaired", extra={"sources": repaired})
            return
        await asyncio.sleep(pause)
        pause *= 2


def _create_http_server(settings: Settings) -> HttpServer:
    try:
        from toolscript.surfaces.http.server import HttpServer
    except ImportError as error:
        raise Invalid("serving HTTP needs an optional dependency: pip install 'toolscript[server]'") from error
    check_address(settings)
    try:
        return HttpServer(settings)
    except Unavailable as error:
        if owner := describe_port_owner(settings.host, settings.port):
            error.message += f". {owner}"
        raise


def check_address(settings: Settings) -> None:
    """Raises Invalid for an address where anyone could call the gateway."""
    from toolscript.surfaces.callers import requires_key
    from toolscript.surfaces.owner import is_loopback

    if not is_loopback(settings.host) and not requires_key(settings):
        raise Invalid(
            f"--host {settings.host} is not a loopback address, and anyone could call the gateway: use 127.0.0.1, or "
            "set TOOLSCRIPT_API_KEY, TOOLSCRIPT_REQUIRE_KEY or TOOLSCRIPT_OAUTH_RESOURCE",
            details={"field": "--host", "allowed": ["127.0.0.1", "localhost", "::1"]},
        )


def _read_stamps(configuration: Configuration) -> list[tuple[int, int] | None]:
    """Modification times and sizes of the configuration files; None for missing files."""

    def read_stamp(file: Path) -> tuple[int, int] | None:
        try:
            status = file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    return [read_stamp(file) for file in configuration.files]
