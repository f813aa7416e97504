"""`toolscript list-servers`, `list-tools`, `get-types`, `call` and `results`: the gateway's API from the terminal."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.errors import Invalid, NotFound, ToolscriptError, Unavailable
from toolscript.domain.programs import SERVER_NAME
from toolscript.domain.servers import META_KEY, CallRelay, CallResult, ServerStart
from toolscript.surfaces.cli.client.catalogue import (
    LISTED_STATES,
    CatalogueChoice,
    choose_catalogue,
    connect_servers,
    require_configuration,
)
from toolscript.surfaces.cli.client.completion import complete
from toolscript.surfaces.cli.client.gateway import is_gateway_running, send_to_gateway
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, request_once, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.server_board import COLOURS
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import format_json, print_answer, print_note, print_text, printable
from toolscript.surfaces.cli.terminal.values import parse_pairs

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.settings import Settings

filter_argument = click.argument(
    "filter_",
    metavar="[FILTER]",
    required=False,
    shell_complete=complete("servers", "tools", separator=","),
)
ENDINGS = {"typescript": "ts", "python": "py"}


@click.command("list-servers")
@options.catalogue
def list_servers() -> None:
    """Show the state of every configured server.

    A running gateway knows it; without one the servers are connected now, once. Exits with 3 when none is ready or
    asleep.
    """
    settings = read_settings()
    is_running = is_gateway_running(settings)
    answer = send_to_gateway(settings, "/servers") if is_running else asyncio.run(_try_configured(settings))
    print_answer(answer, _show_servers)
    if answer["servers"] and not any(s["state"] in LISTED_STATES for s in answer["servers"]):
        sys.exit(3)


async def _try_configured(settings: Settings) -> Mapping[str, Any]:
    choice = choose_catalogue(settings, switching=True)
    if choice.is_demo:
        raise NotFound(
            "no servers are configured: write ~/.toolscript.json or ./.toolscript.json, or name a file with --config"
        )
    if choice.note:
        read = " and ".join(str(file) for file in choice.configuration.files if file.exists())
        print_note(f"the catalogue in {settings.data} is that of {choice.record.name}; these are the servers of {read}")
    return await try_servers(settings, choice)


async def try_servers(settings: Settings, choice: CatalogueChoice, *, within: float | None = None) -> Mapping[str, Any]:
    """Connects to every server once, within so many seconds, and leaves the catalogue alone."""
    from toolscript.app.engines import open_gateway, open_servers
    from toolscript.app.logins import find_logins
    from toolscript.surfaces.json.servers import build_servers_response

    async with find_logins(settings) as logins:
        gateway = open_gateway(settings, open_servers(settings, logins))
        try:
            stopped = choice.record.stopped
            specs = choice.configuration.servers
            await connect_servers(gateway, specs, stopped=stopped, within=within, name_failed=False)
            statuses = [replace(status, retry_in_seconds=None) for status in gateway.statuses]  # this command ends now
            return build_servers_response(statuses, None)
        finally:
            await gateway.close()


@click.command("list-tools")
@filter_argument
@options.catalogue
def list_tools(filter_: str | None) -> None:
    """List all tools, prompts, resources and agent skills.

    FILTER is a list of servers and tools, separated by commas.

    \b
    toolscript list-tools
    toolscript list-tools github,filesystem__read_file --json
    """

    async def local(app: App) -> Mapping[str, Any]:
        from toolscript.surfaces.json.tools import build_tools_response

        return build_tools_response(await app.tools.listing.matching(filter_))

    def show(answer: Mapping[str, Any]) -> None:
        for tool in answer["tools"]:
            mark = click.style("  quarantined: ", fg="red") if "quarantined" in tool else ""
            text = f"{printable(tool['signature'])}{mark}{printable(tool.get('quarantined', ''))}"
            click.echo(f"{click.style(printable(tool['toolId']), fg='cyan')}  {text}")
        if not answer["tools"]:
            click.echo("No tools" + (f" match {filter_}" if filter_ else ""), err=True)

    request_once("/tools", local, show=show, filter=filter_)


@click.command("get-types")
@filter_argument
@click.option(
    "--language",
    type=click.Choice(list(ENDINGS)),
    default="typescript",
    show_default=True,
    help="Language of the client.",
)
@options.catalogue
def get_types(filter_: str | None, language: str) -> None:
    """Print a typed client for tools, ready to import.

    FILTER is a list of servers and tools, separated by commas; without it the client has every tool. The client finds
    the gateway through TOOLSCRIPT_GATEWAY_URL.

    \b
    toolscript get-types filesystem > tools.ts
    toolscript get-types git__git_log --language python > tools.py
    """

    async def local(app: App) -> str:
        from toolscript.codegen.python import generate_python
        from toolscript.codegen.typescript import generate_typescript

        items = await app.tools.listing.matching(filter_)
        return generate_typescript(items) if language == "typescript" else generate_python(items)

    async def generate(session: CommandSession) -> Any:
        await _check_names(session, filter_)
        return await session.request(f"/runtime/tools.{ENDINGS[language]}", local, filter=filter_)

    source = run_in_session(read_settings(), generate)
    print_answer({"language": language, "source": source}, lambda _: print_text(source, nl=False))


async def _check_names(session: CommandSession, filter_: str | None) -> None:
    """Raises NotFound when a name in the filter is neither a server nor a tool."""

    async def list_names(filter_: str | None) -> set[str]:
        async def local(app: App) -> dict[str, Any]:
            found = await app.tools.listing.matching(filter_)
            return {
                "tools": [{"toolId": i.id, "serverName": i.server, "quarantined": i.quarantine} for i in found],
            }

        tools = (await session.request("/tools", local, filter=filter_))["tools"]
        if quarantined := [tool["toolId"] for tool in tools if tool.get("quarantined")]:
            print_note(f"left out, because they are in quarantine: {', '.join(quarantined)}")
        return {name for tool in tools for name in (tool["toolId"], tool["serverName"])}

    entries = dict.fromkeys(entry.strip() for entry in (filter_ or "").split(",") if entry.strip())
    existing = await list_names(filter_) if entries else set()
    unknown = [entry for entry in entries if entry not in existing]
    if unknown:
        if problem := await _describe_servers_of(session, unknown):
            raise NotFound(f"no tools of {', '.join(unknown)}: {problem}", details={"unknown": unknown, "nearest": []})
        from difflib import get_close_matches

        names = sorted(await list_names(None))
        nearest = [name for entry in unknown for name in get_close_matches(entry, names)]
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else "see toolscript list-tools"
        raise NotFound(
            f"no such server or tool: {', '.join(unknown)}; {hint}", details={"unknown": unknown, "nearest": nearest}
        )


async def _describe_servers_of(session: CommandSession, names: Iterable[str]) -> str:
    """What is wrong with the servers of these names, as far as a gateway knows; empty when nothing is."""
    if session.app is not None:
        return ""
    try:
        servers = (await session.send("/servers"))["servers"]
    except ToolscriptError:  # the key may not see servers
        return ""
    wanted = {name.partition("__")[0] for name in names}
    states = {"connecting": "is still starting", "failed": "has failed"}
    return "; ".join(
        f"the server {s['name']} {states[s['state']]}{f' ({reason})' if (reason := _format_reason(s)) else ''}"
        for s in servers
        if s["name"] in wanted and s["state"] in states
    )


@click.command()
@click.argument("tool_id", shell_complete=complete("tools"))
@click.argument("arguments", required=False)
@click.option(
    "--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="One argument; VALUE is JSON or text; repeatable."
)
@options.overrides("call_timeout", "--call-timeout", metavar="SECONDS")
@click.option(
    "--max-tokens",
    type=click.IntRange(100, 900_000),
    metavar="NUMBER",
    help="Cut a larger answer, of four bytes a token; `toolscript results` reads the whole.",
)
@options.catalogue
def call(tool_id: str, arguments: str | None, pairs: tuple[str, ...], max_tokens: int | None) -> None:
    """Call a tool and print its answer.

    ARGUMENTS is a JSON object, or `-` to read it from standard input. Without a running gateway, only the tool's own
    server is started, for this one call.

    \b
    toolscript call time__get_current_time '{"timezone": "Europe/Lisbon"}'
    toolscript call filesystem__read_file --arg path=notes.txt
    """
    settings = read_settings()
    given = _parse_arguments(arguments, pairs)

    async def request(session: CommandSession) -> Any:
        try:
            return await session.request(
                f"/tools/{quote(tool_id, safe='', errors='replace')}",
                lambda app: _call(app, tool_id, given, max_tokens),
                body=given,
                max_tokens=max_tokens,
                waits=False,
                timeout_seconds=settings.call_timeout + 15,
                timeout=settings.call_timeout if options.get_overrides()["call_timeout"] is not None else None,
            )
        except NotFound as error:
            problem = await _describe_servers_of(session, [tool_id])
            if not problem:
                raise
            raise NotFound(f"{tool_id} cannot be called: {problem}", details=error.details) from error

    print_answer(run_in_session(settings, request), _show_result)


def _parse_arguments(text: str | None, pairs: Sequence[str]) -> dict[str, Any]:
    if text == "-":
        text = sys.stdin.read()
    try:
        given = json.loads(text) if text and text.strip() else {}
    except ValueError as error:
        raise Invalid(f"ARGUMENTS is not valid JSON: {error}", details={"field": "ARGUMENTS"}) from error
    if not isinstance(given, dict):
        raise Invalid('ARGUMENTS must be a JSON object, like \'{"path": "notes.txt"}\'', details={"field": "ARGUMENTS"})
    return given | parse_pairs(pairs, "--arg", _parse_json_or_text)


def _parse_json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def connect_server_of(app: App, tool_id: str) -> None:
    """Connects the server of a tool, without a running gateway. Raises NotFound and Unavailable."""
    from toolscript.services.tools.demo_gateway import build_refusal

    item = await app.tools.call.describe(tool_id)
    choice = choose_catalogue(app.settings)
    configured = choice.configuration.servers
    specs = [
        replace(s, start=ServerStart.EAGER, idle_minutes=0) for s in configured if item.server in {s.name, SERVER_NAME}
    ]
    if not specs and not choice.is_demo:
        require_configuration(choice.record, app.settings.data)
        raise Unavailable(f"{tool_id} cannot be called: the server {item.server} is no longer configured")
    if not specs:
        raise build_refusal(tool_id)
    if not app.servers.gateway.statuses:
        stopped = choice.record.stopped
        await connect_servers(app.servers.gateway, specs, among=configured, stopped=stopped, name_failed=False)


async def _call(app: App, tool_id: str, arguments: Mapping[str, Any], max_tokens: int | None) -> Any:
    from toolscript.surfaces.json.tools import build_call_response

    await connect_server_of(app, tool_id)
    result = await app.tools.call.call(tool_id, arguments, relay=CallRelay(user=""))
    if max_tokens is not None:
        result = CallResult(await app.texts.large_results.cut(result.raw, "", max_tokens))
    return build_call_response(result)


@click.command()
@click.argument("handle")
@click.option("--query", metavar="TEXT", help="Find parts of it, by words and meaning.")
@click.option("--path", metavar="PATH", help="Take a part of its JSON: items.3.name, or items.10:20.")
@click.option("--page", type=click.IntRange(1), metavar="NUMBER", help="Print this page; by default the first.")
@options.store
def results(handle: str, query: str | None, path: str | None, page: int | None) -> None:
    """Read or search a result that `toolscript call --max-tokens` has cut. It is kept for an hour.

    \b
    toolscript results r_3d93ce130e3f9caa --query "failed payments"
    toolscript results r_3d93ce130e3f9caa --path items.3.name
    toolscript results r_3d93ce130e3f9caa --page 2
    """

    def request(session: CommandSession) -> Awaitable[Any]:
        from toolscript.surfaces.json.results import build_result_response

        place = f"/api/v1/results/{quote(handle, safe='', errors='replace')}"
        wanted: dict[str, Any] = {"query": query, "path": path, "page": page}
        return session.request(place, lambda app: build_result_response(app, handle, "", **wanted), **wanted)

    print_answer(run_in_session(read_settings(), request, with_catalogue=False), _show_part)


def _show_part(answer: Mapping[str, Any]) -> None:
    if "hits" not in answer:
        print_text(answer["text"])
        page, pages = answer["page"], answer["pages"]
        if page < pages:
            print_note(f"page {page} of {pages}: --page {page + 1} goes on", label="more:")
        return
    for hit in answer["hits"]:
        places = [f"--{name} {hit[name]}" for name in ("path", "page") if hit[name]]
        print_text(f"[{' '.join(places)}]\n{hit['text']}")
    if not answer["hits"]:
        print_text(f"No part has a word of {answer['query']!r}.")


def _show_servers(answer: Mapping[str, Any]) -> None:
    from rich.text import Text

    columns: Columns = {
        "Server": "name",
        "State": lambda server: Text(_format_state(server), COLOURS[server["state"]]),
        "Tools": "tools",
        "Prompts": "prompts",
        "Resources": "resources",
        **({"Agent skills": "agentSkills"} if any(each["agentSkills"] for each in answer["servers"]) else {}),
        **({"Sandbox": "sandbox"} if any(each["sandbox"] for each in answer["servers"]) else {}),
        "Reason": _format_reason,
    }
    empty = "No servers are configured: the gateway serves its demo catalogue, or a file without servers."
    print_table(columns, answer["servers"], empty)
    if answer["configurationError"]:
        click.echo(click.style("configuration: ", fg="red") + answer["configurationError"], err=True)
    for warning in answer["configurationWarnings"]:
        click.echo(click.style("configuration: ", fg="yellow") + warning, err=True)


def _format_state(server: Mapping[str, Any]) -> str:
    if server["state"] == "connecting":
        return "starting"
    if server.get("needsLogin"):
        return "needs login"
    if server.get("callsPausedSeconds") is not None:
        return "calls paused"
    return str(server["state"]) + (", retrying" if server["retryInSeconds"] is not None else "")


def _format_reason(server: Mapping[str, Any]) -> str:
    seconds = None if server.get("needsLogin") else server["retryInSeconds"]
    retry = f"next attempt in {math.ceil(seconds)} s" if seconds else "being tried again now"
    return "; ".join(filter(None, [server["reason"], *server["problems"], retry if seconds is not None else ""]))


def _show_result(answer: Any) -> None:
    """Prints text content as it is, and anything else as JSON."""
    content = answer.get("content") if isinstance(answer, dict) else None
    if isinstance(content, list) and all(isinstance(b, dict) and b.get("type") == "text" for b in content):
        for block in content:
            print_text(str(block.get("text", "")))
        if cut := answer.get("_meta", {}).get(META_KEY, {}).get("handle"):
            print_note(f"toolscript results {cut} reads the whole", label="more:")
    else:
        click.echo(format_json(answer, indent=2))
