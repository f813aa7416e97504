"""What `toolscript servers add` does: adds a snippet to the configuration, or a server of a registry after a person has
seen what it runs and needs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from toolscript.configuration.snippets import ConfigurationPlace, plan_addition, write_addition
from toolscript.domain.errors import Invalid, NotFound, Unavailable
from toolscript.domain.registry.entry import RegistryEntry, RegistryStatus, read_entry
from toolscript.domain.registry.launch import RegistryInput, RegistryLaunch, list_launches, suggest_name
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.gateway import is_gateway_running, send_to_gateway
from toolscript.surfaces.cli.commands.search import search_registry
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import confirm_or_raise, print_answer, print_note, printable
from toolscript.surfaces.json.servers import build_snippet_response

PATH = "/api/v1/servers"
NAME_PARTS = 2
MAX_REGISTRIES = 20
POLL_SECONDS = 0.5
# A package may have to be downloaded before its server starts.
START_SECONDS = 120.0

Answer = Mapping[str, Any]


def add_snippet(settings: Settings, snippet: str, name: str | None, *, dry_run: bool) -> Answer:
    """Adds the servers of a snippet to the file of the gateway, or of this machine where none runs."""
    body = {"snippet": snippet, "name": name}
    answer = send_to_gateway(settings, f"{PATH}/check" if dry_run else PATH, body=body)
    if answer is None:
        place = ConfigurationPlace(settings.config, Path.home(), Path.cwd(), os.environ)
        addition = plan_addition(snippet, place, name)
        if not dry_run:
            write_addition(addition)
        answer = build_snippet_response(addition, added=not dry_run)
    response: Answer = answer
    return response


def is_registry_name(text: str) -> bool:
    """Whether this is the name of a server of a registry, and no file."""
    parts = text.split("/")
    return (
        len(parts) == NAME_PARTS
        and "." in parts[0]
        and all(parts)
        and not parts[0].startswith(".")
        and not (Path(text).exists() or text.endswith((".json", ".jsonc")))
    )


def add_from_registry(
    settings: Settings,
    registry_name: str,
    name: str | None,
    values: dict[str, str],
    *,
    registry: str | None,
    remote: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Shows what a server of a registry runs and needs, asks, adds it, and lists its tools."""
    entry = _find(registry_name, registry)
    name = name or suggest_name(entry)
    launch = _fill_in(entry, values, remote=remote, asks=not (yes or dry_run))
    if launch.missing and yes and not dry_run:
        raise Invalid(
            f"{entry.name} needs {', '.join(launch.missing)}: give each with --set NAME=VALUE",
            details={"field": "--set", "missing": list(launch.missing)},
        )
    snippet = json.dumps({"mcpServers": {name: launch.entry}}, ensure_ascii=False, indent=2)
    planned = add_snippet(settings, snippet, None, dry_run=True)
    if problems := [server["problem"] for server in planned["servers"] if server["problem"]]:
        hint = " (or choose another name with --name)" if "of this name" in problems[0] else ""
        hint = " (for the gateway, or give the value itself with --set)" if "is not set" in problems[0] else hint
        raise Invalid(f"{entry.name} cannot be added as {name}: {problems[0]}{hint}", details={"field": "name"})
    if dry_run:
        print_answer(planned, show_addition)
        return
    if not yes:
        if not options.is_json():
            show_addition(planned)
        confirm_or_raise("Add it, and run this as you?", "nothing was added: use --yes to add without a question")
    has_gateway = is_gateway_running(settings)
    added = add_snippet(settings, snippet, None, dry_run=False)
    print_answer(
        {**added, "tools": _wait_for_tools(settings, name) if has_gateway else None},
        lambda answer: _show_added(answer, name),
    )


def _find(name: str, registry: str | None) -> RegistryEntry:
    servers = search_registry(name, limit=MAX_REGISTRIES)["servers"]
    named = [each for each in servers if each["name"].casefold() == name.casefold()]
    listed = [each["registry"] for each in named]
    if named and registry:
        named = [each for each in named if each["registry"] == registry.rstrip("/")]
        if not named:
            raise NotFound(f"{registry} does not list {name}: {' and '.join(listed)} do", details={"nearest": listed})
    if len(named) > 1:
        raise Invalid(
            f"several registries list {name}: choose one with --registry {' or '.join(listed)}",
            details={"field": "--registry", "allowed": listed},
        )
    if not named:
        near = [each["name"] for each in servers]
        advice = f"did you mean {' or '.join(near)}?" if near else "search with `toolscript search --registry`"
        raise NotFound(f"no registry lists a server {name}: {advice}", details={"nearest": near})
    (found,) = named
    status = RegistryStatus(found["status"])
    entry = read_entry(found["registry"], {"server": found["definition"]})
    return replace(entry, status=status, status_message=found["statusMessage"])


