"""`toolscript search`: the right tools for a task, in the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.settings import Settings
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import print_table
from toolscript.surfaces.cli.terminal.text import print_note

if TYPE_CHECKING:
    from toolscript.app.app import App

Answer = Mapping[str, Any]
Row = tuple[str, ...]

# What the words of `degraded` mean for a search; other words are printed as they are.
DEGRADED = {
    "embedder": "the query could not be embedded",
    "catalogue": "not every tool is indexed yet: there may be more results in a moment (toolscript list-servers)",
}


@dataclass(frozen=True, slots=True)
class ClientCode:
    """The TypeScript client of the tools found, and an example call of the first."""

    module: str
    example: str


@click.command()
@click.argument("query")
@options.overrides("search_limit", "--limit", metavar="N")
@options.overrides("search_threshold", "--threshold", metavar="0..1")
@click.option(
    "--output",
    type=click.Choice(["table", "types", "json"]),
    default="table",
    help="A table; Markdown with TypeScript types of the tools found; or JSON.  [default: table]",
)
@click.option(
    "--strategy",
    type=click.Choice(["hierarchical", "direct", "hybrid"]),
    help="Search by meaning with skills: find skills first and then tools in them (hierarchical), ignore skills "
    "(direct), or do both and take the best (hybrid). --limit defaults to 5 and --threshold to 0.3 then.",
)
@options.model
@options.config
@options.data_dir
@options.refresh
@options.as_json
def search(query: str, strategy: str | None, output: str, refresh: bool, as_json: bool, **flags: Any) -> None:
    """Find the tools for a task.

    QUERY describes what the tool should do, or is its name; typos are allowed. Until servers are configured, the
    built-in demo catalogue is searched. A gateway that runs on the same data folder is used, unless --model is given.

    \b
    toolscript search "put my changes into version control"
    toolscript search read_fil --limit 1
    toolscript search "read a file" --output types
    toolscript search "plan a meeting" --strategy hierarchical
    """
    settings = read_settings(flags)
    with_types = output == "types" and not as_json

    async def request(session: CommandSession) -> tuple[Answer, ClientCode | None]:
        if strategy:
            answer = await _search_skills(session, _skills_request(query, strategy, settings, flags))
        else:
            answer = await _search_tools(session, query)
        return answer, await _generate_client(session, ids) if with_types and (ids := _list_ids(answer)) else None

    answer, code = run_in_session(settings, request, use_gateway=flags["search_model"] is None, refresh=refresh)
    if as_json or output == "json":
        click.echo(json.dumps(answer, ensure_ascii=False))
    elif code:
        click.echo(render_markdown(answer, code))
    else:
        show(answer)


def _skills_request(query: str, strategy: str, settings: Settings, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The body of `POST /api/v1/search`; its own defaults apply to options that are not given."""
    request: dict[str, Any] = {"query": query, "strategy": strategy}
    if flags["search_limit"] is not None:
        request["limit"] = settings.search_limit
    if flags["search_threshold"] is not None:
        request["tool_threshold"] = settings.search_threshold
    return request


async def _search_skills(session: CommandSession, request: Mapping[str, Any]) -> Answer:
    async def local(app: App) -> Answer:
        from toolscript.services.tools.hierarchical_search import HierarchicalQuery, Strategy
        from toolscript.surfaces.json.hierarchical import build_hierarchical_response

        hierarchical = HierarchicalQuery(**{**request, "strategy": Strategy(request["strategy"])})
        return build_hierarchical_response(await app.hierarchical_search.search(hierarchical), with_schemas=True)

    answer: Answer = await session.request("/api/v1/search", local, body=request)
    return answer


async def _search_tools(session: CommandSession, query: str) -> Answer:
    limit, threshold = session.settings.search_limit, session.settings.search_threshold

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.tools import build_search_response

        return build_search_response(await app.tool_search.search(query, limit=limit, threshold=threshold))

    answer: Answer = await session.request("/search", local, q=query, limit=limit, threshold=threshold)
    return answer


async def _generate_client(session: CommandSession, ids: list[str]) -> ClientCode:
    from toolscript.codegen.typescript import format_typescript_call, generate_typescript
    from toolscript.domain.catalog import Item
    from toolscript.surfaces.json.tools import build_tool_response

    async def describe(app: App) -> Answer:
        return build_tool_response(await app.call_tool.describe(ids[0]))

    async def generate(app: App) -> str:
        return generate_typescript(list((await app.list_tools.by_id(ids)).values()))

    first = await session.request(f"/tools/{quote(ids[0], safe='')}", describe)
    module = await session.request("/runtime/tools.ts", generate, filter=",".join(ids))
    item = Item(server=first["serverName"], name=first["toolName"], input_schema=first["inputSchema"])
    return ClientCode(module, format_typescript_call(item))


def show(answer: Answer) -> None:
    """Prints an answer as a table, or what to try when it is empty."""
    columns, rows = _build_table(answer)
    if rows:
        print_table(columns, rows, right=columns[1:2])
    else:
        click.echo("No tools found matching query")
        click.echo("Try different keywords, or lower the threshold with --threshold.")
    for word in answer.get("metadata", answer).get("degraded", ()):
        note = DEGRADED.get(word, f"incomplete results: {word} failed")
        if word == "embedder" and "results" in answer:
            note += ": results were found by words and names only"
        print_note(note)


def render_markdown(answer: Answer, code: ClientCode) -> str:
    """The tools found, their types and how to use them, for a model to read."""
    columns, hits = _build_table(answer)
    rows = [f"| {' | '.join(map(_escape_cell, hit))} |" for hit in hits]
    header = f"| {' | '.join(columns)} |"
    lines = ["## Search Results", "", header, "|------|-----------|--------|", *rows, ""]
    lines += ["```typescript", code.module.rstrip(), "```", "", "Usage example:", "```typescript"]
    lines += ['import { tools } from "toolscript";', "", "// Call tools using the generated client", code.example]
    return "\n".join([*lines, "```"])


def _build_table(answer: Answer) -> tuple[Row, list[Row]]:
    hits: list[Row]
    if "tools" in answer:
        hits = [(t["id"], f"{t['score']:.2f}", ", ".join(t["skill_ids"])) for t in answer["tools"]]
        return ("Tool", "Score", "Skills"), hits
    hits = [(h["toolId"], f"{h['confidence']:.2f}", h["reason"]) for h in answer["results"]]
    return ("Tool", "Confidence", "Reason"), hits


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _list_ids(answer: Answer) -> list[str]:
    return [row[0] for row in _build_table(answer)[1]]
