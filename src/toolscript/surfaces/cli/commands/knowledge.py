"""`toolscript knowledge`: ingests, searches, lists, removes, exports and imports sources that can be cited."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import SourceStatus
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.session import open_knowledge_writer, read_settings
from toolscript.surfaces.cli.commands.knowledge_ingest import ingest
from toolscript.surfaces.cli.commands.knowledge_search import NO_SOURCES, search
from toolscript.surfaces.cli.commands.knowledge_transfer import export, import_
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import print_lines
from toolscript.surfaces.cli.terminal.text import confirm_or_raise, print_answer, print_note, printable
from toolscript.surfaces.json.knowledge import build_source_response

if TYPE_CHECKING:
    from toolscript.domain.knowledge import Source

Answer = Mapping[str, Any]


@click.group()
def knowledge() -> None:
    """Ingest books, papers and other long texts, search in them, and cite them.

    Every result names its source, chapter, section and page. Anyone who can reach the gateway can search, without a
    key.
    """


@knowledge.command("list")
@options.data_dir
@options.as_json
def list_(as_json: bool, **flags: Any) -> None:
    """List the sources by title."""
    print_answer(asyncio.run(_list_sources(read_settings(flags))), as_json, _show_list)


@knowledge.command()
@click.argument("references", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.data_dir
@options.as_json
def remove(references: tuple[str, ...], yes: bool, as_json: bool, **flags: Any) -> None:
    """Remove sources, with their chunks and extractions.

    SOURCE is an id, a path, a title, or the beginning of exactly one title. When one of them does not exist, nothing is
    removed. Without a terminal, --yes is required. Stop a gateway that runs on the data folder first.

    \b
    toolscript knowledge remove "The Debian Adm"
    toolscript knowledge remove 5f0c2a9d3b7e41c8a6f0d2e1 --yes
    """
    settings = read_settings(flags)
    if not yes and not (sys.stdin and sys.stdin.isatty()):
        raise Invalid(
            "nothing was removed: there is no terminal for the confirmation; use --yes", details={"field": "--yes"}
        )
    print_answer(asyncio.run(_remove_sources(settings, references, is_confirmed=yes)), as_json, _show_removed)


for command in (ingest, search, export, import_):
    knowledge.add_command(command)


async def _list_sources(settings: Settings) -> Answer:
    from toolscript.app.app import open_library

    async with open_library(settings) as library:
        counts = await library.count_contents()
        return {
            "sources": [_build_source_row(each, *counts.get(each.id, (0, 0))) for each in await library.list_sources()]
        }


def _build_source_row(source: Source, chunks: int, extractions: int) -> dict[str, Any]:
    counts = {"chunks": chunks, "extractions": extractions}
    return {**build_source_response(source), **counts, "ingested_at": source.ingested_at, "status": source.status}


async def _remove_sources(settings: Settings, references: Sequence[str], *, is_confirmed: bool) -> Answer:
    async with open_knowledge_writer(settings) as writer:
        found = [await writer.ingest.find(reference) for reference in references]
        sources = {each.id: each for each in found}
        if not is_confirmed:
            confirm_or_raise(f"Remove {', '.join(printable(each.title) for each in sources.values())}?")
        for source_id in sources:
            await writer.ingest.remove(source_id)
        return {"removed": [{"id": each.id, "title": each.title} for each in sources.values()]}


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
        click.echo(NO_SOURCES)
        return
    columns = ("Title", "Authors", "Type", "Chunks", "Extractions", "Ingested", "Id")
    right = ("Chunks", "Extractions")
    print_lines(columns, rows, right=right, shortened=("Title", "Authors"), optional=("Ingested", "Type"))
    for each in answer["sources"]:
        if each["status"] == SourceStatus.INDEXING:
            print_note(f"{each['title']} is incomplete: ingest it again, or run toolscript index rebuild")


def _show_removed(answer: Answer) -> None:
    for each in answer["removed"]:
        click.echo(f"Removed {printable(each['title'])}.")
