"""Looks at the files of clients that `toolscript setup` has written."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from toolscript.configuration.client_entries import CLIENTS
from toolscript.configuration.client_files import ClientFile, list_client_files
from toolscript.configuration.client_hooks import find_hook_commands
from toolscript.configuration.formats.registry import find_format, name_format
from toolscript.configuration.setup_plan import FoundFile, FoundServer, find_servers
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.settings import Settings
from toolscript.surfaces.cli.doctor.findings import DoctorFinding, Level
from toolscript.surfaces.cli.setup.changes import read_setups
from toolscript.surfaces.cli.setup.command import list_own_urls
from toolscript.surfaces.cli.setup.report import format_path
from toolscript.surfaces.cli.terminal.text import format_count

# What does not change when a client shows the tools, or how long it waits for them.
PLAIN_EXTRAS = frozenset({"type", "tools", "name", "description", "source"})
SETUP = "toolscript setup"


def inspect_clients(settings: Settings) -> Iterator[DoctorFinding]:
    """Looks for our entry in each file of a client that exists: whether it is whole, and its command exists."""
    home = Path.home()
    sources = list_client_files(home=home, folder=Path.cwd(), environment=os.environ, platform=sys.platform)
    own_urls = list_own_urls(settings)
    found = [find_servers(each, home=home, environment=os.environ, own_urls=own_urls) for each in sources]
    files = [each for each in found if each]
    findings = [finding for each in files for finding in _inspect_file(each)]
    yield from findings
    yield from _inspect_hooks(home)
    yield from _inspect_setups(settings, sources, files)
    if not findings:
        yield DoctorFinding(
            "clients", Level.NOTE, "no client that `setup` knows has Toolscript", f"{SETUP}, or see the guide"
        )


def _inspect_file(found: FoundFile) -> Iterator[DoctorFinding]:
    where = f"{found.source.title}, {format_path(str(found.source.file))}"
    if found.problem:
        action = "correct the file: the client cannot read it either"
        yield DoctorFinding("clients", Level.ERROR, found.problem, action, subject=where)
        return
    own = [server for server in found.servers if server.is_toolscript]
    for server in own:
        yield from _inspect_entry(found, server, where)
    others = [server.name for server in found.servers if not server.reason]
    if others and not found.source.project:
        is_beside = " beside Toolscript" if own else ", and not Toolscript"
        text = f"has {format_count(len(others), 'server')}{is_beside}: {', '.join(others)}"
        yield DoctorFinding("clients", Level.NOTE, text, f"{SETUP} --client {found.source.client}", subject=where)


def _inspect_entry(found: FoundFile, server: FoundServer, where: str) -> Iterator[DoctorFinding]:
    spec = server.spec
    if spec is None or spec.transport is not Transport.STDIO:
        yield DoctorFinding("clients", Level.OK, f"{server.name}: {spec.url if spec else 'Toolscript'}", subject=where)
        return
    again = f"remove the entry, and run `{SETUP} --client {found.source.client}`, or correct it by hand"
    if problem := _find_stale_path(spec):
        yield DoctorFinding(
            "clients", Level.ERROR, f"{server.name}: {problem}", again, subject=where, cause="stale_path"
        )
        return
    if "mcp" not in spec.args:
        text = f"{server.name}: its arguments do not have `mcp`"
        yield DoctorFinding("clients", Level.ERROR, text, again, subject=where, cause="incomplete")
        return
    node = find_format(name_format(found.source.file)).parse(found.text).root.find(*server.path)
    entry = node.to_python() if node else {}
    wanted = CLIENTS[found.source.client].extras
    missing = {k: v for k, v in wanted.items() if k not in PLAIN_EXTRAS and not _is_set(entry.get(k), v)}
    if missing:
        lines = ", ".join(f"{key} = {value}" for key, value in missing.items())
        text = f"{server.name}: lacks {lines}, so that its tools may come late or stay hidden"
        yield DoctorFinding("clients", Level.NOTE, text, f"add it to the entry, or {again}", subject=where)
    else:
        yield DoctorFinding("clients", Level.OK, f"{server.name}: {spec.command}", subject=where)


def _is_set(value: Any, wanted: Any) -> bool:
    """Whether a value does what the wanted value does. A longer time is one, too."""
    is_time = isinstance(wanted, int) and not isinstance(wanted, bool)
    return value == wanted or (is_time and isinstance(value, int | float) and value >= wanted)


def _find_stale_path(spec: ServerSpec) -> str | None:
    """Which path of an entry leads nowhere. A command without a path is looked for on our PATH, not on the client's."""
    if shutil.which(spec.command) is None:
        return f"its command is not there: {spec.command}"
    words = [part for word in spec.args for part in (word.split("=", 1) if word.startswith("--config=") else [word])]
    for flag, file in pairwise(words):
        if flag == "--config" and not Path(file).expanduser().exists():
            return f"the file of its --config is not there: {file}"
    return None


def _inspect_hooks(home: Path) -> Iterator[DoctorFinding]:
    try:
        commands = find_hook_commands(home=home, environment=os.environ)
    except Invalid as error:
        yield DoctorFinding("clients", Level.ERROR, error.message)
        return
    for command in commands:
        where = "hook of Claude Code"
        if shutil.which(command) is None:
            text, action = f"its command is not there: {command}", f"{SETUP} --hooks, after removing the old hook"
            yield DoctorFinding("clients", Level.ERROR, text, action, subject=where, cause="stale_path")
        else:
            yield DoctorFinding("clients", Level.OK, command, subject=where)


def _inspect_setups(
    settings: Settings, sources: Sequence[ClientFile], files: Sequence[FoundFile]
) -> Iterator[DoctorFinding]:
    """Looks whether the entries of earlier setups are still there."""
    try:
        setups = read_setups(settings.data)
    except Unavailable as error:
        yield DoctorFinding("clients", Level.ERROR, error.message)
        return
    with_entry = {str(f.source.file.resolve()) for f in files for server in f.servers if server.is_toolscript}
    known = {str(source.file.resolve()) for source in sources}
    for file in dict.fromkeys(change.file for setup in setups for change in setup):
        if file in known and file not in with_entry:
            text = "`toolscript setup` has moved its servers, and Toolscript is no longer in it"
            yield DoctorFinding(
                "clients", Level.ERROR, text, f"{SETUP} --undo, or add the entry again", subject=format_path(file)
            )
