"""`toolscript sync`: catalogue, skills and index brought to what the servers offer now."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from toolscript.settings import Settings
from toolscript.surfaces.cli.client.ask import places, settings_of, tell
from toolscript.surfaces.cli.client.catalogue import configuration_of, is_demo, load_demo, read_anew
from toolscript.surfaces.cli.client.gateway import ask
from toolscript.surfaces.cli.terminal.progress import bar
from toolscript.surfaces.cli.terminal.tables import print_table
from toolscript.surfaces.cli.terminal.text import printable

# Every tool may have to be embedded, and a language model asked about each.
PATIENCE_SECONDS = 3600.0

Answer = Mapping[str, Any]


@click.command()
@click.option("--reclassify", is_flag=True, help="Sort every tool into skills anew, not only what is new or changed.")
@click.option("--force", is_flag=True, help="The same, and also of tools that a person has put into skills.")
@places
def sync(reclassify: bool, force: bool, as_json: bool, **flags: Any) -> None:
    """Bring catalogue, skills and index to what the servers offer now.

    A gateway that runs on the data folder does it; without one the configured servers are connected, or the built-in
    demo catalogue is loaded when nothing is configured. New and changed tools are sorted into skills, and the language
    model looks at them too where one is configured (TOOLSCRIPT_LLM_URL). A server that fails is named, and the others
    are synced. Ends with 3 when none of them could be.

    \b
    toolscript sync
    toolscript sync --reclassify --json
    """
    settings = settings_of(flags)
    answer = _by_the_gateway(settings, {"reclassify": reclassify, "force": force})
    if answer is None:
        answer = asyncio.run(_synced(settings, reclassify=reclassify, force=force))
    tell(answer, as_json, _show)
    if answer["servers"] and all(s["error"] for s in answer["servers"]):
        sys.exit(3)


def _by_the_gateway(settings: Settings, body: Mapping[str, bool]) -> Any:
    from rich.console import Console

    with Console(stderr=True).status("Syncing"):
        return ask(settings, "/api/v1/sync", body=body, patience=PATIENCE_SECONDS)


async def _synced(settings: Settings, *, reclassify: bool, force: bool) -> Answer:
    configuration = configuration_of(settings)
    from toolscript.app.app import open_app  # --help must not wait for engines to load
    from toolscript.surfaces.json.hierarchical import build_sync_response

    async with open_app(settings) as app:
        loaded = 0
        if is_demo(configuration):
            loaded = (await load_demo(app)).classified
        else:
            await read_anew(app, configuration.servers, within=PATIENCE_SECONDS)
        with bar("Sorting into skills") as shown:
            report = await app.resync.run(reclassify=reclassify, force=force, just_connected=True, progress=shown)
    return build_sync_response(replace(report, classified=report.classified + loaded))


def _show(answer: Answer) -> None:
    if answer["servers"]:
        rows = [
            (s["name"], *(str(s[count]) for count in ("added", "changed", "vanished")), printable(s["error"] or ""))
            for s in answer["servers"]
        ]
        print_table(("Server", "Added", "Changed", "Gone", "Error"), rows, right=("Added", "Changed", "Gone"))
        click.echo()
    else:
        click.echo("No servers are configured: this is the demo catalogue, or that of a file without servers.")
    refined = f", {answer['refined']} looked at by the language model" if answer["refined"] else ""
    waiting = "1 suggestion waits" if answer["waiting"] == 1 else f"{answer['waiting']} suggestions wait"
    click.echo(f"{answer['items']} tools, {answer['classified']} newly classified{refined}; {waiting} for a decision")
    if answer["waiting"]:
        click.echo("toolscript skills suggestions shows what waits.")
