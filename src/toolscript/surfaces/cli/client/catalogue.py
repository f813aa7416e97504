"""The catalogue without a gateway, and the configuration that it came from.

A data folder remembers its configuration. Commands that read use the catalogue as the last run left it and never change
it; only an empty one is filled from the servers. `toolscript sync` and the gateway bring it to the configuration, and
switch it to another one.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscript.configuration.data_files import replace_file
from toolscript.configuration.files import FILE_NAME, Configuration, load_configuration
from toolscript.domain.agent_skills import build_folder_server
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.programs import WORKFLOW_SERVER
from toolscript.domain.servers import ServerSpec, ServerStart, ServerState
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.notices import print_note_once
from toolscript.surfaces.cli.terminal.text import escape_markup, format_count, print_note

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.servers import ServerStatus
    from toolscript.services.catalogue.indexing import SyncReport
    from toolscript.services.servers.gateway import Gateway

FILE = "catalogue.json"
# Each command reads settings from it in the folder where it is run.
ENV_FILE = ".env"
LISTED_STATES = frozenset({ServerState.READY, ServerState.ASLEEP})


@dataclass(frozen=True, slots=True)
class CatalogueRecord:
    """What a data folder remembers of its catalogue: the configuration, the servers that were listed, by name, with the
    digests of their entries, and the servers that somebody has stopped, with the reasons."""

    config: Path | None = None
    """The file of --config; None for the default files."""
    folder: Path | None = None
    """The folder that the default file of a project was looked for in."""
    servers: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """The configuration files, as far as they exist; none when they are not known."""
        return [file for file in self.candidates if file.exists()]

    @property
    def name(self) -> str:
        """The configuration files that exist, or the files that should."""
        return _join(self.files) or " or ".join(map(str, self.candidates))

    @property
    def candidates(self) -> list[Path]:
        """The configuration files, whether they exist or not; none when they are not known."""
        return _list_candidates(self.config, self.folder) if self.folder else []


@dataclass(frozen=True, slots=True)
class CatalogueChoice:
    """The catalogue that a command uses."""

    settings: Settings
    """Those of the command, with the configuration file that is used."""
    folder: Path
    configuration: Configuration
    is_demo: bool
    record: CatalogueRecord
    note: str | None = None
    """What is unexpected about the choice."""

    @property
    def renamed(self) -> str | None:
        """The name, for the store, of the remembered configuration, if its files no longer exist and others are
        used."""
        record = self.record
        if record.files or not record.candidates or record.config == self.settings.config:
            return None
        return str(record.config) if record.config else ""


def choose_catalogue(settings: Settings, folder: Path | None = None, *, switching: bool = False) -> CatalogueChoice:
    """The catalogue of the configuration that the data folder remembers, if it does; else of the one that the settings
    or the default files name; else the demo. With `switching`, what is named comes first; without it, naming another
    configuration than the remembered one is refused. Raises Invalid, and Unavailable when the record cannot be read, or
    with `switching` when the remembered configuration does not exist and no other is named."""
    folder, record = folder or Path.cwd(), read_record_or_raise(settings.data)
    configuration = read_configuration(settings, folder)
    named, known, note = _find_files(settings.config, folder), record.files, None
    if switching and not named:
        require_configuration(record, settings.data)
    if record.candidates and known != named:
        if named and (switching or not record.servers):
            if record.servers:
                note = f"the catalogue in {settings.data} was that of {record.name}; now it is that of {_join(named)}"
        else:
            if named:
                note = _name_unused(settings, record, named)
            if known:
                settings, folder, named = replace(settings, config=record.config), record.folder or folder, known
                configuration = read_configuration(settings, folder)
            else:
                configuration = replace(configuration, servers=())
    is_real = named or record.candidates or record.servers or (not switching and _is_shared(settings))
    return CatalogueChoice(settings, folder, configuration, not is_real, record, note)


def _name_unused(settings: Settings, record: CatalogueRecord, named: Sequence[Path]) -> str:
    """A note about default files that are not used. Raises Invalid for a file that the command or the environment
    names: the answer would come from another configuration."""
    problem, files = f"the catalogue in {settings.data} is that of {record.name}", _join(named)
    if settings.config is None:
        return f"{problem}; {files} is not used: switch to it with `toolscript sync`, or choose another --data-dir"
    raise Invalid(
        f"{problem}, not that of {files}: switch to it with `toolscript sync --config {shlex.quote(files)}`, or choose "
        "another folder with --data-dir",
        details={"field": "--config", "allowed": [str(file) for file in record.files]},
    )


def require_configuration(record: CatalogueRecord, data: Path) -> None:
    """Raises Unavailable when the folder has a catalogue and its configuration does not exist."""
    if record.files or not (record.candidates or record.servers):
        return
    problem = f"uses {record.name}, which does not exist" if record.candidates else "does not know its configuration"
    raise Unavailable(
        f"the folder {data} {problem}: name another with --config, or choose another folder with --data-dir",
        details={"folder": str(data), "files": [str(file) for file in record.candidates]},
    )


def _is_shared(settings: Settings) -> bool:
    """Whether other machines use the store too."""
    return settings.store.startswith("postgres")


def read_configuration(settings: Settings, folder: Path) -> Configuration:
    """The servers that the settings or the default files name, without Toolscript itself: an agent's configuration that
    has it as a server can be used as it is. The settings decide when a server runs, unless its entry does. With code
    mode the workflows are a server, too, unless an entry has its name; so are the folders of agent skills.
    Raises Invalid."""
    read = load_configuration(settings.config, home=Path.home(), folder=folder, environment=os.environ)
    start, idle = ServerStart(settings.server_start), settings.server_idle_minutes
    protected = _list_protected(settings, read, folder)
    servers = [
        replace(
            s,
            start=s.start or start,
            idle_minutes=idle if s.idle_minutes is None else s.idle_minutes,
            sandbox=replace(s.sandbox, protected=protected) if s.sandbox else None,
        )
        for s in read.servers
        if not s.is_toolscript
    ]
    if settings.code and all(server.name != WORKFLOW_SERVER.name for server in servers):
        servers.append(WORKFLOW_SERVER)
    if read.agent_skill_folders:
        servers.append(build_folder_server(read.agent_skill_folders))
    return replace(read, servers=tuple(servers))


def _list_protected(settings: Settings, read: Configuration, folder: Path) -> tuple[str, ...]:
    """What no server in a sandbox may write, because it would start a program or change what callers may do: files of
    the configuration and of settings, also without --config, agent skills, and what servers without a sandbox run."""
    named = (settings.search_capabilities, settings.skills, settings.plans, settings.jwt_jwks, settings.events)
    documents = (server.openapi for server in read.servers)
    commands = (s.command for s in read.servers if s.sandbox is None and Path(s.command).name != s.command)
    paths = [str(each) for each in (*named, *documents, *commands) if each and "://" not in str(each)]
    paths += map(str, (*read.files, *_list_candidates(None, folder), ENV_FILE, *read.agent_skill_folders))
    return tuple(dict.fromkeys(os.path.normpath(folder / Path(path).expanduser()) for path in paths))


def _find_files(config: Path | None, folder: Path) -> list[Path]:
    """The configuration files that exist."""
    return [file for file in _list_candidates(config, folder) if file.exists()]


def _list_candidates(config: Path | None, folder: Path) -> list[Path]:
    candidates = [folder / config.expanduser()] if config else [Path.home() / FILE_NAME, folder / FILE_NAME]
    return list(dict.fromkeys(candidates))


def _join(files: Sequence[Path]) -> str:
    return " and ".join(map(str, files))


async def prepare_catalogue(
    app: App, choice: CatalogueChoice, *, refresh: bool, within: float | None, name_failed: bool
) -> int:
    """Prepares the catalogue for a command: with `refresh` or when it is empty, the servers are connected and listed;
    otherwise it stays as it is, and what the configuration has changed since is printed. Returns how many tools of the
    demo were classified."""
    if choice.is_demo:
        return (await load_demo(app)).classified
    if choice.note:
        print_note(choice.note)
    specs = choice.configuration.servers
    stored = frozenset() if refresh else await app.catalogue.sync.complete_index()
    if refresh or (specs and not stored):
        await index_servers(app, choice, within=within, name_failed=name_failed)
        return 0
    current = {name for name, _ in compute_digests(specs).items() & choice.record.servers.items()}
    missing = sorted(
        {s.name for s in specs if s is not WORKFLOW_SERVER} - (current if choice.record.servers else stored)
    )
    listed = {name for name, digest in choice.record.servers.items() if digest != WORKFLOW_SERVER.digest}
    removed = sorted(listed - {s.name for s in specs}) if choice.record.files else []
    for what, names in {"not indexed yet": missing, "no longer configured": removed}.items():
        if names:
            text = f"{what}: {', '.join(names)} (start the gateway, or run toolscript sync)"
            print_note_once(app.settings.data, text)
    return 0


async def load_demo(app: App) -> SyncReport:
    """Fills the catalogue of the demo, in a folder of its own, with the built-in tools."""
    from toolscript.services.catalogue.demo import load_demo_items

    return await app.catalogue.sync.run(load_demo_items())


def read_record(data: Path) -> CatalogueRecord:
    """What the data folder remembers; nothing when that cannot be read."""
    try:
        return read_record_or_raise(data)
    except Unavailable:
        return CatalogueRecord()


def read_record_or_raise(data: Path) -> CatalogueRecord:
    """What the data folder remembers; nothing without a record. Raises Unavailable for a record
    that cannot be read."""
    try:
        return _parse_record((data / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return CatalogueRecord()
    except (OSError, ValueError, TypeError, RecursionError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise Unavailable(
            f"cannot read {data / FILE}, which names the servers of this folder: {problem}. Delete it and run "
            "`toolscript sync --config FILE`, or choose another folder with --data-dir",
            details={"file": str(data / FILE)},
        ) from error


def _parse_record(text: str) -> CatalogueRecord:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise TypeError("it is not a JSON object")
    servers, config, folder, stopped = (content.get(name) for name in ("servers", "config", "folder", "stopped"))
    return CatalogueRecord(
        Path(config) if config else None,
        Path(folder) if folder else None,
        _as_texts(servers if isinstance(servers, dict) else {}),
        _as_texts(stopped if isinstance(stopped, dict) else {}),
    )


def _as_texts(servers: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(digest) for name, digest in servers.items()}


def write_record(choice: CatalogueChoice, servers: dict[str, str], stopped: Mapping[str, str] | None = None) -> None:
    """Records the configuration, the servers that were listed, and the stopped servers, if that has changed. Errors are
    ignored: without the record, a command uses the configuration that it finds."""
    config = choice.settings.config
    content = {
        "config": str(choice.folder / config.expanduser()) if config else None,
        "folder": str(choice.folder),
        "servers": servers,
        "stopped": choice.record.stopped if stopped is None else dict(stopped),
    }
    with suppress(OSError):
        replace_file(choice.settings.data / FILE, json.dumps(content))


def compute_digests(specs: Sequence[ServerSpec]) -> dict[str, str]:
    """The digests of the servers' entries, by name."""
    return {spec.name: spec.digest for spec in specs}


