"""`toolscript servers`: starts and stops the servers of a running gateway, and shows their logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from toolscript.domain.errors import Unavailable
from toolscript.surfaces.cli.client.announcement import format_time
from toolscript.surfaces.cli.client.completion import complete
from toolscript.surfaces.cli.client.gateway import send_to_gateway
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import print_answer, printable

PATH = "/api/v1/servers"
# A server that does not react to the end of its input is killed after some seconds.
TIMEOUT_SECONDS = 60.0

names_argument = click.argument(
    "names", metavar="SERVER...", nargs=-1, required=True, shell_complete=complete("servers")
)


@click.group()
def servers() -> None:
    """Start and stop the servers of a running gateway, and read their logs.

    `toolscript list-servers` shows their states.

    \b
    toolscript servers stop github
    toolscript servers start github
    toolscript servers restart github
    toolscript servers log github
    """


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

    They are what its program wrote to its standard error since the gateway started, without secrets, and what the
    gateway noted about it (marked with *).
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
