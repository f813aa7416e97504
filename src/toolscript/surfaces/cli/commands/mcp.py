"""`toolscript mcp`: the gateway as an MCP server over standard input and output, for an agent's configuration.

Several agents may each start one on the same data folder, which only one process can open. The first becomes the
gateway; the others forward their calls to it, and one of them takes over when it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.access import Principal
from toolscript.domain.errors import Invalid, ToolscriptError, Unavailable
from toolscript.domain.profiles import DEFAULT_PROFILE
from toolscript.domain.requests import profile_name
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.gateway import build_credentials, find_gateway_url, uses_proxy
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.commands.gateway import GatewayRun, on_stop_signal
from toolscript.surfaces.cli.terminal import options

if TYPE_CHECKING:
    import httpx
    from mcp_types import CallToolRequestParams

    from toolscript.app.app import App
    from toolscript.domain.servers import Progress
    from toolscript.services.tools.native_changes import ChangeFilter, ChangeStream
    from toolscript.surfaces.mcp.relay import Context

START_TIMEOUT_SECONDS = 30.0
GATEWAY_GONE = "the gateway cannot be reached: start it with `toolscript gateway start`"
_PAUSE_SECONDS = 0.1


@click.command()
@options.config
@options.model
@options.data_dir
@options.gateway
@options.overrides("profile", "--profile", metavar="NAME")
def mcp() -> None:
    """Serve MCP on standard input and output: the only server that an agent needs.

    Put `toolscript` with the argument `mcp` into the agent's configuration. A gateway that runs on the same data folder
    is used; without one this process becomes the gateway, on a free local port.
    """
    settings = read_settings(is_service=True)
    try:
        import mcp as _  # noqa: F401
    except ImportError as error:
        raise Invalid("serving MCP needs an optional dependency: pip install 'toolscript[server]'") from error
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from toolscript.surfaces.mcp.server import serve_over_stdio

    profile_name.set(settings.profile)
    calls = GatewayCalls(settings)
    opening = asyncio.create_task(calls.open())
    serving = asyncio.create_task(
        serve_over_stdio(calls.answer, calls.answer_native, calls.open_stream, settings.page_secret)
    )
    is_stopped = asyncio.Event()
    on_stop_signal(is_stopped.set)
    waiting = asyncio.create_task(is_stopped.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    opening.cancel()
    await calls.close()
    if is_stopped.is_set():
        os._exit(0)  # a thread blocks on reading standard input and cannot be interrupted
    waiting.cancel()
    await serving


class GatewayCalls:
    """Answers calls: with this process's own gateway, or with the one that has the data folder open."""

    def __init__(self, settings: Settings) -> None:
        self._settings = replace(settings, host="127.0.0.1", port=0)
        self._run: GatewayRun | None = None
        self._running: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._error: ToolscriptError | None = None

    async def open(self) -> None:
        """Waits until a gateway runs, and starts one if necessary. Raises Unavailable when that takes too long."""
        try:
            async with asyncio.timeout(START_TIMEOUT_SECONDS), self._lock:
                while self._own_app is None and not await self._is_running_elsewhere():
                    if self._settings.gateway_url:
                        await asyncio.sleep(_PAUSE_SECONDS)
                    else:
                        await self._become_gateway()
        except TimeoutError:
            raise self._error or Unavailable("the gateway does not start: try again in a moment") from None

    async def answer(self, params: CallToolRequestParams, context: Context) -> Mapping[str, Any]:
        """Answers a call, here or in the other process, for the tenant of the settings: the caller owns the data
        folder."""
        from toolscript.surfaces.mcp.relay import build_relay
        from toolscript.surfaces.mcp.server import answer_call

        for _ in range(2):
            if self._own_app is not None:
                return await answer_call(self._own_app, params, self._find_caller, relay=build_relay(context))
            result = await self._forward(params, context)
            if result is not None:
                return result
            await self.open()
        raise Unavailable(GATEWAY_GONE)

    async def answer_native(self, method: str, params: dict[str, Any], __: object) -> dict[str, Any]:
        """Answers a request for a list, a prompt or a resource, here or in the other process. Raises MCPError, and
        Unavailable when no gateway answers or it refuses the profile."""
        from toolscript.surfaces.mcp.native import answer_request

        for _ in range(2):
            if self._own_app is not None:
                return await answer_request(self._own_app, method, params)
            response = await self._post({"method": method, "params": params})
            if response is not None:
                return _read_result(response)
            await self.open()
        raise Unavailable(GATEWAY_GONE)

    @asynccontextmanager
    async def open_stream(self, wanted: ChangeFilter) -> AsyncIterator[ChangeStream]:
        """A stream of changes, of this process's gateway or the other one's. Raises Unavailable."""
        from toolscript.surfaces.mcp.remote_changes import open_remote_stream

        await self.open()
        url = find_gateway_url(self._settings)
        if self._own_app is not None:
            stream = self._own_app.native_changes.open(wanted)
        elif url is not None:
            endpoint = f"{url}{self._endpoint_path}"
            stream = open_remote_stream(endpoint, self._build_credentials(), wanted, trust_env=uses_proxy(url))
        else:
            raise Unavailable(GATEWAY_GONE)
        async with stream as opened:
            yield opened

    async def close(self) -> None:
        """Ends the gateway if it is this process's own."""
        if self._running:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _find_caller(self) -> Principal:
        return Principal(self._settings.tenant)

    @property
    def _endpoint_path(self) -> str:
        profile = self._settings.profile
        return "/mcp" if profile == DEFAULT_PROFILE else f"/mcp/{quote(profile, safe='')}"

    @property
    def _own_app(self) -> App | None:
        if self._run is None or self._running is None or self._running.done():
            return None
        return self._run.server.served.current if self._run.server.served.is_ready else None

    async def _become_gateway(self) -> None:
        from rich.console import Console

        if self._running is None or self._running.done():
            self._run = GatewayRun(self._settings, Console(stderr=True, quiet=True))
            self._running = asyncio.create_task(self._run.serve())
        while self._own_app is None:
            done, _ = await asyncio.wait({self._running}, timeout=_PAUSE_SECONDS)
            if done:
                self._run = None
                error = self._running.exception()
                if not isinstance(error, Unavailable):
                    raise error or Unavailable("the gateway has stopped")
                self._error = error  # probably another process was faster, and will announce its URL
                await asyncio.sleep(_PAUSE_SECONDS)
                return

    async def _is_running_elsewhere(self) -> bool:
        try:
            response = await self._post({"method": "ping"})
        except _UnreadableResponse as error:  # of a proxy, or of another program on the port
            self._error = error
            return False
        if self._settings.gateway_url and response is not None and "result" not in response:
            raise Unavailable(f"the gateway responded with an error: {response.get('error', response)}")
        if self._settings.gateway_url and response is None:
            self._error = Unavailable(f"no gateway responds at {self._settings.gateway_url}")
        return "result" in (response or {})

    async def _forward(self, params: CallToolRequestParams, context: Context) -> Mapping[str, Any] | None:
        """Forwards a call with the newest version of the protocol, whose results can be of any type."""
        from mcp.shared.inbound import encode_header_value
        from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY
        from mcp_types.version import LATEST_MODERN_VERSION

        from toolscript.surfaces.mcp.relay import read_capabilities

        given = {name: value for name, value in (context.params or {}).items() if value is not None}
        meta = {**given.get("_meta", {}), PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION}
        meta[CLIENT_CAPABILITIES_META_KEY] = read_capabilities(context) or {}
        headers = {"MCP-Protocol-Version": LATEST_MODERN_VERSION, "Mcp-Method": "tools/call"}
        headers["Mcp-Name"] = encode_header_value(params.name)
        message = {"method": "tools/call", "params": {**given, "_meta": meta}}
        response = await self._post(message, headers, context.session.report_progress)
        if response is None:
            return None
        if "result" not in response:
            raise Unavailable(f"the gateway responded with an error: {response.get('error', response)}")
        result: Mapping[str, Any] = response["result"]
        return result

    def _build_credentials(self) -> dict[str, str]:
        try:
            return build_credentials(self._settings, self._settings.tenant)
        except Unavailable:  # a gateway of an older version: it answers everything but searches in documents
            return build_credentials(self._settings)

    async def _post(
        self,
        message: dict[str, Any],
        more_headers: Mapping[str, str] | None = None,
        on_progress: Progress | None = None,
    ) -> dict[str, Any] | None:
        """The response of another process's gateway; None when none runs. Raises Unavailable when the request may have
        arrived and no response comes: it must not be sent twice. Uses httpx instead of `send_to_gateway`, because the
        request has to be cancelled when the agent disconnects."""
        import httpx

        url = find_gateway_url(self._settings)
        if url is None or (self._run and url == self._run.server.url):
            return None
        headers = {"Accept": "application/json, text/event-stream", **self._build_credentials(), **(more_headers or {})}
        timeout_seconds = self._settings.call_timeout + START_TIMEOUT_SECONDS
        try:
            body = {"jsonrpc": "2.0", "id": 1, **message}
            async with (
                httpx.AsyncClient(timeout=timeout_seconds, trust_env=uses_proxy(url)) as client,
                client.stream("POST", f"{url}{self._endpoint_path}", json=body, headers=headers) as response,
            ):
                return await _read_response(response, url, on_progress)
        except httpx.ConnectError:
            return None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(
                f"the gateway at {url} did not respond ({reason}): it is unknown whether the request was carried out"
            ) from error


