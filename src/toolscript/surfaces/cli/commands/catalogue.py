"""`toolscript catalogue`: the texts of the catalogue's tools."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from toolscript.surfaces.cli.client.session import request_once
from toolscript.surfaces.cli.doctor.command import SOMETHING_WRONG
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import format_count, format_json

if TYPE_CHECKING:
    from toolscript.app.app import App

PATH = "/api/v1/catalogue/check"
# A language model takes half a minute for a tool.
TIMEOUT_SECONDS = 600.0
MAX_SHOWN = 100
MAX_TOOLS = 4
# Of the service, which this command does not import beside a gateway; a test compares them.
MAX_PROPOSALS, DEFAULT_SIMILARITY = 20, 0.92

Answer = Mapping[str, Any]


@click.group(cls=CommandGroup)
def catalogue() -> None:
    """Find the tools that searches mistake for each other."""


@catalogue.command()
@click.option(
    "--similarity",
    type=click.FloatRange(0.5, 1),
    default=DEFAULT_SIMILARITY,
    show_default=True,
    help="List two tools of one server from this cosine on.",
)
@click.option(
    "--propose",
    "proposals",
    type=click.IntRange(0, MAX_PROPOSALS),
    default=0,
    metavar="N",
    help="Ask the language model for better descriptions of up to N tools (TOOLSCRIPT_LLM_URL). It is shown their "
    "definitions and recorded requests.",
)
@options.catalogue
def check(similarity: float, proposals: int) -> None:
    """List the tools that searches mistake for each other.

    Lists tools without a description, similar tools of one server, tools of equal definition, and recorded requests
    (see toolscript feedback) that find another tool first than the one that served them. Changes nothing.

    With --propose, better descriptions follow, as overrides to be put into the configuration by hand. Each comes with
    R@5 of recorded requests that the model was not shown, now and with the new description.

    Exits with 3 when there is an error. Notes are about what may be intended.

    \b
    toolscript catalogue check
    toolscript catalogue check --propose 10
    """

    async def local(app: App) -> Answer:
        from toolscript.app.catalogue_check import build_catalogue_check
        from toolscript.surfaces.json.catalogue_check import build_catalogue_check_response

        report = await build_catalogue_check(app).run(similarity=similarity, proposals=proposals)
        return build_catalogue_check_response(report)

    answer = request_once(
        PATH, local, show=_show, timeout_seconds=TIMEOUT_SECONDS, similarity=similarity, proposals=proposals
    )
    if not answer["ok"]:
        sys.exit(SOMETHING_WRONG)


def _show(answer: Answer) -> None:
    findings = sorted(answer["findings"], key=lambda finding: finding["level"])
    columns: Columns = {"Level": "level", "Tools": _name_tools, "Finding": "text"}
    print_table(columns, findings[:MAX_SHOWN], "No tool is mistaken for another.")
    if len(findings) > MAX_SHOWN:
        click.echo(f"… and {len(findings) - MAX_SHOWN} more (--json has all)")
    checked = f"{format_count(answer['tools'], 'tool')} and {format_count(answer['requests'], 'recorded request')}"
    click.echo(
        f"\nChecked {checked}: {format_count(answer['errors'], 'error')}, {format_count(answer['notes'], 'note')}."
    )
    if answer["compared"] < answer["tools"]:
        click.echo(f"Only {format_count(answer['compared'], 'tool')} could be compared: the others have no vector.")
    if answer["proposals"]:
        _show_proposals(answer["proposals"])


def _name_tools(finding: Answer) -> str:
    tools = finding["tools"]
    return ", ".join(tools[:MAX_TOOLS]) + (f" and {len(tools) - MAX_TOOLS} more" if len(tools) > MAX_TOOLS else "")


def _show_proposals(proposals: list[Answer]) -> None:
    click.echo()
    columns: Columns = {
        "Tool": "tool_id",
        "R@5 now": lambda each: _format_share(each["r5_before"]),
        "Then": lambda each: _format_share(each["r5_after"]),
        "Measured on": "measured_on",
        "Note": "reason",
    }
    print_table(columns, proposals)
    overrides: dict[str, dict[str, Any]] = {}
    for proposal in proposals:
        if proposal["override"]:
            overrides.setdefault(proposal["server"], {}).update(proposal["override"]["tools"])
    for server, tools in overrides.items():
        click.echo(f"\nFor the entry of the server {server}, if you agree:\n")
        click.echo(format_json({"tools": tools}, indent=2))


def _format_share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
