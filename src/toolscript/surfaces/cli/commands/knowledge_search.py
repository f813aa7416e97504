"""`toolscript knowledge search`: passages that answer a question, each with a citation."""

from __future__ import annotations

import asyncio
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from toolscript.settings import Settings
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import print_answer, print_note, printable
from toolscript.surfaces.json.citations import format_citation
from toolscript.surfaces.json.knowledge import build_knowledge_response

if TYPE_CHECKING:
    from toolscript.app.app import App

Answer = Mapping[str, Any]

PASSAGE_CHARACTERS = 600
MAX_WIDTH = 100
INDENT = "     "
NO_SOURCES = "No sources yet: add some with toolscript knowledge ingest FILE."


@click.command()
@click.argument("query")
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="Maximum number of results.")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only chunk, extraction, or a type of extractions, like decision or warning; repeatable.",
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only results about this topic; repeatable.")
@click.option("--full", is_flag=True, help="Print whole passages.")
@options.data_dir
@options.as_json
def search(query: str, full: bool, as_json: bool, **given: Any) -> None:
    """Find passages in the sources.

    A gateway that runs on the data folder is used. --json prints the response of POST /search_knowledge.

    \b
    toolscript knowledge search "how do I undo a commit"
    toolscript knowledge search "backups" --type warning --type decision
    toolscript knowledge search "indexes" --topic postgresql --limit 3 --full
    """
    limit, types, topics = (given.pop(name) for name in ("limit", "types", "topics"))
    settings = read_settings(given)

    async def local(app: App) -> Answer:
        from toolscript.services.knowledge.search import KnowledgeQuery

        return build_knowledge_response(
            query, await app.knowledge_search.search(KnowledgeQuery(query, limit, types, topics))
        )

    async def request(session: CommandSession) -> Answer:
        body = {"query": query, "limit": limit, "type": list(types), "topics": list(topics)}
        # The tenant's token makes it a request of the folder's owner, which has no rate limit.
        answer: Answer = await session.request("/search_knowledge", local, body=body, tenant=settings.tenant)
        return answer

    answer = run_in_session(settings, request, with_catalogue=False)
    print_answer(answer, as_json, lambda _: _show(answer, settings, None if full else PASSAGE_CHARACTERS))


def _show(answer: Answer, settings: Settings, max_characters: int | None) -> None:
    width = max(min(shutil.get_terminal_size().columns, MAX_WIDTH) - 1, 20 + len(INDENT))
    for number, hit in enumerate(answer["results"], start=1):
        score = click.style(f"{hit['score']:.3f}", dim=True)
        click.echo(("" if number == 1 else "\n") + f"{number:>3}  {score}  {hit['type']}")
        for line in _wrap_passage(_shorten(hit["content"], max_characters), width):
            click.echo(line)
        cited = printable(format_citation(hit))
        for line in textwrap.wrap(cited, width, initial_indent=f"{INDENT}— ", subsequent_indent=f"{INDENT}  "):
            click.echo(click.style(line, fg="cyan"))
    if not answer["results"]:
        click.echo(asyncio.run(_explain_no_results(settings)))
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

    async with open_library(settings) as library:
        if await library.list_sources():
            return "Nothing found. Try other words, or leave out --type and --topic."
    return NO_SOURCES
