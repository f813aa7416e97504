"""`toolscript gateway`: the searches over HTTP."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import click

from toolscript.domain.errors import Invalid, Unavailable
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli import options
from toolscript.surfaces.cli.running import announced
from toolscript.surfaces.cli.search import show
from toolscript.surfaces.logs import write_logs

if TYPE_CHECKING:
    import uvicorn

SAMPLE = "put my changes into version control"


@click.group()
def gateway() -> None:
    """Serve the searches over HTTP."""


@gateway.command()
@options.overrides("host", "--host", metavar="ADDRESS")
@options.overrides("port", "--port", metavar="N")
@options.model
@options.data_dir
def start(**flags: Any) -> None:
    """Index the demo catalogue, answer a first search here, and serve HTTP until interrupted."""
    settings = load_settings(**flags)
    write_logs(settings.log_level)
    if not _is_loopback(settings.host):
        raise Invalid(
            f"--host {settings.host} is not a loopback address, and nothing would keep strangers out: use 127.0.0.1",
            details={"field": "--host", "allowed": ["127.0.0.1", "localhost", "::1"]},
        )
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from rich.console import Console

    from toolscript.app import open_app
    from toolscript.services.demo import demo_items

    try:
        import uvicorn

        from toolscript.surfaces.answers import search_answer
        from toolscript.surfaces.http.server import create_http
    except ImportError as error:
        raise Invalid("serving HTTP needs an extra that is not installed: pip install 'toolscript[server]'") from error
    console = Console(highlight=False, soft_wrap=True)
    with _listen(settings) as listening:
        async with open_app(settings) as opened:
            items = demo_items()
            with console.status("Indexing the demo catalogue"):
                await opened.sync.run(items)
            console.print(f'Searching {len(items)} demo tools for "{SAMPLE}":\n')
            found = await opened.tool_search.search(
                SAMPLE, limit=settings.search_limit, threshold=settings.search_threshold
            )
            show(search_answer(found))
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            url = f"http://{host}:{listening.getsockname()[1]}"
            config = uvicorn.Config(create_http(opened), log_level="warning", lifespan="off", access_log=False)
            server = uvicorn.Server(config)
            _stop_when_told(server)
            with announced(settings.data, url):
                console.print(f"\nServing {url}   try {url}/search?q=read+a+file   Ctrl-C stops")
                await server.serve(sockets=[listening])


def _stop_when_told(server: uvicorn.Server) -> None:
    """Lets SIGINT and SIGTERM end the serving only: uvicorn's own handling would end the process before we close."""
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # on Windows, where Ctrl-C interrupts instead
        for told in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(told, setattr, server, "should_exit", True)
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise Unavailable(
            f"port {settings.port} on {settings.host} cannot be used ({error.strerror}): choose another with --port, "
            "or 0 for any free one",
            details={"field": "--port"},
        ) from error
    return listening
