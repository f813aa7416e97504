"""`toolscript sync`: updates catalogue, skills and index to what the servers offer now."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import show_bar
from toolscript.surfaces.cli.terminal.tables import print_table
from toolscript.surfaces.cli.terminal.text import format_count, print_answer

if TYPE_CHECKING:
    from toolscript.app.app import App

# Every tool may have to be embedded, and classified by a language model.
TIMEOUT_SECONDS = 3600.0

Answer = Mapping[str, Any]


@click.command()
@click.option("--reclassify", is_flag=True, help="Classify every tool again, not only new and changed ones.")
@click.option("--force", is_flag=True, help="The same, including tools that a person has assigned to skills.")
@options.catalogue
def sync(**wanted: bool) -> None:
    """Update catalogue, skills and index to what the servers offer now.

    A gateway that runs on the data folder does the work; without one the configured servers are connected, or the
    built-in demo catalogue is loaded when nothing is configured. New and changed tools are classified into skills, also
    by the language model if one is configured (TOOLSCRIPT_LLM_URL). Servers that fail are reported, and the others
    synced. Exits with 3 when all fail.

    \b
    toolscript sync
    toolscript sync --reclassify --json
    """

    async def request(session: CommandSession) -> Any:
        from rich.console import Console

        with nullcontext() if session.app else Console(stderr=True).status("Syncing"):
            return await session.request(
                "/api/v1/sync",
                lambda app: _sync(app, session.classified, **wanted),
                body=wanted,
                timeout_seconds=TIMEOUT_SECONDS,
            )

    answer = run_in_session(read_settings(), request, refresh=True, connect_seconds=TIMEOUT_SECONDS, name_failed=False)
    print_answer(answer, _show)
    if answer["servers"] and all(s["error"] for s in answer["servers"]):
        sys.exit(3)


async def _sync(app: App, classified: int, **wanted: bool) -> Answer:
    from toolscript.surfaces.json.hierarchical import build_sync_response

    with show_bar("Classifying tools") as show_progress:
        report = await app.servers.resync.run(**wanted, just_connected=True, progress=show_progress)
    return build_sync_response(replace(report, classified=report.classified + classified))


def _show(answer: Answer) -> None:
    columns = {"Server": "name", "Added": "added", "Changed": "changed", "Removed": "vanished", "Error": "error"}
    empty = "No servers are configured: this is the demo catalogue, or that of a file without servers."
    print_table(columns, answer["servers"], empty)
    if answer["servers"]:
        click.echo()
    refined = f", {answer['refined']} reviewed by the language model" if answer["refined"] else ""
    waiting = "1 suggestion waits" if answer["waiting"] == 1 else f"{answer['waiting']} suggestions wait"
    tools = format_count(answer["items"], "tool")
    click.echo(f"{tools}, {answer['classified']} newly classified{refined}; {waiting} for a decision")
    if answer["waiting"]:
        click.echo("See toolscript skills suggestions.")
