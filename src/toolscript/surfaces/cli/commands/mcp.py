"""`toolscript mcp`: the gateway as an MCP server over standard input and output, for an agent's configuration.

Several agents may each start one on the same data folder, which only one process can hold. The first one becomes the
gateway; the others pass their calls on to it, and one of them takes its place when it ends.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from toolscript.domain.access import Principal
from toolscript.domain.errors import Invalid, ToolscriptError, Unavailable
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli.client.gateway import address, credentials
from toolscript.surfaces.cli.commands.gateway import Run
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import when_told_to_stop
from toolscript.surfaces.logs import configure_logging

if TYPE_CHECKING:
    from mcp_types import CallToolRequestParams, CallToolResult

    from toolscript.app.app import App

PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.1


@click.command()
@options.config
@options.model
@options.data_dir
def mcp(**flags: Any) -> None:
    """Serve MCP on standard input and output: the one server that an agent needs.

    Put `toolscript` with the argument `mcp` into the agent's configuration. A gateway that runs on the same data folder
    is used; without one this process becomes it, on a free port of this machine.
    """
    settings = load_settings(**flags)
    configure_logging(settings.log_level)
    try:
        import mcp as _  # noqa: F401
    except ImportError as error:
        raise Invalid("serving MCP needs an extra that is not installed: pip install 'toolscript[server]'") from error
    asyncio.run(_speak(settings))


async def _speak(settings: Settings) -> None:
    from toolscript.surfaces.mcp.server import serve_over_stdio

    door = Door(settings)
    opening = asyncio.create_task(door.open())
    speaking = asyncio.create_task(serve_over_stdio(door.answer))
    told = asyncio.Event()
    when_told_to_stop(told.set)
    waiting = asyncio.create_task(told.wait())
    await asyncio.wait({speaking, waiting}, return_when=asyncio.FIRST_COMPLETED)
    opening.cancel()
    await door.close()
    if told.is_set():
        os._exit(0)  # a thread still waits for a line of input, and nothing would wake it
    waiting.cancel()
    await speaking


class Door:
    """The way to the application: this process's own, or that of the gateway which holds the data folder."""

    def __init__(self, settings: Settings) -> None:
        self._settings = replace(settings, host="127.0.0.1", port=0)
        self._run: Run | None = None
        self._running: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._fault: ToolscriptError | None = None

    async def open(self) -> None:
        """Makes sure that somebody answers. Raises Unavailable when nobody does in time."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._turn:
                while self._own is None and not await self._elsewhere():
                    await self._become_the_gateway()
        except TimeoutError:
            raise self._fault or Unavailable("the gateway does not come up: ask again in a moment") from None

    async def answer(self, params: CallToolRequestParams, __: object) -> CallToolResult:
        """Answers a call here or has it answered: for the tenant of the settings, because whoever may start us owns the
        data folder."""
        from toolscript.surfaces.mcp.server import answer_call

        for _ in range(2):
            if self._own is not None:
                return await answer_call(self._own, params, self._caller)
            passed_on = await self._pass_on(params)
            if passed_on is not None:
                return passed_on
            await self.open()
        raise Unavailable("the gateway cannot be reached: start it with `toolscript gateway start`")

    async def close(self) -> None:
        """Ends the gateway if it is this process's own."""
        if self._running:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _caller(self) -> Principal:
        return Principal(self._settings.tenant)

    @property
    def _own(self) -> App | None:
        if self._run is None or self._running is None or self._running.done():
            return None
        return self._run.server.served.current if self._run.server.served.is_ready else None

    async def _become_the_gateway(self) -> None:
        from rich.console import Console

        if self._running is None or self._running.done():
            self._run = Run(self._settings, Console(stderr=True, quiet=True))
            self._running = asyncio.create_task(self._run.until_stopped())
        while self._own is None:
            done, _ = await asyncio.wait({self._running}, timeout=_PAUSE_SECONDS)
            if done:
                self._run = None
                fault = self._running.exception()
                if not isinstance(fault, Unavailable):
                    raise fault or Unavailable("the gateway ended")
                self._fault = fault  # most likely another process was faster, and will say where it is
                await asyncio.sleep(_PAUSE_SECONDS)
                return

    async def _elsewhere(self) -> bool:
        url = address(self._settings.data)
        if url is None or (self._run and url == self._run.server.url):
            return False
        told = await self._post(f"{url}/mcp", {"method": "ping"})
        return told is not None and "result" in told

    async def _pass_on(self, params: CallToolRequestParams) -> CallToolResult | None:
        from mcp_types import CallToolResult

        url = address(self._settings.data)
        if url is None or (self._run and url == self._run.server.url):
            return None
        told = await self._post(
            f"{url}/mcp", {"method": "tools/call", "params": params.model_dump(by_alias=True, exclude_none=True)}
        )
        if told is None:
            return None
        if "result" not in told:
            raise Unavailable(f"the gateway at {url} answered: {told.get('error', told)}")
        return CallToolResult.model_validate(told["result"], by_name=False)

    def _credentials(self) -> dict[str, str]:
        try:
            return credentials(self._settings, self._settings.tenant)
        except Unavailable:  # a gateway of before: it still answers everything but searches in documents
            return credentials(self._settings)

    async def _post(self, url: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """The gateway's answer; None when nobody is there. Not by `ask`, which is for commands that ask once and must
        start fast: an agent that hangs up must be able to cancel this."""
        import httpx

        headers = {"Accept": "application/json, text/event-stream", **self._credentials()}
        try:
            patience = self._settings.call_timeout + PATIENCE_SECONDS
            async with httpx.AsyncClient(timeout=patience, trust_env=False) as client:
                answer = await client.post(url, json={"jsonrpc": "2.0", "id": 1, **message}, headers=headers)
                told = answer.json()
        except (httpx.ConnectError, ValueError):
            return None
        except httpx.HTTPError as error:
            raise Unavailable(f"the gateway at {url} does not answer: {error}") from error
        return told if isinstance(told, dict) else None
