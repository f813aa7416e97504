"""`toolscript index`: the vector index, which can always be rebuilt from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from toolscript.settings import Settings
from toolscript.surfaces.cli.client.ask import settings_of, tell
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import bar

if TYPE_CHECKING:
    from toolscript.app.app import App

NOT_INDEXED = "knowledge is not indexed, so none is found: there is no embedding model (TOOLSCRIPT_SEARCH_MODEL)"


@click.group()
def index() -> None:
    """Look after the vector index."""


@index.command()
@options.model
@options.data_dir
@options.as_json
def rebuild(as_json: bool, **flags: Any) -> None:
    """Drop the index and build it anew from the store, with the model now in use.

    Needed after a change of model; asks the hub again for a model that could not be had before. Tools, skills,
    documents and knowledge are indexed.
    """
    tell(asyncio.run(_rebuild(settings_of(flags))), as_json, _say)


async def _rebuild(settings: Settings) -> dict[str, Any]:
    from toolscript.app.app import open_app
    from toolscript.services.catalogue.skill_points import SKILLS

    async with open_app(settings, fresh_index=True) as opened:
        with bar("Tools") as shown:
            tools = await opened.sync.index_catalogue(shown)
        with bar("Documents") as shown:
            documents = await opened.ingest_documents.index_all(shown)
        with bar("Knowledge") as shown:
            knowledge = await _index_knowledge(opened, shown)
        return {
            "model": opened.model.embedder.model if opened.model.embedder else None,
            "tools": tools.written,
            "skills": len({p.payload["skill_id"] for p in await opened.index.scroll(SKILLS, fields=["skill_id"])}),
            "documents": documents,
            "knowledge": knowledge,
        }


async def _index_knowledge(opened: App, shown: Callable[[int, int], None]) -> int | None:
    """How many points of knowledge were made; None where there is some and no model, without which it is not found."""
    if opened.model.embedder is None and await opened.knowledge.list_sources():
        return None
    return await opened.ingest_knowledge.index_all(shown) if opened.ingest_knowledge else 0


def _say(told: Mapping[str, Any]) -> None:
    counts = f"{told['tools']} tools, {told['skills']} skills, {told['documents']} documents"
    known = f"{told['knowledge'] or 0} chunks and extractions of knowledge"
    if told["knowledge"] is None:
        click.echo(click.style("note: ", fg="yellow") + NOT_INDEXED, err=True)
    click.echo(f"Indexed {counts} and {known} with {told['model'] or 'no model: words only'}.")
