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
from typing import TYPE_CHECKING

from toolscript.configuration.files import Configuration, load_configuration
from toolscript.domain.servers import ServerSpec, ServerState
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.notices import print_note_once
from toolscript.surfaces.cli.terminal.text import escape_markup, print_note

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.servers import ServerStatus
    from toolscript.services.catalogue.indexing import SyncReport

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


async def prepare_catalogue(app: App, configuration: Configuration, *, refresh: bool, name_failed: bool = True) -> None:
    """Makes the catalogue that of the configuration: the demo tools when nothing is configured, else the servers that
    are indexed already, and all of them with `refresh` or when none is indexed."""
    if is_demo(configuration):
        await load_demo(app)
        return
    specs = configuration.servers
    current = compute_digests(specs).items() & read_indexed(app.settings.data).items()
    if refresh or (specs and not current):
        await index_servers(app, specs, name_failed=name_failed)
        return
    names = [name for name, _ in current]
    await app.sync.configure(names)
    missing = sorted({s.name for s in specs} - set(names))
    if missing:
        print_note_once(
            app.settings.data, f"not indexed yet: {', '.join(missing)} (start the gateway, or run toolscript sync)"
        )


async def load_demo(app: App) -> SyncReport:
    """Makes the built-in tools the catalogue."""
    from toolscript.services.catalogue.demo import load_demo_items

    report = await app.sync.run(load_demo_items())
    write_indexed(app.settings.data, {})
    return report


def read_indexed(data: Path) -> dict[str, str]:
    """The servers that are indexed in the data folder: names to the digests of their configuration."""
    try:
        servers = json.loads((data / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in servers.items()} if isinstance(servers, dict) else {}


def write_indexed(data: Path, servers: dict[str, str]) -> None:
    """Replaces the list of `read_indexed`. Errors are ignored: without the list, servers are indexed again."""
    draft = data / f"{FILE}.new"
    with suppress(OSError):
        draft.write_text(json.dumps(servers), encoding="utf-8")
        draft.replace(data / FILE)


def compute_digests(specs: Sequence[ServerSpec]) -> dict[str, str]:
    """A hash by server name, which changes when the server might offer other tools. Does not depend on its environment
    or headers."""
    parts = {s.name: [s.transport, s.command, s.args, s.cwd, s.url, s.include_tools, s.exclude_tools] for s in specs}
    return {name: hashlib.sha256(json.dumps(each).encode()).hexdigest()[:16] for name, each in parts.items()}


async def index_servers(
    app: App, specs: Sequence[ServerSpec], *, within: float = CONNECT_SECONDS, name_failed: bool = True
) -> None:
    """Connects to all servers, makes the catalogue theirs, and records which are indexed."""
    await connect_servers(app, specs, within=within, name_failed=name_failed)
    ready = {s.name for s in app.gateway.statuses if s.state is ServerState.READY}
    write_indexed(app.settings.data, compute_digests([s for s in specs if s.name in ready]))


async def connect_servers(
    app: App,
    specs: Sequence[ServerSpec],
    *,
    among: Sequence[ServerSpec] | None = None,
    within: float = CONNECT_SECONDS,
    name_failed: bool = True,
) -> None:
    """Connects to the servers for at most that many seconds, and names those that failed on standard error, unless the
    command shows them itself."""
    from rich.console import Console

    title = f"Connecting to {len(specs)} servers"
    with Console(stderr=True).status(title) as line:

        def show(status: ServerStatus) -> None:
            line.update(f"{title}: {escape_markup(status.name)} {status.state} {escape_markup(status.reason or '')}")

        app.gateway.watch(show)
        await app.gateway.apply(specs, among=among)
        await app.gateway.settle(within)
    for status in app.gateway.statuses if name_failed else ():
        if status.state is not ServerState.READY:
            print_note(f"server {status.name}: {status.reason or 'no answer yet'}")
