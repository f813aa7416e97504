"""Forwards the messages of a pipe of `toolscript mcp --gateway URL` to the gateway at that URL, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from toolscript.domain.errors import Unavailable
from toolscript.domain.profiles import DEFAULT_PROFILE
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.gateway import build_credentials, find_gateway_url, uses_proxy

if TYPE_CHECKING:
    import httpx
    from mcp_types import CallToolRequestParams

    from toolscript.domain.servers import Progress
    from toolscript.services.tools.native_changes import ChangeFilter, ChangeStream
    from toolscript.surfaces.mcp.relay import Context

START_TIMEOUT_SECONDS = 30.0
_PAUSE_SECONDS = 0.1


class RemoteGateway:
    """Answers what a pipe sends with the answers of the gateway."""

    def __init__(self, settings: Settings, profile: str) -> None:
        """Raises Invalid for a setting that is not a URL."""
        self._settings = settings
        self._url = find_gateway_url(settings) or ""
        path = "/mcp" if profile == DEFAULT_PROFILE else f"/mcp/{quote(profile, safe='')}"
        self._endpoint = f"{self._url}{path}"

    async def wait(self) -> None:
        """Waits until the gateway answers. Raises Unavailable when it refuses, or does not answer in time."""
        problem = Unavailable(f"no gateway responds at {self._url}")
        with suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_SECONDS):
                while True:
                    try:
                        response = await self._post({"method": "ping"})
                    except _UnreadableResponse as error:  # of a proxy, or of another program on the port
                        problem = error
                    else:
                        if response is not None and "result" in response:
                            return
                        if response is not None:
                            raise Unavailable(f"the gateway responded with an error: {_read_error(response)}")
                    await asyncio.sleep(_PAUSE_SECONDS)
        raise problem

    async def answer(self, params: CallToolRequestParams, context: Context) -> Mapping[str, Any]:
        """Forwards a call with the newest version of the protocol: its results can be of any type. Raises
        Unavailable."""
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
        response = await self._send(message, headers, context.session.report_progress)
        if "result" not in response:
            raise Unavailable(f"the gateway responded with an error: {_read_error(response)}")
        result: Mapping[str, Any] = response["result"]
        return result

    async def answer_native(self, method: str, params: dict[str, Any], _: object) -> dict[str, Any]:
        """Forwards a request for a list, a prompt or a resource. Raises MCPError, and Unavailable when no gateway
        answers."""
        from mcp import MCPError

        response = await self._send({"method": method, "params": params})
        if isinstance(result := response.get("result"), dict):
            return result
        error = response.get("error")
        if isinstance(error, dict) and isinstance(error.get("code"), int):
            raise MCPError(error["code"], error["message"], error.get("data"))
        raise Unavailable(f"the gateway responded with an error: {_read_error(response)}")

    @asynccontextmanager
    async def open_stream(self, wanted: ChangeFilter) -> AsyncIterator[ChangeStream]:
        """A stream of changes of the gateway. Raises Unavailable."""
        from toolscript.surfaces.mcp.remote_changes import open_remote_stream

        credentials = build_credentials(self._settings)
        async with open_remote_stream(
            self._endpoint, credentials, wanted, trust_env=uses_proxy(self._endpoint)
        ) as stream:
            yield stream

    async def _send(
        self,
        message: dict[str, Any],
        more_headers: Mapping[str, str] | None = None,
        on_progress: Progress | None = None,
    ) -> dict[str, Any]:
        """The response, also of a gateway that is just restarting."""
        response = await self._post(message, more_headers, on_progress)
        if response is None:
            await self.wait()
            response = await self._post(message, more_headers, on_progress)
        if response is None:
            raise Unavailable(f"no gateway responds at {self._url}")
        return response

    async def _post(
        self,
        message: dict[str, Any],
        more_headers: Mapping[str, str] | None = None,
        on_progress: Progress | None = None,
    ) -> dict[str, Any] | None:
        """The response; None when nobody accepts connections. Raises Unavailable when the request may have arrived and
        no response comes: it must not be sent twice. Uses httpx instead of `send_to_gateway`, because the request has
        to be cancelled when the agent disconnects."""
        import httpx

        headers = {"Accept": "application/json, text/event-stream", **build_credentials(self._settings)}
        headers |= more_headers or {}
        timeout_seconds = self._settings.call_timeout + START_TIMEOUT_SECONDS
        try:
            body = {"jsonrpc": "2.0", "id": 1, **message}
            async with (
                httpx.AsyncClient(timeout=timeout_seconds, trust_env=uses_proxy(self._url)) as client,
                client.stream("POST", self._endpoint, json=body, headers=headers) as response,
            ):
                return await _read_response(response, self._url, on_progress)
        except httpx.ConnectError:
            return None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(
                f"the gateway at {self._url} did not respond ({reason}): it is unknown whether the request was "
                "carried out"
            ) from error


class _UnreadableResponse(Unavailable):
    """The response is not one of a gateway."""


def _read_error(response: Mapping[str, Any]) -> object:
    error = response.get("error")
    return error.get("message") if isinstance(error, dict) else response


async def _read_response(response: httpx.Response, url: str, on_progress: Progress | None) -> dict[str, Any]:
    """The response. It may be the last message of a stream, after progress."""
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
