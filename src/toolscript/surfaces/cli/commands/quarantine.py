"""`toolscript quarantine`: definitions that cannot be used until a person has looked at them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.errors import Invalid
from toolscript.surfaces.cli.client.completion import complete
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, request_once, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import ListingGroup
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import format_count, print_answer, printable

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.quarantine import Pin

PATH = "/api/v1/quarantine"
# Approved definitions are embedded.
TIMEOUT_SECONDS = 600.0
COLOURS = {"+": "green", "-": "red", "@": "cyan"}

Answer = Mapping[str, Any]

tools_argument = click.argument("tool_ids", metavar="[TOOL]...", nargs=-1, shell_complete=complete("tools"))
all_option = click.option("--all", "every", is_flag=True, help="All that are in quarantine, or all of --server.")
server_option = click.option(
    "--server", metavar="NAME", help="Only those of this server.", shell_complete=complete("servers")
)


@click.group(cls=ListingGroup)
def quarantine() -> None:
    """Review tools with definitions that changed or look like orders to the model. Without a command, lists them.

    The first definition of each tool is approved as it is. TOOLSCRIPT_QUARANTINE, or `trust` in a server's entry, says
    which later definitions can be found but not used until they are approved: none (open), changed definitions and
    texts that address the model (changed), also every new tool of a known server (all), or also the first definitions
    of a new server (review).

    \b
    toolscript quarantine
    toolscript quarantine show github__create_issue
    toolscript quarantine approve github__create_issue
    toolscript quarantine approve --all --server github
    """


@quarantine.command("list")
@server_option
@options.catalogue
def list_(server: str | None) -> None:
    """List what is in quarantine, and why."""
    request_once(PATH, lambda app: _build_list(app, server), show=_show, server=server)


@quarantine.command()
@click.argument("tool_id", metavar="TOOL", shell_complete=complete("tools"))
@options.catalogue
def show(tool_id: str) -> None:
    """Show how a definition differs from the approved one.

    Characters that cannot be seen are written as \\u200b.
    """

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.quarantine import build_quarantined_response

        return build_quarantined_response(await app.catalogue.quarantine.get(tool_id))

    request_once(f"{PATH}/{quote(tool_id, safe='', errors='replace')}", local, show=_show_difference)


@quarantine.command()
@tools_argument
@all_option
@server_option
@options.catalogue
def approve(tool_ids: tuple[str, ...], every: bool, server: str | None) -> None:
    """Approve definitions: their tools can be called from now on.

    A later change puts them in quarantine again.

    \b
    toolscript quarantine approve github__create_issue github__list_issues
    toolscript quarantine approve --all --server github
    """
    _decide("approve", "Approved", tool_ids, every, server)


@quarantine.command()
@tools_argument
@all_option
@server_option
@options.catalogue
def reject(tool_ids: tuple[str, ...], every: bool, server: str | None) -> None:
    """Reject definitions: they stay in quarantine, under every policy, until they are approved or change."""
    _decide("reject", "Rejected", tool_ids, every, server)


async def _build_list(app: App, server: str | None) -> Answer:
    from toolscript.surfaces.json.quarantine import build_quarantine_response

    return build_quarantine_response(await app.catalogue.quarantine.list_waiting(server))


def _decide(verb: str, done: str, tool_ids: Sequence[str], every: bool, server: str | None) -> None:
    if every == bool(tool_ids):
        raise Invalid(f"name tools to {verb}, or use --all, with --server for those of one server")
    if server and not every:
        raise Invalid("--server needs --all")

    async def request(session: CommandSession) -> Answer:
        ids = list(tool_ids)
        if every:
            found = await session.request(PATH, lambda app: _build_list(app, server), server=server)
            ids = [tool["tool_id"] for tool in found["tools"] if tool["state"] == "waiting"]
        if not ids:
            return {"tool_ids": []}

        async def local(app: App) -> Answer:
            decided: list[Pin] = await getattr(app.catalogue.quarantine, verb)(ids)
            return {"tool_ids": [pin.catalogue_id for pin in decided]}

        body = {"tool_ids": ids}
        answer: Answer = await session.request(f"{PATH}/{verb}", local, body=body, timeout_seconds=TIMEOUT_SECONDS)
        return answer

    def show_decision(answer: Answer) -> None:
        click.echo(f"{done} {format_count(len(answer['tool_ids']), 'definition')}.")
        for tool_id in answer["tool_ids"]:
            click.echo(f"  {printable(tool_id)}")

    print_answer(run_in_session(read_settings(), request), show_decision)


def _show(answer: Answer) -> None:
    columns: Columns = {
        "Tool": "tool_id",
        "Cause": "cause",
        "State": "state",
        "Since": lambda tool: tool["since"][:16].replace("T", " "),
        "Reason": "reason",
        "Passage": "passage",
    }
    print_table(columns, answer["tools"], "Nothing is in quarantine.")


def _show_difference(answer: Answer) -> None:
    click.echo(f"{click.style(printable(answer['tool_id']), fg='cyan')}  {answer['state']}: {answer['reason']}")
    if answer["passage"]:
        click.echo(f"Passage: {printable(answer['passage'])}")
    if override := answer.get("override"):
        click.echo(f"Override in the configuration: {printable(json.dumps(override, ensure_ascii=False))}")
    for change in answer["changes"]:
        click.echo(f"\n{click.style(change['field'], bold=True)}")
        for line in change["diff"].splitlines():
            click.echo(click.style(printable(line), fg=COLOURS.get(line[:1])))
