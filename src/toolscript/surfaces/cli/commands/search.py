"""`toolscript search`: the right tools for a task, in the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli.client.catalogue import from_catalogue
from toolscript.surfaces.cli.client.gateway import ask
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import print_table
from toolscript.surfaces.logs import configure_logging

if TYPE_CHECKING:
    from toolscript.app.app import App

Answer = Mapping[str, Any]
Row = tuple[str, ...]

# What an answer did without, in words; whatever is not here is named as it is.
_WITHOUT = {
    "embedder": "the query could not be embedded",
    "catalogue": "not every tool is indexed yet: in a moment there may be more (toolscript list-servers)",
}


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
@click.option(
    "--strategy",
    type=click.Choice(["hierarchical", "direct", "hybrid"]),
    help="Search by meaning through skills: find skills first and tools within them (hierarchical), leave skills aside "
    "(direct), or do both and take the best (hybrid). --limit is then 5 and --threshold 0.3 unless given.",
)
@options.model
@options.config
@options.data_dir
@options.refresh
@options.as_json
def search(query: str, strategy: str | None, output: str, refresh: bool, as_json: bool, **flags: Any) -> None:
    """Find the tools for a task.

    QUERY says what the tool should do, or its name; typos are forgiven. Until servers are configured, the built-in
    demo catalogue is searched. A gateway that runs on the same data folder is asked, unless --model is given.

    \b
    toolscript search "put my changes into version control"
    toolscript search read_fil --limit 1
    toolscript search "read a file" --output types
    toolscript search "plan a meeting" --strategy hierarchical
    """
    settings = load_settings(**flags)
    configure_logging(settings.log_level)
    with_types = output == "types" and not as_json
    asked = _Asked(query, _through_skills(query, strategy, settings, flags) if strategy else None, with_types)
    answer, types = _from_gateway(settings, asked) if flags["search_model"] is None else (None, Types())
    if answer is None:
        answer, types = from_catalogue(settings, lambda app: _here(app, asked), refresh=refresh)
    if as_json or output == "json":
        click.echo(json.dumps(answer, ensure_ascii=False))
    elif with_types and _ids(answer):
        click.echo(markdown(answer, types))
    else:
        show(answer)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is searched for; through skills when that is said, in the words of `POST /api/v1/search`."""

    query: str
    through_skills: Mapping[str, Any] | None
    with_types: bool


def _through_skills(query: str, strategy: str, settings: Settings, flags: Mapping[str, Any]) -> dict[str, Any]:
    asked: dict[str, Any] = {"query": query, "strategy": strategy}
    if flags["search_limit"] is not None:
        asked["limit"] = settings.search_limit
    if flags["search_threshold"] is not None:
        asked["tool_threshold"] = settings.search_threshold
    return asked


def show(answer: Answer) -> None:
    """Prints an answer as a table, or what to try when it is empty."""
    columns, rows = _table(answer)
    if rows:
        print_table(columns, rows, right=columns[1:2])
    else:
        click.echo("No tools found matching query")
        click.echo("Try different keywords, or lower the threshold with --threshold.")
    for name in answer.get("metadata", answer).get("degraded", ()):
        note = _WITHOUT.get(name, f"could not be used: {name}")
        if name == "embedder" and "results" in answer:
            note += ": found by words and names alone"
        click.echo(click.style("note: ", fg="yellow") + note, err=True)


def markdown(answer: Answer, types: Types) -> str:
    """The hits, their types and how to use them, for a model to read."""
    columns, hits = _table(answer)
    rows = [f"| {' | '.join(map(_cell, hit))} |" for hit in hits]
    header = f"| {' | '.join(columns)} |"
    lines = ["## Search Results", "", header, "|------|-----------|--------|", *rows, ""]
    lines += ["```typescript", types.module.rstrip(), "```", "", "Usage example:", "```typescript"]
    lines += ['import { tools } from "toolscript";', "", "// Call tools using the generated client", types.example]
    return "\n".join([*lines, "```"])


def _table(answer: Answer) -> tuple[Row, list[Row]]:
    hits: list[Row]
    if "tools" in answer:
        hits = [(t["id"], f"{t['score']:.2f}", ", ".join(t["skill_ids"])) for t in answer["tools"]]
        return ("Tool", "Score", "Skills"), hits
    hits = [(h["toolId"], f"{h['confidence']:.2f}", h["reason"]) for h in answer["results"]]
    return ("Tool", "Confidence", "Reason"), hits


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _from_gateway(settings: Settings, asked: _Asked) -> tuple[Answer | None, Types]:
    answer: Answer | None
    if asked.through_skills:
        answer = ask(settings, "/api/v1/search", body=asked.through_skills)
    else:
        limit, threshold = settings.search_limit, settings.search_threshold
        answer = ask(settings, "/search", q=asked.query, limit=limit, threshold=threshold)
    if answer is None or not asked.with_types or not _ids(answer):
        return answer, Types()
    ids = _ids(answer)
    first = ask(settings, f"/tools/{quote(ids[0], safe='')}")
    module = ask(settings, "/runtime/tools.ts", filter=",".join(ids))
    return answer, Types(str(module), _example(first["serverName"], first["toolName"], first["inputSchema"]))


async def _here(app: App, asked: _Asked) -> tuple[Answer, Types]:
    from toolscript.codegen.typescript import generate_typescript

    answer = await _found(app, asked)
    ids = _ids(answer)
    if not asked.with_types or not ids:
        return answer, Types()
    items = await app.list_tools.by_id(ids)
    first = items[ids[0]]
    return answer, Types(
        generate_typescript(list(items.values())), _example(first.server, first.name, first.input_schema)
    )


async def _found(app: App, asked: _Asked) -> Answer:
    if asked.through_skills:
        from toolscript.services.tools.hierarchical_search import HierarchicalQuery, Strategy
        from toolscript.surfaces.json.hierarchical import build_hierarchical_response

        told = {**asked.through_skills, "strategy": Strategy(asked.through_skills["strategy"])}
        return build_hierarchical_response(
            await app.hierarchical_search.search(HierarchicalQuery(**told)), with_schemas=True
        )
    from toolscript.surfaces.json.tools import build_search_response

    limit, threshold = app.settings.search_limit, app.settings.search_threshold
    return build_search_response(await app.tool_search.search(asked.query, limit=limit, threshold=threshold))


def _example(server: str, name: str, schema: Mapping[str, Any] | None) -> str:
    from toolscript.codegen.examples import format_typescript_call
    from toolscript.domain.catalog import Item

    return format_typescript_call(Item(server=server, name=name, input_schema=schema))


def _ids(answer: Answer) -> list[str]:
    return [row[0] for row in _table(answer)[1]]
