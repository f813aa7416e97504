"""`toolscript index`: the vector index. It can always be rebuilt from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from toolscript.settings import Settings
from toolscript.surfaces.cli.client.catalogue import choose_catalogue
from toolscript.surfaces.cli.client.gateway import require_no_gateway
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.progress import show_bar
from toolscript.surfaces.cli.terminal.text import format_count, print_answer, print_note

NOT_INDEXED = "knowledge is not indexed and cannot be found: there is no embedding model (TOOLSCRIPT_SEARCH_MODEL)"


@click.group(cls=CommandGroup)
def index() -> None:
    """Maintain the vector index."""


@index.command()
@options.model
@options.data_dir
@options.as_json
def rebuild() -> None:
    """Delete the index and build it again from the store, with the current model.

    Needed after a change of model. Tools, skills, documents and knowledge are indexed. Stop a gateway that runs on the
    data folder first.
    """
    print_answer(asyncio.run(_rebuild(read_settings())), _show)


async def _rebuild(settings: Settings) -> dict[str, Any]:
    from toolscript.app.app import open_app
    from toolscript.services.catalogue.skill_points import SKILLS

    require_no_gateway(settings, "the index cannot be rebuilt")
    choice = choose_catalogue(settings)
    async with open_app(choice.settings, fresh_index=True, demo=choice.is_demo) as app:
        with show_bar("Tools") as show_progress:
            tools = await app.catalogue.sync.index_catalogue(show_progress)
        with show_bar("Documents") as show_progress:
            documents = await app.texts.ingest_documents.index_all(show_progress)
        with show_bar("Knowledge") as show_progress:
            # None when there is knowledge and no model to embed it with.
            is_lost = app.text_model.embedder is None and await app.stores.knowledge.list_sources()
            knowledge = None if is_lost else await app.texts.ingest_knowledge.index_all(show_progress)
        skills = await app.catalogue_index.scroll(SKILLS, fields=["skill_id"])
        return {
            "model": app.model.embedder.model if app.model.embedder else None,
            "text_model": app.text_model.embedder.model if app.text_model.embedder else None,
            "tools": tools.indexed,
            "skills": len({point.payload["skill_id"] for point in skills}),
            "documents": documents,
            "knowledge": knowledge,
        }


def _show(answer: Mapping[str, Any]) -> None:
    counts = ", ".join(format_count(answer[f"{noun}s"], noun) for noun in ("tool", "skill", "document"))
    knowledge = format_count(answer["knowledge"] or 0, "chunk or extraction", "chunks and extractions")
    if answer["knowledge"] is None:
        print_note(NOT_INDEXED)
    other = answer["text_model"] if answer["text_model"] != answer["model"] else None
    beside = f", documents and knowledge with {other}" if other else ""
    click.echo(
        f"Indexed {counts} and {knowledge} of knowledge with {answer['model'] or 'no model: words only'}{beside}."
    )
