"""`toolscript knowledge`: lists, removes and searches sources that can be cited."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import textwrap
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import SourceStatus
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.commands.knowledge_files import export, import_
from toolscript.surfaces.cli.ingest.command import ingest_knowledge
from toolscript.surfaces.cli.ingest.sources import list_sources, remove_source
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import (
    NOTHING_RELEVANT,
    confirm_or_raise,
    print_answer,
    print_note,
    printable,
)
from toolscript.surfaces.cli.terminal.values import format_conditions, parse_conditions
from toolscript.surfaces.json.citations import format_citation

if TYPE_CHECKING:
    from toolscript.app.app import App

Answer = Mapping[str, Any]

PASSAGE_CHARACTERS = 600
MAX_WIDTH = 100
INDENT = "     "
NOTHING_FOUND = "Nothing found. Try other words, or leave out --type, --topic, --filter and --min-relevance."
NO_SOURCES = "No sources yet: add some with toolscript knowledge ingest FILE."


@click.group(cls=CommandGroup)
def knowledge() -> None:
    """Ingest books, papers and other long texts, search in them, and cite them.

    Every result names its source, chapter, section and page. Anyone who can reach the gateway can search, without a
    key.
    """


@knowledge.command("list")
@options.data_dir
@options.as_json
def list_() -> None:
    """List the sources by title."""
    print_answer(asyncio.run(_list_sources(read_settings())), _show_list)


@knowledge.command()
@click.argument("references", nargs=-1, required=True, metavar="SOURCE...")
@options.yes
@options.data_dir
@options.as_json
def remove(references: tuple[str, ...], yes: bool) -> None:
    """Remove sources, with their chunks and extractions.

    SOURCE is an id, a path, a title, or the beginning of exactly one title. When one of them does not exist, nothing is
    removed. Without a terminal, --yes is required. A gateway that runs on the data folder is used.

    \b
    toolscript knowledge remove "The Debian Adm"
    toolscript knowledge remove 5f0c2a9d3b7e41c8a6f0d2e1 --yes
    """
    settings = replace(read_settings(), gateway_url=None)  # the sources are listed here
    if not yes and not (sys.stdin and sys.stdin.isatty()):
        raise Invalid(
            "nothing was removed: there is no terminal for the confirmation; use --yes", details={"field": "--yes"}
        )

    def run(session: CommandSession) -> Awaitable[Answer]:
        return _remove_sources(session, references, is_confirmed=yes)

    print_answer(run_in_session(settings, run, with_catalogue=False), _show_removed)


@knowledge.command()
@click.argument("query")
@options.limit(100, 10, "results")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only chunk, extraction, or a type of extractions, like decision or warning; repeatable.",
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only results about this topic; repeatable.")
@options.filters
@click.option("--answer", is_flag=True, help="Answer from the results, with a language model (TOOLSCRIPT_LLM_URL).")
@click.option(
    "--context",
    type=click.Choice(["passage", "section"]),
    default="passage",
    help="Return each passage, or the section around it.",
)
@options.min_relevance("results")
@click.option("--full", is_flag=True, help="Print whole passages.")
@options.store
def search(
    query: str,
    limit: int,
    types: tuple[str, ...],
    topics: tuple[str, ...],
    filters: tuple[str, ...],
    answer: bool,
    context: str,
    min_relevance: float | None,
    full: bool,
) -> None:
    """Find passages in the sources.

    A gateway that runs on the data folder is used. --json prints the response of POST /search_knowledge.

    \b
    toolscript knowledge search "how do I undo a commit"
    toolscript knowledge search "how do I undo a commit" --answer
    toolscript knowledge search "backups" --type warning --type decision
    toolscript knowledge search "indexes" --topic postgresql --limit 3 --full
    toolscript knowledge search lease --filter authors~rodin --filter "date>=2024"
    """
    settings, where = read_settings(), parse_conditions(filters, "--filter")

    async def local(app: App) -> Answer:
        from toolscript.services.knowledge.context import PassageContext
        from toolscript.services.knowledge.search import KnowledgeQuery
        from toolscript.surfaces.json.knowledge import build_knowledge_response

        wanted = KnowledgeQuery(query, limit, types, topics, answer, PassageContext(context), where, min_relevance)
        return build_knowledge_response(query, await app.texts.knowledge_search.search(wanted))

    def request(session: CommandSession) -> Awaitable[Any]:
        body = {"query": query, "limit": limit, "type": list(types), "topics": list(topics)}
        body |= ({"answer": True} if answer else {}) | ({"context": context} if context != "passage" else {})
        body |= {"filters": format_conditions(where)} if where.must else {}
        body |= {} if min_relevance is None else {"min_relevance": min_relevance}
        # The tenant's token makes it a request of the folder's owner, which has no rate limit.
        tenant = None if settings.gateway_url else settings.tenant
        return session.request("/search_knowledge", local, body=body, tenant=tenant)

    response = run_in_session(settings, request, with_catalogue=False)
    print_answer(response, lambda _: _show_response(response, settings, None if full else PASSAGE_CHARACTERS))


for command in (ingest_knowledge, export, import_):
    knowledge.add_command(command)


async def _list_sources(settings: Settings) -> Answer:
    from toolscript.app.app import open_library
    from toolscript.surfaces.json.knowledge import build_sources_response

    async with open_library(settings) as library:
        return build_sources_response(await library.list_sources(), await library.count_contents())


async def _remove_sources(session: CommandSession, references: Sequence[str], *, is_confirmed: bool) -> Answer:
    from toolscript.services.knowledge.ingest import find_source

    existing = await list_sources(session)
    sources = {each.id: each for each in (find_source(existing, reference) for reference in references)}
    if not is_confirmed:
        confirm_or_raise(f"Remove {', '.join(printable(each.title) for each in sources.values())}?")
    for source_id in sources:
        await remove_source(session, source_id)
    return {"removed": [{"id": each.id, "title": each.title} for each in sources.values()]}


def _show_list(answer: Answer) -> None:
    columns: Columns = {
        "Title": "title",
        "Authors": "authors",
        "Type": "type",
        "Chunks": "chunks",
        "Extractions": "extractions",
        "Ingested": lambda source: source["ingested_at"][:10],
        "Id": "id",
    }
    print_table(columns, answer["sources"], NO_SOURCES, shortened=("Title", "Authors"), optional=("Ingested", "Type"))
    for each in answer["sources"]:
        if each["status"] == SourceStatus.INDEXING:
            print_note(f"{each['title']} is incomplete: ingest it again, or run toolscript index rebuild")


def _show_removed(answer: Answer) -> None:
    for each in answer["removed"]:
        click.echo(f"Removed {printable(each['title'])}.")


def _show_response(response: Answer, settings: Settings, max_characters: int | None) -> None:
    width = max(min(shutil.get_terminal_size().columns, MAX_WIDTH) - 1, 20 + len(INDENT))
    if answer := response.get("answer"):
        text = answer["text"] or f"No answer: {answer['note']}."
        click.echo("\n".join(textwrap.wrap(printable(text), width)) + "\n")
    _show_hits(response, settings, max_characters, width)


def _show_hits(answer: Answer, settings: Settings, max_characters: int | None, width: int) -> None:
    for number, hit in enumerate(answer["results"], start=1):
        relevance = "" if hit["relevance"] is None else click.style(f"{hit['relevance']:.2f}  ", dim=True)
        click.echo(("" if number == 1 else "\n") + f"{number:>3}  {relevance}{hit['type']}")
        for line in _wrap_passage(_shorten(hit["content"], max_characters), width):
            click.echo(line)
        cited = printable(format_citation(hit))
        for line in textwrap.wrap(cited, width, initial_indent=f"{INDENT}— ", subsequent_indent=f"{INDENT}  "):
            click.echo(click.style(line, fg="cyan"))
        for copy in hit.get("also_in", ()):
            click.echo(f"{INDENT}  also in {printable(format_citation({'source': copy}))}")
    if not answer["results"]:
        click.echo(asyncio.run(_explain_no_results(settings)))
    elif answer["metadata"]["nothing_relevant"]:
        print_note(NOTHING_RELEVANT)
    degraded = answer["metadata"].get("degraded")
    if degraded:
        print_note(f"incomplete results: {', '.join(degraded)} failed")


def _shorten(content: str, max_characters: int | None) -> str:
    """The content, or its beginning, cut between two words."""
    content = content.strip()
    if max_characters is None or len(content) <= max_characters:
        return content
    start = content[:max_characters]
    last_word = re.search(r"\s+\S*$", start)
    return (start[: last_word.start()] if last_word and last_word.start() > max_characters // 2 else start) + " …"


def _wrap_passage(content: str, width: int) -> Iterator[str]:
    """The lines of a passage: prose is wrapped; code, tables and lists keep their lines."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", content)):
        if number:
            yield ""
        lines = [printable(line.expandtabs(4).rstrip()) for line in paragraph.splitlines()]
        has_layout = any(re.match(r"\s|[|*+#>$-]|\d+[.)]\s|```|\w+: ", line) for line in lines)
        for line in lines if has_layout else [" ".join(lines)]:
            indent = INDENT + line[: len(line) - len(line.lstrip())]
            yield from textwrap.wrap(
                line.strip(), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
            )


async def _explain_no_results(settings: Settings) -> str:
    from toolscript.app.app import open_library

    if settings.gateway_url:
        return NOTHING_FOUND
    async with open_library(settings) as library:
        if await library.list_sources():
            return NOTHING_FOUND
    return NO_SOURCES
