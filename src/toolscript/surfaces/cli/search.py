"""`toolscript search`: the right tools for a task, in the terminal."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli import options
from toolscript.surfaces.cli.running import ask
from toolscript.surfaces.logs import write_logs


@click.command()
@click.argument("query")
@options.overrides("search_limit", "--limit", metavar="N")
@options.overrides("search_threshold", "--threshold", metavar="0..1")
@options.model
@options.data_dir
@options.as_json
def search(query: str, as_json: bool, **flags: Any) -> None:
    """Find the tools for a task.

    QUERY says what the tool should do, or its name; typos are forgiven. Until servers are configured, the built-in
    demo catalogue is searched. A gateway that runs on the same data folder is asked, unless --model is given.

    \b
    toolscript search "put my changes into version control"
    toolscript search read_fil --limit 1
    """
    settings = load_settings(**flags)
    write_logs(settings.log_level)
    answer = _ask_gateway(settings, query) if flags["search_model"] is None else None
    if answer is None:
        answer = asyncio.run(_search(settings, query))
    if as_json:
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        show(answer)


def show(answer: Mapping[str, Any]) -> None:
    """Prints an answer as a table, or what to try when it is empty."""
    from rich.console import Console
    from rich.table import Table

    if not answer["results"]:
        click.echo("No tools found matching query")
        click.echo("Try different keywords, or lower the threshold with --threshold.")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("Tool", style="cyan", overflow="fold")
    table.add_column("Confidence", justify="right")
    table.add_column("Reason", overflow="fold")
    for hit in answer["results"]:
        table.add_row(hit["toolId"], f"{hit['confidence']:.2f}", hit["reason"])
    # A file or a pipe has no width to fit: a line stays a line.
    fits = sys.stdout.isatty() or "COLUMNS" in os.environ
    Console(highlight=False, width=None if fits else 200).print(table)


def _ask_gateway(settings: Settings, query: str) -> Mapping[str, Any] | None:
    answer: Mapping[str, Any] | None = ask(
        settings.data, "/search", q=query, limit=settings.search_limit, threshold=settings.search_threshold
    )
    return answer


async def _search(settings: Settings, query: str) -> Mapping[str, Any]:
    from toolscript.app import open_app  # --help must not wait for engines to load
    from toolscript.services.demo import demo_items
    from toolscript.surfaces.answers import search_answer

    async with open_app(settings) as app:
        await app.sync.run(demo_items())
        found = await app.tool_search.search(query, limit=settings.search_limit, threshold=settings.search_threshold)
        return search_answer(found)
