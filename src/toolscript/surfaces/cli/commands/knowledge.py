"""`toolscript knowledge`: sources that can be cited. Ingest them, list them, remove them, carry them elsewhere, search
in them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import SourceStatus
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.ask import settings_of, tell
from toolscript.surfaces.cli.client.knowledge import open_to_write
from toolscript.surfaces.cli.commands.knowledge_ingest import ingest
from toolscript.surfaces.cli.commands.knowledge_search import search
from toolscript.surfaces.cli.commands.knowledge_transfer import export, import_
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import print_lines
from toolscript.surfaces.cli.terminal.text import printable
from toolscript.surfaces.json.knowledge import build_source_response

if TYPE_CHECKING:
    from toolscript.domain.knowledge import Source

Answer = Mapping[str, Any]


@click.group()
def knowledge() -> None:
    """Books, papers and other long texts: ingest them, search in them, cite them.

    What is found says where it stands: source, chapter, section, page. Whoever can reach the gateway may search in it,
    without a key.
    """


@knowledge.command("list")
@options.data_dir
@options.as_json
def list_(as_json: bool, **flags: Any) -> None:
    """List the sources by title."""
    tell(asyncio.run(_listed(settings_of(flags))), as_json, _show_list)


@knowledge.command()
@click.argument("references", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.data_dir
@options.as_json
def remove(references: tuple[str, ...], yes: bool, as_json: bool, **flags: Any) -> None:
    """Remove sources, with all that was made of them.

    SOURCE is an id, a path, a title, or what only one title begins with. Nothing is removed when one of them is not
    there. Without a terminal to ask in, --yes is needed. A gateway that runs on the data folder has to be stopped for
    as long.

    \b
    toolscript knowledge remove "The Debian Adm"
    toolscript knowledge remove 5f0c2a9d3b7e41c8a6f0d2e1 --yes
    """
    settings = settings_of(flags)
    if not yes and not (sys.stdin and sys.stdin.isatty()):
        raise Invalid("there is no terminal to ask in, and nothing was removed: give --yes", details={"field": "--yes"})
    tell(asyncio.run(_removed(settings, references, is_asked=not yes)), as_json, _show_removed)


for command in (ingest, search, export, import_):
    knowledge.add_command(command)


async def _listed(settings: Settings) -> Answer:
    from toolscript.app.app import open_library

    async with open_library(settings) as library:
        counts = await library.count_contents()
        return {"sources": [_told(each, *counts.get(each.id, (0, 0))) for each in await library.list_sources()]}


def _told(source: Source, chunks: int, extractions: int) -> dict[str, Any]:
    return {
        **build_source_response(source),
        "chunks": chunks,
        "extractions": extractions,
        "ingested_at": source.ingested_at,
        "status": source.status,
    }


async def _removed(settings: Settings, references: Sequence[str], *, is_asked: bool) -> Answer:
    async with open_to_write(settings) as library:
        found = [await library.ingest.find(reference) for reference in references]
        sources = {each.id: each for each in found}
        if is_asked:
            _make_sure([each.title for each in sources.values()])
        for source_id in sources:
            await library.ingest.remove(source_id)
        return {"removed": [{"id": each.id, "title": each.title} for each in sources.values()]}


def _make_sure(titles: Sequence[str]) -> None:
    try:
        is_sure = click.confirm(f"Remove {', '.join(map(printable, titles))}?", err=True)
    except click.Abort:
        is_sure = False
        click.echo(err=True)
    if not is_sure:
        raise Invalid("nothing was removed: --yes removes without asking")


def _show_list(answer: Answer) -> None:
    rows = [
        (
            each["title"],
            ", ".join(each["authors"]),
            each["type"],
            f"{each['chunks']:,}",
            f"{each['extractions']:,}",
            each["ingested_at"][:10],
            each["id"],
        )
        for each in answer["sources"]
    ]
    if not rows:
        click.echo("There are no sources yet: toolscript knowledge ingest FILE puts some in.")
        return
    columns = ("Title", "Authors", "Type", "Chunks", "Extractions", "Ingested", "Id")
    print_lines(columns, rows, right=("Chunks", "Extractions"), short=("Title", "Authors"), spare=("Ingested", "Type"))
    for each in answer["sources"]:
        if each["status"] == SourceStatus.INDEXING:
            told = f"{printable(each['title'])} is not whole yet: ingest it again, or run toolscript index rebuild"
            click.echo(click.style("note: ", fg="yellow") + told, err=True)


def _show_removed(answer: Answer) -> None:
    for each in answer["removed"]:
        click.echo(f"Removed {printable(each['title'])}.")