def _fill_in(entry: RegistryEntry, values: dict[str, str], *, remote: bool, asks: bool) -> RegistryLaunch:
    """The way to use a server, with values: given ones, variables that are set here, and answers of the person."""
    launch = _choose(entry, values, remote=remote)
    known = {each.name: each for each in launch.inputs}
    if unknown := values.keys() - known:
        raise Invalid(
            f"--set {', '.join(sorted(unknown))}: {entry.name} asks for {', '.join(known) or 'nothing'}",
            details={"field": "--set", "allowed": [*known]},
        )
    # A publisher could ask for any variable of this machine, and call it harmless: what is optional is not handed out.
    taken = {
        name: f"${{{name}}}"
        for name, wanted in known.items()
        if wanted.place == "variable" and wanted.is_required and name not in values
        if name in os.environ and (not wanted.choices or os.environ[name] in wanted.choices)
    }
    values = values | taken
    launch = _choose(entry, values, remote=remote)
    if not options.is_json():
        _show_entry(entry, launch, taken)
    if entry.status is not RegistryStatus.ACTIVE:
        print_note(f"{entry.name} is {entry.status}: {entry.status_message or 'without a reason'}", label="warning:")
    if asks and launch.missing:
        launch = _choose(entry, values | {each: _ask(known[each]) for each in launch.missing}, remote=remote)
    return launch


def _choose(entry: RegistryEntry, values: Mapping[str, str], *, remote: bool) -> RegistryLaunch:
    launches = [launch for launch in list_launches(entry, values) if launch.is_remote or not remote]
    usable = next((launch for launch in launches if not launch.problem), None)
    if usable is None:
        reasons = [f"{launch.about}: {launch.problem}" for launch in launches]
        raise Invalid(
            f"{entry.name} cannot be added: {'; '.join(reasons) or 'its entry names no package and no address'}",
            details={"problems": reasons},
        )
    return usable


def _ask(wanted: RegistryInput) -> str:
    name = wanted.name
    about = f" ({printable(wanted.description)})" if wanted.description else ""
    choices = f" [{', '.join(map(printable, wanted.choices))}]" if wanted.choices else ""
    try:
        answer: str = click.prompt(f"{printable(name)}{about}{choices}", hide_input=wanted.is_secret, err=True)
    except click.Abort:
        raise Invalid(f"nothing was added: {name} is needed, give it with --set {name}=VALUE") from None
    return answer


def _show_entry(entry: RegistryEntry, launch: RegistryLaunch, taken: Collection[str]) -> None:
    click.echo(printable(f"{entry.name} {entry.version}: {entry.description}"))
    click.echo(printable(f"  by {entry.publisher}, listed at {entry.registry}, {entry.digest[:19]}"))
    click.echo(printable(f"  {launch.about}{f', sha256:{launch.package_digest}' if launch.package_digest else ''}"))
    for each in launch.inputs:
        marks = ["secret"] * each.is_secret + ["required" if each.is_required else "optional"]
        marks += ["taken from your environment"] * (each.name in taken)
        click.echo(printable(f"  {each.place} {each.name} ({', '.join(marks)}): {each.description}"))
    for value in launch.stated:
        click.echo(printable(f"  the publisher sets {value}"))
    if launch.may_need_login:
        click.echo("  may ask for a login: `toolscript login`")


def show_addition(answer: Answer) -> None:
    """Prints what a snippet adds."""
    for server in answer["servers"]:
        click.echo(f"{printable(server['name'])}: {printable(server['runs'])}")
        if server["variables"]:
            click.echo(f"  with {', '.join(map(printable, server['variables']))}")
        if server["cwd"]:
            click.echo(f"  in the folder {printable(server['cwd'])}")
        if server["envFile"]:
            click.echo(f"  with the variables of {printable(server['envFile'])}")
        if server["sandbox"]:
            click.echo(f"  in a sandbox: {server['sandbox']}")
        for warning in server["warnings"]:
            click.echo(click.style("  warning: ", fg="yellow") + printable(warning))
        if server["problem"]:
            click.echo(click.style("  cannot be added: ", fg="red") + printable(server["problem"]))
    where = printable(answer["file"])
    click.echo(f"Added to {where}." if answer["added"] else f"Nothing was written to {where}.")


def _wait_for_tools(settings: Settings, name: str) -> list[Any] | None:
    """The tools of a new server; None while it is not ready, with the reason as a note."""
    deadline, reason = time.monotonic() + START_SECONDS, "it is still starting"
    while time.monotonic() < deadline:
        listed: Answer | None = None
        with suppress(Unavailable):  # with its first server, a gateway starts again without the demo
            listed = send_to_gateway(settings, "/servers")
        servers = listed["servers"] if listed else ()
        state = next((server for server in servers if server["name"] == name), None)
        if state and state["state"] in {"ready", "asleep"}:
            tools: list[Any] = send_to_gateway(settings, "/tools", filter=name)["tools"]
            return tools
        if state and state["state"] != "connecting":
            reason = state["reason"] or state["state"]
            break
        time.sleep(POLL_SECONDS)
    print_note(f"{name} is added, and not ready: {reason}")
    return None


def _show_added(answer: Answer, name: str) -> None:
    click.echo(f"Added to {printable(answer['file'])}.")
    if answer["tools"] is None:
        click.echo("Its tools: `toolscript sync`, then `toolscript quarantine list`.")
        return
    columns: Columns = {"Tool": "toolId", "In quarantine": lambda tool: tool.get("quarantined", "")}
    print_table(columns, answer["tools"], "It has no tools.")
    click.echo(
        f"They wait for you: `toolscript quarantine show TOOL`, `toolscript quarantine approve --all --server {name}`."
    )
