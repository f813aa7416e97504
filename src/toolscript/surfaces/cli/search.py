"""`toolscript search`: the right tools for a task, in the terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli import options
from toolscript.surfaces.cli.catalogue import from_catalogue
from toolscript.surfaces.cli.running import ask
from toolscript.surfaces.cli.terminal import marked
from toolscript.surfaces.logs import write_logs

if TYPE_CHECKING:
    from toolscript.app import App

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Types:
    """The client module of the hits, and how its first tool is called."""

    module: str = ""
    example: str = ""


@click.command()
@click.argument("query")
@options.overrides("search_limit", "--limit", metavar="N")
@options.overrides("search_threshold", "--threshold", metavar="0..1")
@click.option(
    "--output",
    type=click.Choice(["table", "types", "json"]),
    default="table",
    help="A table; Markdown with TypeScript types of the hits; or JSON.  [default: table]",
)
@options.model
@options.config
@options.data_dir
@options.refresh
@options.as_json
def search(query: str, output: str, refresh: bool, as_json: bool, **flags: Any) -> None:
    """Find the tools for a task.

    QUERY says what the tool should do, or its name; typos are forgiven. Until servers are configured, the built-in
    demo catalogue is searched. A gateway that runs on the same data folder is asked, unless --model is given.

    \b
    toolscript search "put my changes into version control"
    toolscript search read_fil --limit 1
    toolscript search "read a file" --output types
    """
    settings = load_settings(**flags)
    write_logs(settings.log_level)
    with_types = output == "types" and not as_json
    answer, types = _from_gateway(settings, query, with_types) if flags["search_model"] is None else (None, Types())
    if answer is None:
        answer, types = from_catalogue(settings, lambda app: _here(app, query, with_types), refresh=refresh)
    if as_json or output == "json":
        click.echo(json.dumps(answer, ensure_ascii=False))
    elif with_types and answer["results"]:
        click.echo(markdown(answer, types))
    else:
        show(answer)


def show(answer: Answer) -> None:
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
        table.add_row(marked(hit["toolId"]), f"{hit['confidence']:.2f}", marked(hit["reason"]))
    # A file or a pipe has no width to fit: a line stays a line.
    fits = sys.stdout.isatty() or "COLUMNS" in os.environ
    Console(highlight=False, width=None if fits else 200).print(table)


def markdown(answer: Answer, types: Types) -> str:
    """The hits, their types and how to use them, for a model to read."""
    rows = [f"| {_cell(h['toolId'])} | {h['confidence']:.2f} | {_cell(h['reason'])} |" for h in answer["results"]]
    lines = ["## Search Results", "", "| Tool | Confidence | Reason |", "|------|-----------|--------|", *rows, ""]
    lines += ["```typescript", types.module.rstrip(), "```", "", "Usage example:", "```typescript"]
    lines += ['import { tools } from "toolscript";', "", "// Call tools using the generated client", types.example]
    return "\n".join([*lines, "```"])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _from_gateway(settings: Settings, query: str, with_types: bool) -> tuple[Answer | None, Types]:
    answer: Answer | None = ask(
        settings, "/search", q=query, limit=settings.search_limit, threshold=settings.search_threshold
    )
    if answer is None or not with_types or not answer["results"]:
        return answer, Types()
    first = ask(settings, f"/tools/{quote(answer['results'][0]['toolId'], safe='')}")
    module = ask(settings, "/runtime/tools.ts", filter=_ids(answer))
    return answer, Types(str(module), _example(first["serverName"], first["toolName"], first["inputSchema"]))


async def _here(app: App, query: str, with_types: bool) -> tuple[Answer, Types]:
    from toolscript.codegen.typescript import typescript_module
    from toolscript.surfaces.answers import search_answer

    settings = app.settings
    found = await app.tool_search.search(query, limit=settings.search_limit, threshold=settings.search_threshold)
    answer = search_answer(found)
    if not with_types or not found.hits:
        return answer, Types()
    items = await app.list_tools.by_id([hit.id for hit in found.hits])
    first = items[found.hits[0].id]
    return answer, Types(
        typescript_module(list(items.values())), _example(first.server, first.name, first.input_schema)
    )


def _example(server: str, name: str, schema: Mapping[str, Any] | None) -> str:
    from toolscript.codegen.examples import typescript_call
    from toolscript.domain.catalog import Item

    return typescript_call(Item(server=server, name=name, input_schema=schema))


def _ids(answer: Answer) -> str:
    return ",".join(hit["toolId"] for hit in answer["results"])
