"""`toolscript servers`: adds servers, starts and stops servers of a running gateway, and shows their logs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any
from urllib.parse import quote

import click

from toolscript.domain.errors import Invalid, Unavailable
from toolscript.surfaces.cli.client.announcement import format_time
from toolscript.surfaces.cli.client.completion import complete
from toolscript.surfaces.cli.client.gateway import send_to_gateway
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.commands.servers_add import (
    PATH,
    add_from_registry,
    add_snippet,
    is_registry_name,
    show_addition,
)
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.text import print_answer, printable

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
@click.argument("source", metavar="[FILE|SERVER]", default="-")
@click.option("--name", metavar="NAME", help="The name of a server that is a single entry, or is from a registry.")
@click.option("--dry-run", is_flag=True, help="Show what would be added, and write nothing.")
@click.option("--set", "given", metavar="NAME=VALUE", multiple=True, help="A value that a server of a registry needs.")
@click.option(
    "--registry", metavar="URL", help="The registry to take it from, where several list a server of this name."
)
@click.option("--remote", is_flag=True, help="Use the address of a server of a registry, not its package.")
@options.yes
@options.catalogue
@click.pass_context
def add(
    context: click.Context,
    source: str,
    name: str | None,
    dry_run: bool,
    given: tuple[str, ...],
    registry: str | None,
    remote: bool,
    yes: bool,
) -> None:
    """Add servers from the snippet that their documentation gives, or one from a registry.

    SERVER is a name that `toolscript search --registry` shows: namespace/name. What would run and what it needs is
    shown; you are asked for what is missing, and whether to add it. Give a secret as `--set TOKEN='${TOKEN}'` to keep
    it in a variable of the gateway's environment. Nothing of the server can be used before `toolscript quarantine
    approve`.

    FILE, or the standard input, has JSON: an object with mcpServers (or servers), entries by name, or a single entry.
    Its commands run on the machine of the gateway. Without a gateway the servers are added to the file of --config, or
    to ~/.toolscript.json. What the file has stays as it is, with its comments. Exits with 2, and adds nothing, when one
    of the servers has a problem.

    \b
    toolscript servers add snippet.json
    echo '{"url": "https://example.com/mcp"}' | toolscript servers add --name docs
    toolscript servers add io.github.ann/weather --set KEY='${KEY}'
    """
    settings = read_settings()
    if is_registry_name(source):
        values = dict(_split_value(each) for each in given)
        add_from_registry(settings, source, name, values, registry=registry, remote=remote, dry_run=dry_run, yes=yes)
        return
    if given or remote or registry:
        raise Invalid(
            "--set, --registry and --remote are for servers of a registry: give its name, such as io.github.ann/weather"
        )
    file: IO[str] = click.File("r", encoding="utf-8").convert(source, None, context)
    snippet = file.read(MAX_CHARACTERS + 1)
    if len(snippet) > MAX_CHARACTERS:
        raise Invalid(f"the snippet has more than {MAX_CHARACTERS} characters: give the entries of some servers only")
    answer = add_snippet(settings, snippet, name, dry_run=dry_run)
    print_answer(answer, show_addition)
    if any(server["problem"] for server in answer["servers"]):
        sys.exit(EXIT_INVALID)


def _split_value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise Invalid(f"--set {name}: expected NAME=VALUE", details={"field": "--set"})
    return name, value


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


def _show_log(answer: Mapping[str, Any]) -> None:
    if not answer["lines"]:
        click.echo("Its log is empty.")
    for line in answer["lines"]:
        mark = "*" if line["source"] == "gateway" else " "
        click.echo(f"{format_time(line['time'])} {mark} {printable(line['text'])}")
