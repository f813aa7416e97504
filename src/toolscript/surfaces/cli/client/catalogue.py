"""The catalogue without a gateway: commands read what the last one left, and connect to servers only when there is
nothing to read yet."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolscript.configuration.files import Configuration, load_configuration
from toolscript.domain.servers import ServerSpec, ServerState
from toolscript.settings import Settings
from toolscript.surfaces.cli.terminal.text import marked, printable

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.servers import ServerStatus
    from toolscript.services.catalogue.sync import SyncReport

FILE = "catalogue.json"
PATIENCE_SECONDS = 20.0

Answer = TypeVar("Answer")


def configuration_of(settings: Settings, folder: Path | None = None) -> Configuration:
    """The servers that the settings and the usual files name, but not ourselves: an agent's file that names us too
    may be read as it is. Raises Invalid."""
    read = load_configuration(settings.config, home=Path.home(), folder=folder or Path.cwd(), environment=os.environ)
    return replace(read, servers=tuple(s for s in read.servers if not _is_ourselves(s)))


def _is_ourselves(spec: ServerSpec) -> bool:
    return Path(spec.command).stem == "toolscript" or spec.args[:2] == ("-m", "toolscript")


def from_catalogue(settings: Settings, use: Callable[[App], Awaitable[Answer]], *, refresh: bool = False) -> Answer:
    """Opens the application here, its catalogue that of the configuration (the demo's when nothing is configured), and
    returns what `use` makes of it."""
    return asyncio.run(_used(settings, use, refresh))


async def _used(settings: Settings, use: Callable[[App], Awaitable[Answer]], refresh: bool) -> Answer:
    configuration = configuration_of(settings)
    from toolscript.app.app import open_app  # --help must not wait for engines to load

    async with open_app(settings) as app:
        if is_demo(configuration):
            await load_demo(app)
        else:
            await _catch_up(app, configuration.servers, refresh)
        return await use(app)


def is_demo(configuration: Configuration) -> bool:
    """Whether nobody has configured anything yet."""
    return not any(file.exists() for file in configuration.files)


async def load_demo(app: App) -> SyncReport:
    """Makes the built-in tools the catalogue."""
    from toolscript.services.catalogue.demo import load_demo_items

    report = await app.sync.run(load_demo_items())
    Known(app.settings.data).write({})
    return report


class Known:
    """Which servers the catalogue was read from, and by which configuration, as the last command left it."""

    def __init__(self, data: Path) -> None:
        self._file = data / FILE

    def read(self) -> dict[str, str]:
        """Names of servers to the digests of their configuration."""
        try:
            told = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(k): str(v) for k, v in told.items()} if isinstance(told, dict) else {}

    def write(self, servers: dict[str, str]) -> None:
        """Replaces the note; one that cannot be written is done without."""
        draft = self._file.with_suffix(".new")
        with suppress(OSError):
            draft.write_text(json.dumps(servers), encoding="utf-8")
            draft.replace(self._file)


def digest_of(spec: ServerSpec) -> str:
    """Changes when the server might offer other tools. Holds nothing of its environment or headers."""
    said: list[Any] = [spec.transport, spec.command, spec.args, spec.cwd, spec.url, spec.include_tools]
    return hashlib.sha256(json.dumps([*said, spec.exclude_tools]).encode()).hexdigest()[:16]


async def _catch_up(app: App, specs: Sequence[ServerSpec], refresh: bool) -> None:
    held = Known(app.settings.data).read()
    current = [s for s in specs if held.get(s.name) == digest_of(s)]
    if not refresh and (current or not specs):
        await app.sync.configure([s.name for s in current])
        missing = sorted({s.name for s in specs} - {s.name for s in current})
        if missing:
            _note(f"not indexed yet: {', '.join(missing)} (start the gateway, or run toolscript sync)")
        return
    await read_anew(app, specs)


async def read_anew(app: App, specs: Sequence[ServerSpec], *, within: float = PATIENCE_SECONDS) -> None:
    """Connects to all servers, which makes the catalogue theirs, and notes from which it was read."""
    await connect(app, specs, within=within)
    ready = {s.name for s in app.gateway.statuses if s.state is ServerState.READY}
    Known(app.settings.data).write({s.name: digest_of(s) for s in specs if s.name in ready})


async def connect(
    app: App,
    specs: Sequence[ServerSpec],
    *,
    among: Sequence[ServerSpec] | None = None,
    within: float = PATIENCE_SECONDS,
) -> None:
    """Connects to the servers and waits a while; those that do not make it are named on standard error."""
    from rich.console import Console

    told = f"Connecting to {len(specs)} servers"
    with Console(stderr=True).status(told) as line:

        def show(status: ServerStatus) -> None:
            line.update(f"{told}: {marked(status.name)} {status.state} {marked(status.reason or '')}")

        app.gateway.watch(show)
        await app.gateway.apply(specs, among=among)
        await app.gateway.settle(within)
    for status in app.gateway.statuses:
        if status.state is not ServerState.READY:
            _note(f"server {status.name}: {status.reason or 'no answer yet'}")


def _note(text: str) -> None:
    click.echo(click.style("note: ", fg="yellow") + printable(text), err=True)