def _read_result(response: Mapping[str, Any]) -> dict[str, Any]:
    """The result in a response. Raises MCPError with the error of MCP, Unavailable for one of HTTP."""
    from mcp import MCPError

    if isinstance(result := response.get("result"), dict):
        return result
    error = response.get("error")
    if isinstance(error, dict) and isinstance(error.get("code"), int):
        raise MCPError(error["code"], error["message"], error.get("data"))
    reason = error.get("message") if isinstance(error, dict) else response
    raise Unavailable(f"the gateway responded with an error: {reason}")


class _UnreadableResponse(Unavailable):
    """The response is not one of a gateway."""


async def _read_response(response: httpx.Response, url: str, on_progress: Progress | None) -> dict[str, Any]:
    """The response, which may be the last message of a stream, after progress."""
    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    lines = response.aiter_lines() if is_stream else _read_whole(response)
    async for line in lines:
        with suppress(ValueError):
            message = json.loads(line.removeprefix("data:"))
            if not isinstance(message, dict) or message.get("method") not in {None, "notifications/progress"}:
                continue
            if "method" not in message:
                return message
            if on_progress:
                about = message["params"]
                await on_progress(about["progress"], about.get("total"), about.get("message"))
    raise _UnreadableResponse(
        f"{url} responded with status {response.status_code}, and not as a gateway does: it is unknown whether the "
        "request was carried out"
    )


async def _read_whole(response: httpx.Response) -> AsyncIterator[str]:
    yield (await response.aread()).decode(errors="replace")