async def index_servers(app: App, choice: CatalogueChoice, *, within: float | None, name_failed: bool) -> None:
    """Connects to all servers, makes the catalogue theirs, and records which were listed."""
    specs = choice.configuration.servers
    stopped = choice.record.stopped
    await connect_servers(app.servers.gateway, specs, stopped=stopped, within=within, name_failed=name_failed)
    await retire_renamed(app, choice)
    listed = {s.name for s in app.servers.gateway.statuses if s.state in LISTED_STATES}
    write_record(choice, compute_digests([s for s in specs if s.name in listed]))


async def retire_renamed(app: App, choice: CatalogueChoice) -> None:
    """Retires what only the former name of the configuration has, after a rename of its file. Elsewhere the new
    configuration has replaced all others."""
    if choice.renamed is not None and _is_shared(choice.settings):
        await app.catalogue.sync.retire_configuration(choice.renamed)


async def connect_servers(
    gateway: Gateway,
    specs: Sequence[ServerSpec],
    *,
    stopped: Mapping[str, str],
    among: Sequence[ServerSpec] | None = None,
    within: float | None = None,
    name_failed: bool = True,
) -> None:
    """Connects to the servers for at most that many seconds (default: `command_connect`), except those that somebody
    stopped, and names those that failed on standard error, unless the command shows them itself."""
    from rich.console import Console

    title = f"Connecting to {format_count(len(specs), 'server')}"
    with Console(stderr=True).status(title) as line:

        def show(status: ServerStatus) -> None:
            line.update(f"{title}: {escape_markup(status.name)} {status.state} {escape_markup(status.reason or '')}")

        gateway.watch(show)
        await gateway.apply(specs, among=among, stopped=stopped)
        await gateway.settle(current_limits().command_connect if within is None else within)
    for status in gateway.statuses if name_failed else ():
        if status.state not in LISTED_STATES:
            print_note(f"server {status.name}: {status.reason or 'no answer yet'}")
