"""`toolscript servers`: adds servers, starts and stops servers of a running gateway, and shows their logs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import quote

import click

from toolscript.configuration.snippets import ConfigurationPlace, plan_addition, write_addition
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.surfaces.cli.client.announcement import format_time
from toolscript.surfaces.cli.client.completion import complete
from toolscript.surfaces.cli.client.gateway import send_to_gateway
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.text import print_answer, printable
from toolscript.surfaces.json.servers import build_snippet_response

PATH = "/api/v1/servers"
# A server that does not react to the end of its input is killed after some seconds.
TIMEOUT_SECONDS = 60.0
MAX_CHARACTERS = 65_536
EXIT_INVALID = 2

names_argument = click.argument(
    "names", metavar="SERVER...", nargs=-1, required=True, shell_complete=complete("servers")
)


@click.group(cls=CommandGroup)
def servers() -> None:
    """Add, start and stop servers, and read their logs.

    `toolscript list-servers` shows their states.

    \b
    toolscript servers add snippet.json
    toolscript servers stop github
    toolscript servers start github
    toolscript servers restart github
    toolscript servers log github
    """


@servers.command()
@click.argument("file", metavar="[FILE]", type=click.File("r", encoding="utf-8"), default="-")
@click.option("--name", metavar="NAME", help="The name of a server that is a single entry.")
@click.option("--dry-run", is_flag=True, help="Show what would be added, and write nothing.")
@options.catalogue
def add(file: TextIO, name: str | None, dry_run: bool) -> None:
    """Add servers from the snippet that their documentation gives.

    FILE, or the standard input, has JSON: an object with mcpServers (or servers), entries by name, or a single entry.
    Its commands run on the machine of the gateway. Without a gateway the servers are added to the file of --config, or
    to ~/.toolscript.json. What the file has stays as it is, with its comments. Exits with 2, and adds nothing, when one
    of the servers has a problem.

    \b
    toolscript servers add snippet.json
    echo '{"url": "https://example.com/mcp"}' | toolscript servers add --name docs
    """
    settings, body = read_settings(), {"snippet": file.read(MAX_CHARACTERS + 1), "name": name}
    if len(body["snippet"] or "") > MAX_CHARACTERS:
        raise Invalid(f"the snippet has more than {MAX_CHARACTERS} characters: give the entries of some servers only")
    answer = send_to_gateway(settings, f"{PATH}/check" if dry_run else PATH, body=body)
    if answer is None:
        place = ConfigurationPlace(settings.config, Path.home(), Path.cwd(), os.environ)
        addition = plan_addition(body["snippet"] or "", place, name)
        if not dry_run:
            write_addition(addition)
        answer = build_snippet_response(addition, added=not dry_run)
    print_answer(answer, _show_addition)
    if any(server["problem"] for server in answer["servers"]):
        sys.exit(EXIT_INVALID)


@servers.command()
@names_argument
@options.catalogue
def stop(names: tuple[str, ...]) -> None:
    """Stop servers until somebody starts them.

    Calls to their tools are refused. The tools stay in the catalogue, marked with `stopped`. The servers stay stopped
    when the gateway is restarted, or their entries change.
    """
    _control("stop", names)


@servers.command()
@names_argument
@options.catalogue
def start(names: tuple[str, ...]) -> None:
    """Start servers that are stopped, asleep, or have failed.

    Does not wait until they are ready.
    """
    _control("start", names)


@servers.command()
@names_argument
@options.catalogue
def restart(names: tuple[str, ...]) -> None:
    """Stop servers and start them.

    Calls that are running fail; calls that come meanwhile wait.
    """
    _control("restart", names)


@servers.command()
@click.argument("name", metavar="SERVER", shell_complete=complete("servers"))
@options.catalogue
def log(name: str) -> None:
    """Show the latest lines of a server's log.

    They are what its program wrote to its standard error since the gateway started, the log messages that it sent
    ([info] and above), without secrets, and what the gateway noted about it (marked with *).
    """
    print_answer(_send(f"{PATH}/{quote(name, safe='')}/log"), _show_log)


def _control(action: str, names: Sequence[str]) -> None:
    answers = [_send(f"{PATH}/{quote(name, safe='', errors='replace')}/{action}", method="POST") for name in names]
    print_answer({"servers": answers}, _show_states)


def _send(path: str, **http: Any) -> Any:
    settings = read_settings()
    answer = send_to_gateway(settings, path, timeout_seconds=TIMEOUT_SECONDS, **http)
    if answer is None:
        raise Unavailable(
            f"no gateway runs on {settings.data}, and only a gateway keeps servers running: start one with `toolscript "
            "gateway start`",
            details={"folder": str(settings.data)},
        )
    return answer


def _show_states(answer: Mapping[str, Any]) -> None:
    for server in answer["servers"]:
        state = "starting" if server["state"] == "connecting" else server["state"]
        click.echo(f"{printable(server['name'])}: {state}")


def _show_addition(answer: Mapping[str, Any]) -> None:
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


def _show_log(answer: Mapping[str, Any]) -> None:
    if not answer["lines"]:
        click.echo("Its log is empty.")
    for line in answer["lines"]:
        mark = "*" if line["source"] == "gateway" else " "
        click.echo(f"{format_time(line['time'])} {mark} {printable(line['text'])}")
