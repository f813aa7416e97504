"""`toolscript list-servers`, `list-tools`, `get-types`, `call`: the gateway's work from the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.errors import Invalid, NotFound, Unavailable
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli.client.catalogue import configuration_of, connect, from_catalogue, is_demo
from toolscript.surfaces.cli.client.gateway import ask
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.server_board import COLOURS
from toolscript.surfaces.cli.terminal.text import marked, printable
from toolscript.surfaces.logs import configure_logging

if TYPE_CHECKING:
    from toolscript.app.app import App


@click.command("list-servers")
@options.config
@options.data_dir
@options.as_json
def list_servers(as_json: bool, **flags: Any) -> None:
    """How every configured server is doing.

    A running gateway tells; without one the servers are tried once, now. Ends with 3 when none of them is ready.
    """
    settings = _settings(flags)
    answer = ask(settings, "/servers")
    if answer is None:
        if is_demo(configuration_of(settings)):
            raise NotFound(
                "no server is configured: write ~/.toolscript.json or ./.toolscript.json, or name a file with --config"
            )
        answer = from_catalogue(settings, _tried, refresh=True)
    if as_json:
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        _show_servers(answer)
    if answer["servers"] and not any(s["state"] == "ready" for s in answer["servers"]):
        sys.exit(3)


@click.command("list-tools")
@click.argument("filter_", metavar="[FILTER]", required=False)
@options.config
@options.data_dir
@options.refresh
@options.as_json
def list_tools(filter_: str | None, refresh: bool, as_json: bool, **flags: Any) -> None:
    """Every tool, prompt and resource, with its signature.

    FILTER names servers and tools, separated by commas.

    \b
    toolscript list-tools
    toolscript list-tools github,filesystem__read_file --json
    """
    settings = _settings(flags)
    answer = ask(settings, "/tools", filter=filter_)
    if answer is None:
        answer = from_catalogue(settings, lambda app: _listed(app, filter_), refresh=refresh)
    if as_json:
        click.echo(json.dumps(answer, ensure_ascii=False))
        return
    for tool in answer["tools"]:
        click.echo(f"{click.style(printable(tool['toolId']), fg='cyan')}  {printable(tool['signature'])}")
    if not answer["tools"]:
        click.echo("No tools" + (f" match {filter_}" if filter_ else ""), err=True)


@click.command("get-types")
@click.argument("filter_", metavar="[FILTER]", required=False)
@click.option("--language", type=click.Choice(["typescript", "python"]), default="typescript", help="Of the client.")
@options.config
@options.data_dir
@options.refresh
@options.as_json
def get_types(filter_: str | None, language: str, refresh: bool, as_json: bool, **flags: Any) -> None:
    """A typed client for tools, ready to import.

    FILTER names servers and tools, separated by commas; without it the client has every tool. The client finds the
    gateway through TOOLSCRIPT_GATEWAY_URL.

    \b
    toolscript get-types filesystem > tools.ts
    toolscript get-types git__git_log --language python > tools.py
    """
    settings = _settings(flags)
    source = ask(settings, "/runtime/tools.ts" if language == "typescript" else "/runtime/tools.py", filter=filter_)
    if source is None:
        source = from_catalogue(settings, lambda app: _generated(app, filter_, language), refresh=refresh)
    click.echo(json.dumps({"language": language, "source": source}) if as_json else source, nl=as_json)
    if filter_ and "/tools/" not in source:
        click.echo(f"No tools match {filter_}", err=True)


@click.command()
@click.argument("tool_id")
@click.argument("arguments", required=False)
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="One argument; VALUE is JSON or plain text.")
@options.overrides("call_timeout", "--call-timeout", metavar="SECONDS")
@options.config
@options.data_dir
@options.as_json
def call(tool_id: str, arguments: str | None, pairs: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Call a tool and print its answer.

    ARGUMENTS is a JSON object, or `-` to read it from standard input. Without a running gateway only the tool's own
    server is started, for this one call.

    \b
    toolscript call time__get_current_time '{"timezone": "Europe/Lisbon"}'
    toolscript call filesystem__read_file --arg path=notes.txt
    """
    settings = _settings(flags)
    given = _arguments(arguments, pairs)
    patience = settings.call_timeout + 15
    limit = settings.call_timeout if flags["call_timeout"] is not None else None
    path = f"/tools/{quote(tool_id, safe='', errors='replace')}"
    answer = ask(settings, path, body=given, patience=patience, timeout=limit)
    if answer is None:
        answer = from_catalogue(settings, lambda app: _called(app, tool_id, given))
    if as_json:
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        _show_answer(answer)


