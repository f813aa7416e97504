"""`toolscript registry`: reads registries of servers that are not connected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from toolscript.domain.registry.entry import OFFICIAL_REGISTRY
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.text import format_count, print_answer, print_note, printable

if TYPE_CHECKING:
    from toolscript.app.app import App

PATH = "/api/v1/registry"
# Reading all pages, and embedding some 10 000 servers.
TIMEOUT_SECONDS = 3600.0

Answer = Mapping[str, Any]


@click.group(cls=CommandGroup)
def registry() -> None:
    """Read registries, to find servers that are not connected.

    `toolscript search --registry` searches in what they list, and `toolscript servers add NAME` adds one. Nothing is
    sent to a registry by itself.

    \b
    toolscript registry sync
    toolscript search --registry "post to a channel"
    toolscript servers add io.github.ann/slack
    """


@registry.command()
@click.argument("url", metavar="[URL]", default=OFFICIAL_REGISTRY)
@click.option("--full", is_flag=True, help="Read everything again, not only what changed since the last time.")
@options.store
def sync(url: str, full: bool) -> None:
    """Read a registry that speaks the API of the official MCP registry, which is read without a URL.

    Only this command sends something to a registry: requests for its list, without anything about this machine.

    \b
    toolscript registry sync
    toolscript registry sync http://registry.example.com --full
    """

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.registry import build_registry_sync_response

        return build_registry_sync_response(await app.registry.sync(url, full=full))

    async def request(session: CommandSession) -> Any:
        from rich.console import Console

        with Console(stderr=True).status("Reading the registry"):
            body = {"url": url, "full": full}
            return await session.request(f"{PATH}/sync", local, body=body, timeout_seconds=TIMEOUT_SECONDS)

    print_answer(run_in_session(read_settings(), request, with_catalogue=False), _show)


@registry.command()
@click.argument("url")
@options.store
def remove(url: str) -> None:
    """Forget a registry and what it lists. Servers that were added from it stay."""

    async def request(session: CommandSession) -> Any:
        return await session.request(PATH, lambda app: app.registry.remove(url), method="DELETE", url=url)

    run_in_session(read_settings(), request, with_catalogue=False)
    print_answer({"removed": url}, lambda _: click.echo(f"Removed {printable(url)}."))


def _show(answer: Answer) -> None:
    changes = ", ".join(f"{answer[name]} {name}" for name in ("added", "changed", "removed"))
    click.echo(f"{printable(answer['registry'])}: {format_count(answer['total'], 'server')} ({changes})")
    for withheld in answer["withheld"]:
        print_note(f"left out, its text addresses the model: {withheld}")
    for problem in answer["problems"]:
        print_note(f"left out: {problem}")
