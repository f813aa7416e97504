"""`toolscript mcp`: the gateway as an MCP server over standard input and output, for an agent's configuration.

The process that a client starts is a pipe (see `toolscript.pipe`). It starts this command again in the background, as
the gateway; with `--gateway`, as a process that forwards to the gateway at that URL.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from toolscript.domain.errors import Invalid
from toolscript.pipe.carrier import Carrier
from toolscript.pipe.place import HAS_PIPES, SERVE, Options, locate_socket
from toolscript.settings import Settings, get_variable
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.client.shutdown import on_stop_signal
from toolscript.surfaces.cli.commands.gateway import GatewayRun, run_gateway
from toolscript.surfaces.cli.terminal import options

LINGER_SECONDS = 60.0
# The pipe that has started a gateway may take a moment to connect.
MIN_FIRST_SECONDS = 30.0
# How often a gateway looks whether it is still used.
LOOK_SECONDS = 0.2


@click.command()
@options.config
@options.model
@options.data_dir
@options.gateway
@options.overrides("profile", "--profile", metavar="NAME")
@click.option(
    "--linger",
    type=click.FloatRange(0, 86_400),
    default=LINGER_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long the gateway that this command has started goes on after its last client has left.",
)
@click.option(SERVE, "serves", is_flag=True, hidden=True)
def mcp(linger: float, serves: bool) -> None:
    """Serve MCP on standard input and output: the only server that an agent needs.

    Put `toolscript` with the argument `mcp` into the agent's configuration. A gateway that runs on the same data folder
    is used; without one, this command starts one in the background, on a free local port. Its log is the file
    gateway.log in the data folder.
    """
    if not HAS_PIPES:
        raise Invalid(
            "`toolscript mcp` does not work on Windows: run Toolscript in WSL, or run `toolscript gateway start` and "
            "give the agent its address, http://127.0.0.1:3780/mcp"
        )
    if not serves:
        sys.exit(Carrier(_read_options()).run())
    settings = read_settings(is_service=True)
    try:
        import mcp as _  # noqa: F401
    except ImportError as error:
        raise Invalid("serving MCP needs an optional dependency: pip install 'toolscript[server]'") from error
    if settings.gateway_url:
        asyncio.run(_forward(settings, linger))
    else:
        from rich.console import Console

        local = replace(settings, host="127.0.0.1", port=0)
        run = GatewayRun(local, Console(stderr=True, quiet=True), serves_agents_alone=True)
        run_gateway(run, lambda: _stop_when_unused(run.is_used, run.stop, linger))


def _read_options() -> Options:
    given = {get_variable(name): value for name, value in options.get_overrides().items() if value is not None}
    return Options({**os.environ, **given})


async def _stop_when_unused(is_used: Callable[[], bool], stop: Callable[[], object], linger: float) -> None:
    """Stops a gateway that has had no client for that many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + max(linger, MIN_FIRST_SECONDS)
    while is_used() or loop.time() < end:
        if is_used():
            end = loop.time() + linger
        await asyncio.sleep(LOOK_SECONDS)
    stop()


async def _forward(settings: Settings, linger: float) -> None:
    """Serves pipes with the answers of the gateway at the URL of the settings, until no client is left."""
    from toolscript.surfaces.cli.client.remote_gateway import RemoteGateway
    from toolscript.surfaces.mcp.pipe_server import Answers, Hello, PipeServer
    from toolscript.surfaces.mcp.tool_list_requests import StartingToolList

    async def accept(hello: Hello) -> Answers:
        remote = RemoteGateway(settings, hello.profile)
        await remote.wait()
        lists = StartingToolList(remote.answer_native, remote.open_stream)
        return Answers(remote.answer, lists.answer, lists.open_stream)

    await RemoteGateway(settings, settings.profile).wait()
    is_stopped = asyncio.Event()
    on_stop_signal(is_stopped.set)
    path = Path(locate_socket(str(settings.data), _read_options().name))
    pipes = PipeServer(path, settings.data, accept, settings.page_secret)
    await pipes.open()

    def stop() -> None:
        pipes.refuse_new()
        is_stopped.set()

    watching = asyncio.create_task(_stop_when_unused(lambda: pipes.is_used, stop, linger))
    await is_stopped.wait()
    watching.cancel()
    await pipes.close()
