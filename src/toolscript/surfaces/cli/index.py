"""`toolscript index`: the vector index, which can always be rebuilt from the store."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli import options
from toolscript.surfaces.logs import write_logs


@click.group()
def index() -> None:
    """Look after the vector index."""


@index.command()
@options.model
@options.data_dir
@options.as_json
def rebuild(as_json: bool, **flags: Any) -> None:
    """Drop the index and build it anew from the store, with the model now in use.

    Needed after a change of model; asks the hub again for a model that could not be had before.
    """
    settings = load_settings(**flags)
    write_logs(settings.log_level)
    used, tools, documents = asyncio.run(_rebuild(settings))
    if as_json:
        click.echo(json.dumps({"model": used, "tools": tools, "documents": documents}))
    else:
        click.echo(f"Indexed {tools} tools and {documents} documents with {used or 'no model: words only'}.")


async def _rebuild(settings: Settings) -> tuple[str | None, int, int]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from toolscript.app import open_app

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    async with open_app(settings, fresh_index=True) as opened:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("Tools")
            tools = await opened.sync.index_catalogue(lambda done, total: bar.update(task, completed=done, total=total))
            task = bar.add_task("Documents")
            documents = await opened.ingest_documents.index_all(
                lambda done, total: bar.update(task, completed=done, total=total)
            )
        return (opened.model.embedder.model if opened.model.embedder else None), tools.written, documents