def _settings(flags: Mapping[str, Any]) -> Settings:
    settings = load_settings(**flags)
    configure_logging(settings.log_level)
    return settings


def _arguments(text: str | None, pairs: Sequence[str]) -> dict[str, Any]:
    if text == "-":
        text = sys.stdin.read()
    try:
        given = json.loads(text) if text and text.strip() else {}
    except ValueError as error:
        raise Invalid(f"ARGUMENTS is no JSON: {error}", details={"field": "ARGUMENTS"}) from error
    if not isinstance(given, dict):
        raise Invalid('ARGUMENTS must be a JSON object, like \'{"path": "notes.txt"}\'', details={"field": "ARGUMENTS"})
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Invalid(f"--arg {pair} is not usable: give NAME=VALUE", details={"field": "--arg"})
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = value
    return given


async def _tried(app: App) -> dict[str, Any]:
    from toolscript.surfaces.json.tools import build_servers_response

    return build_servers_response(app.gateway.statuses, app.gateway.configuration_error)


async def _listed(app: App, filter_: str | None) -> dict[str, Any]:
    from toolscript.surfaces.json.tools import build_tools_response

    return build_tools_response(await app.list_tools.matching(filter_))


async def _generated(app: App, filter_: str | None, language: str) -> str:
    from toolscript.codegen.python import generate_python
    from toolscript.codegen.typescript import generate_typescript

    items = await app.list_tools.matching(filter_)
    return generate_typescript(items) if language == "typescript" else generate_python(items)


async def _called(app: App, tool_id: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    from toolscript.surfaces.json.tools import build_call_response

    item = await app.call_tool.describe(tool_id)
    configured = configuration_of(app.settings).servers
    specs = [s for s in configured if s.name == item.server]
    if not specs:
        raise Unavailable(f"{tool_id} is a tool of the demo catalogue, and has no server behind it")
    if not app.gateway.statuses:
        await connect(app, specs, among=configured)
    return build_call_response(await app.call_tool.call(tool_id, arguments))


def _show_servers(answer: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not answer["servers"]:
        click.echo("No servers are configured: the gateway serves its demo catalogue, or a file without servers.")
    table = Table(box=None, header_style="bold", pad_edge=False, show_header=bool(answer["servers"]))
    for name in ("Server", "State", "Tools", "Prompts", "Resources", "Reason"):
        table.add_column(
            name, justify="right" if name in {"Tools", "Prompts", "Resources"} else "left", overflow="fold"
        )
    for s in answer["servers"]:
        counts = [str(s[kind]) for kind in ("tools", "prompts", "resources")]
        told = "; ".join(filter(None, [s["reason"], *s["problems"]]))
        table.add_row(marked(s["name"]), f"[{COLOURS[s['state']]}]{s['state']}[/]", *counts, marked(told))
    Console(highlight=False).print(table)
    if answer["configurationError"]:
        click.echo(click.style("configuration: ", fg="red") + answer["configurationError"], err=True)


def _show_answer(answer: Any) -> None:
    """Texts as they are; anything else as JSON."""
    content = answer.get("content") if isinstance(answer, dict) else None
    if isinstance(content, list) and all(isinstance(b, dict) and b.get("type") == "text" for b in content):
        for block in content:
            text = str(block.get("text", ""))
            click.echo("\n".join(map(printable, text.splitlines())) if sys.stdout.isatty() else text)
    else:
        click.echo(json.dumps(answer, ensure_ascii=False, indent=2))
