"""The catalogue without a gateway: commands use the one that the last run has indexed, and connect to servers only when
nothing is indexed yet."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscript.configuration.files import Configuration, load_configuration
from toolscript.domain.servers import ServerSpec, ServerState
from toolscript.settings import Settings
from toolscript.surfaces.cli.terminal.text import escape_markup, print_note

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.servers import ServerStatus
    from toolscript.services.catalogue.sync import SyncReport

FILE = "catalogue.json"
CONNECT_SECONDS = 20.0


def read_configuration(settings: Settings, folder: Path | None = None) -> Configuration:
    """The servers that the settings or the default files name, without Toolscript itself: an agent's configuration that
    has it as a server can be used as it is. Raises Invalid."""
    read = load_configuration(settings.config, home=Path.home(), folder=folder or Path.cwd(), environment=os.environ)
    return replace(read, servers=tuple(s for s in read.servers if not _is_toolscript(s)))


def _is_toolscript(spec: ServerSpec) -> bool:
    return Path(spec.command).stem == "toolscript" or spec.args[:2] == ("-m", "toolscript")


def is_demo(configuration: Configuration) -> bool:
    """Whether no configuration file exists yet."""
    return not any(file.exists() for file in configuration.files)


async def prepare_catalogue(app: App, configuration: Configuration, *, refresh: bool) -> None:
    """Makes the catalogue that of the configuration: the demo tools when nothing is configured, else the servers that
    are indexed already, and all of them with `refresh` or when none is indexed."""
    if is_demo(configuration):
        await load_demo(app)
        return
    specs = configuration.servers
    indexed = IndexedServers(app.settings.data).read()
    current = [s for s in specs if indexed.get(s.name) == compute_digest(s)]
    if refresh or (specs and not current):
        await index_servers(app, specs)
        return
    await app.sync.configure([s.name for s in current])
    missing = sorted({s.name for s in specs} - {s.name for s in current})
    if missing:
        print_note(f"not indexed yet: {', '.join(missing)} (start the gateway, or run toolscript sync)")


async def load_demo(app: App) -> SyncReport:
    """Makes the built-in tools the catalogue."""
    from toolscript.services.catalogue.demo import load_demo_items

    report = await app.sync.run(load_demo_items())
    IndexedServers(app.settings.data).write({})
    return report


class IndexedServers:
    """A file in the data folder that lists which servers are indexed, and with which configuration."""

    def __init__(self, data: Path) -> None:
        self._file = data / FILE

    def read(self) -> dict[str, str]:
        """Names of servers to the digests of their configuration."""
        try:
            servers = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(k): str(v) for k, v in servers.items()} if isinstance(servers, dict) else {}

    def write(self, servers: dict[str, str]) -> None:
        """Replaces the file. Errors are ignored: without the file, servers are indexed again."""
        draft = self._file.with_suffix(".new")
        with suppress(OSError):
            draft.write_text(json.dumps(servers), encoding="utf-8")
            draft.replace(self._file)


def compute_digest(spec: ServerSpec) -> str:
    """Changes when the server might offer other tools. Does not depend on its environment or headers."""
    parts: list[Any] = [spec.transport, spec.command, spec.args, spec.cwd, spec.url, spec.include_tools]
    return hashlib.sha256(json.dumps([*parts, spec.exclude_tools]).encode()).hexdigest()[:16]


async def index_servers(app: App, specs: Sequence[ServerSpec], *, within: float = CONNECT_SECONDS) -> None:
    """Connects to all servers, makes the catalogue theirs, and records which are indexed."""
    await connect_servers(app, specs, within=within)
    ready = {s.name for s in app.gateway.statuses if s.state is ServerState.READY}
    IndexedServers(app.settings.data).write({s.name: compute_digest(s) for s in specs if s.name in ready})


async def connect_servers(
    app: App,
    specs: Sequence[ServerSpec],
    *,
    among: Sequence[ServerSpec] | None = None,
    within: float = CONNECT_SECONDS,
) -> None:
    """Connects to the servers for at most that many seconds, and names those that failed on standard error."""
    from rich.console import Console

    title = f"Connecting to {len(specs)} servers"
    with Console(stderr=True).status(title) as line:

        def show(status: ServerStatus) -> None:
            line.update(f"{title}: {escape_markup(status.name)} {status.state} {escape_markup(status.reason or '')}")

        app.gateway.watch(show)
        await app.gateway.apply(specs, among=among)
        await app.gateway.settle(within)
    for status in app.gateway.statuses:
        if status.state is not ServerState.READY:
            print_note(f"server {status.name}: {status.reason or 'no answer yet'}")
