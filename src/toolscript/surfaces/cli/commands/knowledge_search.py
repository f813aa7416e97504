"""`toolscript knowledge search`: passages that answer a question, and where each stands, cited as a person would."""

from __future__ import annotations

import asyncio
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import click

from toolscript.settings import Settings
from toolscript.surfaces.cli.client.ask import settings_of, tell
from toolscript.surfaces.cli.client.gateway import ask
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import printable
from toolscript.surfaces.json.citations import format_citation

Answer = Mapping[str, Any]

PASSAGE_CHARACTERS = 600
WIDEST = 100
INDENT = "     "


@click.command()
@click.argument("query")
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="Most results.")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only chunk, extraction, or extractions of a type, as decision or warning; give it again for more.",
)
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Only what is about it; give it again for more."
)
@click.option("--full", is_flag=True, help="Print passages whole.")
@options.data_dir
@options.as_json
def search(query: str, full: bool, as_json: bool, **given: Any) -> None:
    """Find what the sources say about something.

    A gateway that runs on the data folder is asked. --json prints what POST /search_knowledge answers.

    \b
    toolscript knowledge search "how do I undo a commit"
    toolscript knowledge search "backups" --type warning --type decision
    toolscript knowledge search "indexes" --topic postgresql --limit 3 --full
    """
    wanted = {"query": query, **{name: given.pop(name) for name in ("limit", "types", "topics")}}
    settings = settings_of(given)
    answer = _from_gateway(settings, wanted)
    if answer is None:
        answer = asyncio.run(_found_here(settings, wanted))
    tell(answer, as_json, lambda told: _show(told, settings, None if full else PASSAGE_CHARACTERS))


def _from_gateway(settings: Settings, wanted: Mapping[str, Any]) -> Answer | None:
    """What the gateway answers, asked as the owner of the data folder, whom it does not count."""
    body = {
        "query": wanted["query"],
        "limit": wanted["limit"],
        "type": list(wanted["types"]),
        "topics": list(wanted["topics"]),
    }
    if ask(settings, "/health") is None:
        return None
    answer: Answer | None = ask(settings, "/search_knowledge", body=body, tenant=settings.tenant)
    return answer


async def _found_here(settings: Settings, wanted: Mapping[str, Any]) -> Answer:
    from toolscript.app.app import open_app  # --help must not wait for engines to load
    from toolscript.services.knowledge.search import KnowledgeQuery
    from toolscript.surfaces.json.knowledge import build_knowledge_response

    async with open_app(settings) as app:
        return build_knowledge_response(wanted["query"], await app.knowledge_search.search(KnowledgeQuery(**wanted)))


def _show(answer: Answer, settings: Settings, most: int | None) -> None:
    width = max(min(shutil.get_terminal_size().columns, WIDEST) - 1, 20 + len(INDENT))
    for number, hit in enumerate(answer["results"], start=1):
        score = click.style(f"{hit['score']:.3f}", dim=True)
        click.echo(("" if number == 1 else "\n") + f"{number:>3}  {score}  {hit['type']}")
        for line in _passage(_shortened(hit["content"], most), width):
            click.echo(line)
        cited = printable(format_citation(hit))
        for line in textwrap.wrap(cited, width, initial_indent=f"{INDENT}— ", subsequent_indent=f"{INDENT}  "):
            click.echo(click.style(line, fg="cyan"))
    if not answer["results"]:
        click.echo(asyncio.run(_why_nothing(settings)))
    degraded = answer["metadata"].get("degraded")
    if degraded:
        click.echo(click.style("note: ", fg="yellow") + f"could not be searched: {', '.join(degraded)}", err=True)


def _shortened(content: str, most: int | None) -> str:
    """The content, or so much of it that ends with a word."""
    content = content.strip()
    if most is None or len(content) <= most:
        return content
    kept = content[:most]
    return (
        kept[: match.start()] if (match := re.search(r"\s+\S*$", kept)) and match.start() > most // 2 else kept
    ) + " …"


def _passage(content: str, width: int) -> Iterator[str]:
    """The lines of a passage: paragraphs are filled, what is laid out (code, tables, lists) keeps its lines."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", content)):
        if number:
            yield ""
        lines = [printable(line.expandtabs(4).rstrip()) for line in paragraph.splitlines()]
        is_laid_out = any(re.match(r"\s|[|*+#>$-]|\d+[.)]\s|```|\w+: ", line) for line in lines)
        for line in lines if is_laid_out else [" ".join(lines)]:
            indent = INDENT + line[: len(line) - len(line.lstrip())]
            yield from textwrap.wrap(
                line.strip(), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
            )


async def _why_nothing(settings: Settings) -> str:
    from toolscript.app.app import open_library

    async with open_library(settings) as library:
        if await library.list_sources():
            return "Nothing found. Try other words, or leave out --type and --topic."
    return "There are no sources yet: toolscript knowledge ingest FILE puts some in."
