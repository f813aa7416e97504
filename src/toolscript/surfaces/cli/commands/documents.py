"""`toolscript documents`: search in a tenant's documents, look at them, remove them."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import click

from toolscript.domain.errors import NotFound
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.ask import settings_of, tell
from toolscript.surfaces.cli.client.documents import Documents, documents_of
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import print_table
from toolscript.surfaces.cli.terminal.text import printable
from toolscript.surfaces.cli.terminal.values import conditions

Command = TypeVar("Command", bound=Callable[..., Any])
Answer = Mapping[str, Any]

SNIPPET_CHARACTERS = 240
_MARKED = re.compile(r"\*\*(.+?)\*\*")


def _places(command: Command) -> Command:
    tenant = options.overrides("tenant", "--tenant", metavar="NAME")
    return tenant(options.data_dir(options.as_json(command)))


@click.group()
def documents() -> None:
    """Search in documents, look at them, remove them.

    They are those of one tenant: TOOLSCRIPT_TENANT, or --tenant. A gateway that runs on the data folder is asked.
    """


@documents.command()
@click.argument("query", required=False, default="")
@click.option(
    "--type",
    "search_type",
    type=click.Choice(["hybrid", "semantic", "keyword"]),
    default="hybrid",
    help="By meaning, by words (BM25), or both.  [default: hybrid]",
)
@click.option("--fusion", type=click.Choice(["rrf", "zscore"]), help="How hybrid brings the two together.")
@click.option("--filter", "filters", multiple=True, metavar="FIELD=VALUE", help="Also != >= <= > < and ~ (contains).")
@click.option("--limit", type=click.IntRange(1, 200), default=10, show_default=True, help="Most documents.")
@click.option("--offset", type=click.IntRange(0, 10_000), default=0, help="How many to pass over.")
@click.option("--rerank", is_flag=True, help="Have the best put in a better order (TOOLSCRIPT_RERANKER).")
@_places
def search(query: str, filters: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Find documents.

    Without a QUERY, all that pass the filters, by id.

    \b
    toolscript documents search "how do we rotate the keys"
    toolscript documents search lease --type keyword --filter year>=2024 --filter tags=contract
    toolscript documents search --filter team=search
    """
    how = {name: given.pop(name) for name in ("search_type", "fusion", "limit", "offset", "rerank")}
    where = conditions(filters, "--filter")
    in_colour = not as_json and sys.stdout.isatty()

    async def found(opened: Documents) -> Answer:
        from toolscript.services.documents.search import DocumentQuery, SearchType

        wanted = DocumentQuery(
            query=query or None,
            top_k=how["limit"],
            offset=how["offset"],
            search_type=SearchType(how["search_type"]),
            fusion=how["fusion"],
            where=where,
            snippet_max_chars=SNIPPET_CHARACTERS,
            highlight=in_colour,
            rerank=how["rerank"],
        )
        return await opened.search(wanted)

    tell(_answered(settings_of(given), found), as_json, lambda told: _show_hits(told, how["offset"]))


@documents.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Most documents.")
@click.option("--after", metavar="ID", help="Begin after this id.")
@_places
def list_(limit: int, after: str | None, as_json: bool, **flags: Any) -> None:
    """List documents by id."""

    async def listed(opened: Documents) -> Answer:
        return await opened.listing(after=after, limit=limit)

    tell(_answered(settings_of(flags), listed), as_json, _show_list)


@documents.command()
@click.argument("doc_id", metavar="ID")
@_places
def show(doc_id: str, as_json: bool, **flags: Any) -> None:
    """Print a document: title, metadata, text."""

    async def got(opened: Documents) -> Answer:
        return await opened.get(doc_id)

    tell(_answered(settings_of(flags), got), as_json, _show_document)


@documents.command()
@click.argument("doc_ids", nargs=-1, required=True, metavar="ID...")
@_places
def remove(doc_ids: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Remove documents. Those that are not there are named, and the others removed; ends with 4 when none was there."""

    async def removed(opened: Documents) -> Answer:
        gone = [doc_id for doc_id in dict.fromkeys(doc_ids) if await opened.remove([doc_id])]
        return {"removed": gone, "missing": [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id not in gone]}

    answer = _answered(settings_of(flags), removed)
    if not answer["removed"]:
        raise NotFound(f"there is no document {' or '.join(map(repr, doc_ids))}: toolscript documents list shows all")
    tell(answer, as_json, _show_removed)


def _answered(settings: Settings, use: Callable[[Documents], Awaitable[Answer]]) -> Any:
    async def opened() -> Answer:
        async with documents_of(settings) as those:
            return await use(those)

    return asyncio.run(opened())


def _show_hits(answer: Answer, offset: int) -> None:
    width = min(shutil.get_terminal_size().columns, 110) - 4
    for number, hit in enumerate(answer["hits"], start=offset + 1):
        title = str(hit["metadata"].get("title") or "")
        name, score = click.style(printable(hit["doc_id"]), fg="cyan"), click.style(f"{hit['score']:.3f}", dim=True)
        click.echo(
            f"{number:>3} {name}  {score}" + (f"  {printable(title)}" if title and title != hit["doc_id"] else "")
        )
        for line in textwrap.wrap(" ".join(printable(hit["snippet"] or "").split()), max(width, 20)):
            click.echo("    " + _MARKED.sub(lambda found: click.style(found[1], bold=True), line))
    if not answer["hits"]:
        click.echo("No documents found")
    else:
        more = " or more" if answer["total_relation"] == "gte" else ""
        last = offset + len(answer["hits"])
        click.echo(f"\n{offset + 1} to {last} of {answer['total']}{more}", nl=False)
        click.echo(f"; --offset {last} shows what follows" if answer["next_page_token"] else "")
    if answer["degraded"]:
        click.echo(click.style("note: ", fg="yellow") + f"done without: {', '.join(answer['degraded'])}", err=True)


def _show_list(answer: Answer) -> None:
    rows = [(each["id"], each["title"], f"{each['characters']:,}") for each in answer["documents"]]
    if rows:
        print_table(("Document", "Title", "Characters"), rows, right=("Characters",))
    else:
        click.echo("No documents: toolscript ingest puts some in")
    if answer["next"]:
        click.echo(f"\nMore: --after {printable(answer['next'])}")


def _show_document(answer: Answer) -> None:
    click.echo(click.style(printable(answer["title"] or answer["id"]), bold=True))
    for name, value in answer["metadata"].items():
        told = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(f"{click.style(printable(name), fg='cyan')}: {printable(str(told))}")
    click.echo()
    text = answer["text"]
    click.echo("\n".join(map(printable, text.splitlines())) if sys.stdout.isatty() else text)


def _show_removed(answer: Answer) -> None:
    count = len(answer["removed"])
    click.echo(f"{count} document{'' if count == 1 else 's'} removed")
    for doc_id in answer["missing"]:
        click.echo(click.style("note: ", fg="yellow") + f"there is no document {printable(doc_id)!r}", err=True)
