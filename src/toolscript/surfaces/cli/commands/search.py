"""`toolscript search`: the right tools for a task, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.errors import Invalid
from toolscript.surfaces.cli.client.gateway import require_no_gateway
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import format_value, print_table
from toolscript.surfaces.cli.terminal.text import format_json, print_answer, print_note, print_text, printable

if TYPE_CHECKING:
    from toolscript.app.app import App

Answer = Mapping[str, Any]

MAX_DECLARED = 20

# What the words of `degraded` mean for a search; other words are printed as they are.
DEGRADED = {
    "embedder": "the query could not be embedded",
    "catalogue": "not every tool is indexed yet: there may be more results in a moment (toolscript list-servers)",
}


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
    "--language",
    type=click.Choice(["python", "typescript"]),
    help="With --output types: only the declarations that a program of `toolscript run` needs, in this language.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(100, 900_000),
    default=2000,
    show_default=True,
    metavar="NUMBER",
    help="With --language: leave out tools that would make it longer, at four characters a token.",
)
@click.option(
    "--strategy",
    type=click.Choice(["hierarchical", "direct", "hybrid"]),
    help="Search with skills: find skills first and then tools in them (hierarchical), ignore skills "
    "(direct), or do both and take the best (hybrid). --limit defaults to 5 and --threshold to 0.3 then.",
)
@click.option("--registry", is_flag=True, help="Search for servers that are not connected (`toolscript registry`).")
@options.model
@options.catalogue
def search(
    query: str, strategy: str | None, output: str, language: str | None, max_tokens: int, registry: bool
) -> None:
    """Find the tools for a task.

    QUERY describes what the tool should do, or is its name; typos are allowed. Until servers are configured, the
    built-in demo catalogue is searched. A gateway that runs on the same data folder is used, unless --model is given.

    \b
    toolscript search "put my changes into version control"
    toolscript search read_fil --limit 1
    toolscript search "read a file" --output types
    toolscript search "read a file" --output types --language python
    toolscript search "plan a meeting" --strategy hierarchical
    toolscript search --registry "post to a channel"
    """
    if registry:
        if strategy or output != "table" or language:
            raise Invalid("--registry cannot be combined with --strategy, --output and --language")
        print_answer(search_registry(query), show_servers)
        return
    with_types = output == "types" and not options.is_json()
    settings = read_settings()
    if language:
        if output != "types" or strategy:
            raise Invalid("--language needs --output types, and no --strategy", details={"field": "--language"})
        _print_declarations(query, language, max_tokens)
        return
    use_gateway = options.get_overrides()["search_model"] is None
    if not use_gateway:
        if settings.gateway_url:
            raise Invalid("--model cannot be combined with --gateway: a gateway searches with its own model")
        require_no_gateway(settings, "another model cannot be used")

    async def request(session: CommandSession) -> tuple[Answer, str]:
        answer = await (_search_skills(session, query, strategy) if strategy else _search_tools(session, query))
        return answer, await _render_markdown(session, answer) if with_types else ""

    answer, markdown = run_in_session(settings, request, use_gateway=use_gateway)
    if output == "json":
        click.echo(format_json(answer))
    else:
        print_answer(answer, lambda _: print_text(markdown) if markdown else show(answer))


def search_registry(query: str, *, limit: int | None = None) -> Answer:
    """The servers that are not connected and may serve a request."""
    settings = read_settings()
    limit = limit or min(settings.search_limit, MAX_DECLARED)

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.registry import build_registry_search_response

        return build_registry_search_response(query, await app.registry.search(query, limit=limit))

    async def request(session: CommandSession) -> Answer:
        found: Answer = await session.request("/api/v1/registry/search", local, q=query, limit=limit)
        return found

    return run_in_session(settings, request, with_catalogue=False)


def show_servers(answer: Answer) -> None:
    """Prints the servers of a registry, and how to add one."""
    for server in answer["servers"]:
        state = "" if server["status"] == "active" else f"  ({server['status']}: {server['statusMessage']})"
        click.echo(printable(f"{server['name']} {server['version']}  {server['confidence']:.2f}{state}"))
        click.echo(f"  {printable(server['description'])}")
        launch = next(iter(server["launches"]), None)
        if launch:
            click.echo(printable(f"  {'; '.join(filter(None, (launch['runs'], launch['needs'])))}"))
            if launch["problem"]:
                click.echo(f"  cannot be added: {printable(launch['problem'])}")
        click.echo(printable(f"  by {server['publisher']}, listed at {server['registry']}, {server['digest'][:19]}"))
    if answer["servers"]:
        click.echo(f"To add one: toolscript servers add {answer['servers'][0]['name']}")
    else:
        click.echo("No server of the registries fits: rephrase it, or read them again with `toolscript registry sync`.")


def _print_declarations(query: str, language: str, max_tokens: int) -> None:
    """Prints what a program needs to call the tools found."""
    settings = read_settings()
    limit = min(settings.search_limit, MAX_DECLARED)

    async def request(session: CommandSession) -> Answer:
        async def local(app: App) -> Answer:
            from toolscript.domain.programs import Language
            from toolscript.surfaces.callers import OWNER
            from toolscript.surfaces.json.code import TypesQuery, build_types_response

            return await build_types_response(app, TypesQuery(query, Language(language), limit, max_tokens), OWNER)

        wanted: dict[str, Any] = {"q": query, "language": language, "limit": limit, "max_tokens": max_tokens}
        if options.get_overrides()["search_threshold"] is not None:
            wanted["threshold"] = settings.search_threshold
        found: Answer = await session.request("/api/v1/run/types", local, **wanted)
        return found

    def show_types(answer: Answer) -> None:
        if answer["tools"]:
            print_text(answer["types"].rstrip())
        elif not answer["quarantined"]:
            print_note(f"no tools found for {query!r}: rephrase it, or lower --threshold")
        if answer["left_out"]:
            print_note(f"left out for lack of room: {', '.join(answer['left_out'])}; raise --max-tokens")
        if answer["quarantined"]:
            print_note(f"in quarantine: {', '.join(answer['quarantined'])}; `toolscript quarantine` says why")

    print_answer(run_in_session(settings, request), show_types)


async def _search_skills(session: CommandSession, query: str, strategy: str) -> Any:
    given, settings = options.get_overrides(), session.settings
    request: dict[str, Any] = {"query": query, "strategy": strategy}
    if given["search_limit"] is not None:  # the defaults of the settings are those of a search without skills
        request["limit"] = settings.search_limit
    if given["search_threshold"] is not None:
        request["tool_threshold"] = settings.search_threshold
    else:
        from toolscript.domain.search import MAX_CLOSEST

        request["closest"] = MAX_CLOSEST

    async def local(app: App) -> Answer:
        from toolscript.services.tools.hierarchical_search import HierarchicalQuery, Strategy
        from toolscript.surfaces.json.hierarchical import build_hierarchical_response

        hierarchical = HierarchicalQuery(**{**request, "strategy": Strategy(strategy)})
        found = await app.tools.hierarchical_search.search(hierarchical)
        return build_hierarchical_response(found, with_schemas=True, find_state=app.servers.gateway.find_call_state)

    return await session.request("/api/v1/search", local, body=request)


async def _search_tools(session: CommandSession, query: str) -> Any:
    http: dict[str, Any] = {"limit": session.settings.search_limit, "threshold": session.settings.search_threshold}
    if options.get_overrides()["search_threshold"] is None:
        from toolscript.domain.search import MAX_CLOSEST

        http["closest"] = MAX_CLOSEST

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.tools import build_search_response

        return build_search_response(await app.tools.search.search(query, **http), app.servers.gateway.find_call_state)

    return await session.request("/search", local, q=query, **http)


async def _render_markdown(session: CommandSession, answer: Answer) -> str:
    """The tools found, their types and how to use them, for a model to read; empty when no tool was found."""
    from toolscript.codegen.typescript import format_typescript_call, generate_typescript
    from toolscript.domain.catalog import Item
    from toolscript.surfaces.json.tools import build_tool_response

    columns, records = _select_table(answer)
    if not records:
        return ""
    hits = [[format_value(record[key]) for key in columns.values()] for record in records]
    ids = [hit[0] for hit in hits]

    async def generate(app: App) -> str:
        return generate_typescript(list((await app.tools.listing.by_id(ids)).values()))

    first = await session.request(
        f"/tools/{quote(ids[0], safe='')}", lambda app: app.tools.call.describe(ids[0]), build_tool_response
    )
    module = await session.request("/runtime/tools.ts", generate, filter=",".join(ids))
    item = Item(server=first["serverName"], name=first["toolName"], input_schema=first["inputSchema"])
    rows = [f"| {' | '.join(map(_escape_cell, hit))} |" for hit in hits]
    lines = ["## Search Results", "", f"| {' | '.join(columns)} |", "|------|-----------|--------|", *rows, ""]
    lines += ["```typescript", module.rstrip(), "```", "", "Usage example:", "```typescript"]
    lines += ['import { tools } from "toolscript";', "", "// Call tools using the generated client"]
    return "\n".join([*lines, format_typescript_call(item), "```"])


def show(answer: Answer) -> None:
    """Prints an answer as a table, or what to try when it is empty."""
    empty = "No tools found matching query\nTry different keywords, or lower the threshold with --threshold."
    columns, records = _select_table(answer)
    needs = {"For": lambda record: record.get("for", "")} if any("for" in record for record in records) else {}
    states = {"Server": _get_state} if any(map(_get_state, records)) else {}
    variants = {"Same tool": lambda record: ", ".join(record.get("variants", ()))}
    variants = variants if any("variants" in record for record in records) else {}
    if any("serverArguments" in record for record in records):
        states["Folder or address"] = lambda record: record.get("serverArguments", "")
    marks = {"Quarantined": lambda record: record.get("quarantined", "")}
    marks = marks if any("quarantined" in record for record in records) else {}
    closest = answer.get("closest", ())
    if records or not closest:
        print_table({**columns, **needs, **states, **variants, **marks}, records, empty)
    if closest:
        print_text("Less sure:" if records else "No tool is a confident match. Closest:")
        key, score = list(columns.values())[:2]
        print_table({"Tool": key, list(columns)[1]: score, "Description": "description"}, closest, "")
    for word in answer.get("metadata", answer).get("degraded", ()):
        note = DEGRADED.get(word, f"incomplete results: {word} failed")
        if word == "embedder" and "results" in answer:
            note += ": results were found by words and names only"
        print_note(note)


def _get_state(record: Answer) -> str:
    """The state of the tool's server, if it is one to know before a call."""
    return str(record.get("serverState") or record.get("server_state") or "")


def _select_table(answer: Answer) -> tuple[dict[str, str], list[Answer]]:
    """The columns for an answer, and the records with their values."""
    if "tools" in answer:
        return {"Tool": "id", "Score": "score", "Skills": "skill_ids"}, answer["tools"]
    return {"Tool": "toolId", "Confidence": "confidence", "Reason": "reason"}, answer["results"]


def _escape_cell(text: str) -> str:
    return printable(text).replace("|", "\\|")
