"""Looks at the configuration and at each server in it."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolscript.app.inspection import hide_credentials
from toolscript.configuration.jsonc import JsoncError, parse_jsonc
from toolscript.configuration.text_files import read_text
from toolscript.domain.errors import Invalid, ToolscriptError
from toolscript.domain.servers import ServerSpec, ServerState, Transport
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.catalogue import CatalogueChoice, choose_catalogue
from toolscript.surfaces.cli.client.gateway import send_to_gateway
from toolscript.surfaces.cli.commands.tools import try_servers
from toolscript.surfaces.cli.doctor.causes import describe_action, find_cause
from toolscript.surfaces.cli.doctor.findings import DoctorFinding, Level
from toolscript.surfaces.cli.setup.report import format_path
from toolscript.surfaces.cli.terminal.text import format_count

# Over the time that a server may take to connect.
MARGIN_SECONDS = 10.0
NO_SERVERS = "run `toolscript setup` to move those of your clients here, or `toolscript servers add`"


def inspect_configuration(settings: Settings) -> tuple[CatalogueChoice | None, list[DoctorFinding]]:
    """The catalogue that a gateway would have, and what is wrong with its files."""
    try:
        choice = choose_catalogue(settings, switching=True)
    except Invalid as error:
        problems = error.details.get("problems") or [{"message": error.message}]
        return None, [
            DoctorFinding("configuration", Level.ERROR, each["message"], "correct the file: nothing starts before")
            for each in problems
        ]
    except ToolscriptError as error:
        return None, [DoctorFinding("configuration", Level.ERROR, error.message)]
    findings = [DoctorFinding("configuration", Level.NOTE, choice.note)] if choice.note else []
    files = [file for file in choice.configuration.files if file.exists()]
    count = format_count(len(choice.configuration.servers), "server")
    for file in files:
        findings.append(DoctorFinding("configuration", Level.OK, f"{count} in {format_path(str(file))}"))
        findings += _inspect_secrets(file)
    if choice.is_demo or not choice.configuration.servers:
        text = "no servers are configured" + (": searches find demo tools" if choice.is_demo else "")
        findings.append(DoctorFinding("configuration", Level.NOTE, text, NO_SERVERS))
    return choice, findings


def _inspect_secrets(file: Path) -> Iterator[DoctorFinding]:
    """Looks whether other users can read values of `env` and `headers`."""
    if sys.platform == "win32" or not stat.S_IMODE(file.stat().st_mode) & (stat.S_IRGRP | stat.S_IROTH):
        return
    try:
        content = parse_jsonc(read_text(file) or "").root.to_python()
    except (JsoncError, ValueError):
        return
    root = content if isinstance(content, dict) else {}
    nested = root["mcp"].get("servers") if isinstance(root.get("mcp"), dict) else None
    names = [
        name
        for servers in (root.get("mcpServers"), root.get("servers"), nested)
        if isinstance(servers, dict)
        for name, entry in servers.items()
        if isinstance(entry, dict)
        for key in ("env", "headers")
        if isinstance(values := entry.get(key), dict) and any("${" not in str(value) for value in values.values())
    ]
    if names:
        text = f"other users can read {format_path(str(file))}, which has values of {', '.join(dict.fromkeys(names))}"
        yield DoctorFinding("configuration", Level.NOTE, text, f"chmod go-r {shlex.quote(str(file))}")


def inspect_servers(
    settings: Settings, choice: CatalogueChoice | None, *, asks_gateway: bool, starts: bool
) -> Iterator[DoctorFinding]:
    """Asks the gateway for the states of its servers; where none runs, starts each once, or only looks for its
    command."""
    if asks_gateway:
        try:
            answer = send_to_gateway(settings, "/servers")
        except ToolscriptError as error:
            yield DoctorFinding("servers", Level.ERROR, f"the gateway does not list its servers: {error.message}")
            return
        if answer["configurationError"]:
            text = f"the gateway has not applied the last change: {answer['configurationError']}"
            yield DoctorFinding(
                "configuration", Level.ERROR, text, "correct the file: the gateway reads it again at once"
            )
        for warning in answer["configurationWarnings"]:
            yield DoctorFinding("configuration", Level.NOTE, warning)
        yield from _describe_all(answer["servers"], in_gateway=True)
    elif choice and choice.configuration.servers and not choice.is_demo:
        if starts:
            answer = asyncio.run(try_servers(settings, choice, within=settings.connect_timeout + MARGIN_SECONDS))
            yield from _describe_all(answer["servers"], in_gateway=False)
        else:
            for spec in choice.configuration.servers:
                yield from _look_for_command(spec)


def _describe_all(servers: Sequence[Mapping[str, Any]], *, in_gateway: bool) -> Iterator[DoctorFinding]:
    for server in servers:
        yield from _describe(server, in_gateway=in_gateway)


def _describe(server: Mapping[str, Any], *, in_gateway: bool) -> Iterator[DoctorFinding]:
    name, state, reason = server["name"], server["state"], server["reason"]
    has_failed = state == ServerState.FAILED or (state == ServerState.ASLEEP and reason)
    if has_failed:
        cause = find_cause(reason or "")
        text = reason or "it does not answer"
        action = describe_action(cause, name, in_gateway=in_gateway)
        yield DoctorFinding("servers", Level.ERROR, text, action, subject=name, cause=cause.name)
    elif state == ServerState.STOPPED:
        yield DoctorFinding(
            "servers", Level.NOTE, reason or "stopped", f"toolscript servers start {shlex.quote(name)}", subject=name
        )
    elif state == ServerState.CONNECTING:
        yield DoctorFinding("servers", Level.NOTE, "still starting", "run this command again in a moment", subject=name)
    else:
        asleep = ", asleep until it is called" if state == ServerState.ASLEEP else ""
        yield DoctorFinding("servers", Level.OK, f"{format_count(server['tools'], 'tool')}{asleep}", subject=name)
    for problem in server["problems"]:
        text = problem if problem.startswith("tools.") else f"left out: {problem}"
        yield DoctorFinding("servers", Level.NOTE, text, subject=name)
    if server["callsPausedSeconds"]:
        text = "its calls are refused for a moment, because it kept failing"
        yield DoctorFinding("servers", Level.NOTE, text, f"toolscript servers log {shlex.quote(name)}", subject=name)


def _look_for_command(spec: ServerSpec) -> Iterator[DoctorFinding]:
    if spec.transport is not Transport.STDIO:
        if spec.transport is not Transport.INTERNAL:
            yield DoctorFinding("servers", Level.OK, f"not asked: {hide_credentials(spec.url)}", subject=spec.name)
        return
    command = shutil.which(spec.command, path=spec.env.get("PATH") or os.environ.get("PATH"))
    reason = None
    if spec.sandbox and shutil.which(spec.sandbox.kind) is None:
        reason = f"command not found: {spec.sandbox.kind}, which `sandbox` of the server asks for"
    elif command is None and spec.sandbox and spec.sandbox.image:
        command = f"{spec.command} of the image {spec.sandbox.image}"
    elif command is None:
        reason = f"command not found: {spec.command}"
    if spec.cwd and not reason and not Path(spec.cwd).is_dir():
        reason = f"working folder not found: {spec.cwd}"
    if reason:
        cause = find_cause(reason)
        action = describe_action(cause, spec.name, in_gateway=False)
        yield DoctorFinding("servers", Level.ERROR, reason, action, subject=spec.name, cause=cause.name)
    else:
        yield DoctorFinding("servers", Level.OK, f"not started; its command is {command}", subject=spec.name)
