"""What passes between a caller and server-everything during a call, over every way into the gateway."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    TextContent,
)

from tests.fixtures.examples import choose
from tests.servers.gateway import run_gateway
from tests.servers.preloaded import toolscript_command
from tests.servers.real import real_servers

TIMEOUT_SECONDS = 120.0
LONG = "everything__trigger-long-running-operation"
WAYS = ["http", "older-http", "stdio", "older-stdio", "forwarded"]
IN_SHORT = ["http", "older-http", "forwarded"]  # which is over stdio as well
IN_SHORTER = ["older-http", "forwarded"]  # test_everything.py calls over HTTP

pytestmark = pytest.mark.req("G-05", "G-08", "G-10")


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway; `received` has the lines that server-everything got from it."""

    url: str
    folder: Path
    received: Path

    @asynccontextmanager
    async def connect(self, way: str, **options: Any) -> AsyncIterator[Client]:
        """A client of the SDK. Over stdio it has a gateway of its own, unless its calls are forwarded to this one."""
        async with AsyncExitStack() as stack:
            mode = "legacy" if way.startswith("older") else "2026-07-28"
            if way.endswith("http"):
                target: Any = f"{self.url}/mcp"
            else:
                target = self._start_stdio(way == "forwarded")
            yield await stack.enter_async_context(Client(target, mode=mode, **options))

    def _start_stdio(self, is_forwarded: bool) -> StdioServerParameters:
        command, *arguments = toolscript_command()
        place = ["--gateway", self.url] if is_forwarded else ["--config", str(self.folder / "mcp.json")]
        variables = {"TOOLSCRIPT_SEARCH_MODEL": "hashed-64", "HOME": str(self.folder)}
        data = self.folder / ("forwarded" if is_forwarded else "stdio")
        arguments += ["mcp", "--linger", "0", *place, "--data-dir", str(data)]
        return StdioServerParameters(command=command, args=arguments, env=variables)

    def read_messages(self, method: str) -> list[dict[str, Any]]:
        """The messages of that method that reached server-everything."""
        lines = self.received.read_text().splitlines() if self.received.exists() else []
        messages = []
        for line in lines:
            with suppress(ValueError):  # half a line
                messages.append(json.loads(line))
        return [message for message in messages if message.get("method") == method]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("gateway")
    entry = real_servers(folder / "work")["everything"]
    received = folder / "received.jsonl"
    server = f"tee -a {shlex.quote(str(received))} | {shlex.join([entry['command'], *entry['args']])}"
    recorded = entry | {"command": "sh", "args": ["-c", server]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"everything": recorded}}))
    with run_gateway(folder, "--config", str(folder / "mcp.json"), DATA_DIR=str(folder / "data")) as running:
        yield Gateway(running.url, folder, received)


async def wait_for(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not found():  # noqa: ASYNC110  (it happens in another process)
            await asyncio.sleep(0.02)


async def call(client: Client, tool: str, arguments: dict[str, Any], **options: Any) -> CallToolResult:
    """The result of the tool, once its server is connected."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            result = await client.call_tool("call_tool", {"tool_id": tool, "arguments": arguments}, **options)
            assert isinstance(result, CallToolResult)
            if not (result.is_error and "no such tool" in text_of(result)):
                return result
            await asyncio.sleep(0.1)


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


@pytest.mark.parametrize("way", choose(WAYS, *IN_SHORTER))
async def test_progress_of_a_long_operation_reaches_the_caller(gateway: Gateway, way: str) -> None:
    steps: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, _: str | None) -> None:
        steps.append((progress, total))

    async with gateway.connect(way) as client:
        await call(client, "everything__echo", {"message": "hello"})
        result = await call(client, LONG, {"duration": 0.5, "steps": 5}, progress_callback=note)
        assert "completed" in text_of(result)
        assert steps == [(n, 5) for n in range(1, 6)]


def find_calls(gateway: Gateway, duration: float) -> list[Any]:
    """The ids of the requests for a long operation of that duration that reached the server."""
    started = gateway.read_messages("tools/call")
    return [call["id"] for call in started if call["params"].get("arguments", {}).get("duration") == duration]


async def wait_until_cancelled(gateway: Gateway, duration: float) -> None:
    (request,) = find_calls(gateway, duration)
    await wait_for(
        lambda: request in [m["params"]["requestId"] for m in gateway.read_messages("notifications/cancelled")]
    )


async def await_cancellation(gateway: Gateway, long_call: asyncio.Task[Any], marker: float) -> None:
    """Ends the caller's task once its call has reached the server, and waits until the server was told."""
    await wait_for(lambda: bool(find_calls(gateway, marker)) or long_call.done())
    assert not long_call.done(), long_call
    long_call.cancel()
    with suppress(asyncio.CancelledError):
        await long_call
    await wait_until_cancelled(gateway, marker)


# A stateless gateway cannot match a cancellation that an older client posts on its own with the call.
@pytest.mark.parametrize("way", choose([way for way in WAYS if way != "older-http"], *IN_SHORT))
async def test_a_caller_that_cancels_cancels_the_call_upstream(gateway: Gateway, way: str) -> None:
    async with gateway.connect(way) as client:
        await call(client, "everything__echo", {"message": "hello"})
        marker = 600.0 + WAYS.index(way)
        arguments = {"tool_id": LONG, "arguments": {"duration": marker, "steps": 1}}
        long_call = asyncio.create_task(client.call_tool("call_tool", arguments))
        await await_cancellation(gateway, long_call, marker)
        assert "hello" in text_of(await call(client, "everything__echo", {"message": "hello"}))


@pytest.mark.parametrize("has_token", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("accepts", ["application/json", "application/json, text/event-stream"])
async def test_an_older_client_that_disconnects_cancels_the_call(
    gateway: Gateway, accepts: str, has_token: bool
) -> None:
    marker = 700.0 + 10 * has_token + len(accepts)
    arguments = {"tool_id": LONG, "arguments": {"duration": marker, "steps": 1}}
    params: dict[str, Any] = {"name": "call_tool", "arguments": arguments}
    if has_token:
        params["_meta"] = {"progressToken": 7}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as http:
        posting = http.post(f"{gateway.url}/mcp", json=body, headers={"Accept": accepts})
        await await_cancellation(gateway, asyncio.create_task(posting), marker)


async def test_a_caller_of_the_http_interface_that_disconnects_cancels_the_call(gateway: Gateway) -> None:
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as http:
        posting = http.post(f"{gateway.url}/tools/{LONG}", json={"duration": 800, "steps": 1})
        await await_cancellation(gateway, asyncio.create_task(posting), 800)


@pytest.mark.extended
async def test_a_call_that_takes_too_long_is_cancelled_upstream(gateway: Gateway) -> None:
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as http:
        url = f"{gateway.url}/tools/{LONG}?timeout=3"
        response = await http.post(url, json={"duration": 900, "steps": 1})
    assert response.status_code == 504
    await wait_until_cancelled(gateway, 900)


async def elicit(context: Any, params: ElicitRequestParams) -> ElicitResult:
    assert isinstance(params, ElicitRequestFormParams)
    assert "name" in params.requested_schema["properties"]
    return ElicitResult(action="accept", content={"name": "Ada"})


async def sample(context: Any, params: CreateMessageRequestParams) -> CreateMessageResult:
    assert "a poem" in str(params.messages)
    return CreateMessageResult(role="assistant", model="test", content=TextContent(type="text", text="Roses are red."))


@pytest.mark.extended
async def test_server_everything_asks_an_older_client_over_stdio(gateway: Gateway) -> None:
    async with gateway.connect("older-stdio", elicitation_callback=elicit, sampling_callback=sample) as client:
        elicited = await call(client, "everything__trigger-elicitation-request", {})
        assert "Ada" in text_of(elicited)
        sampled = await call(client, "everything__trigger-sampling-request", {"prompt": "a poem"})
        assert "Roses are red." in text_of(sampled)


@pytest.mark.parametrize("way", choose(["http", "older-http", "stdio", "forwarded"], *IN_SHORT))
async def test_a_tool_fails_and_says_so_where_its_caller_cannot_answer(gateway: Gateway, way: str) -> None:
    async with gateway.connect(way, elicitation_callback=elicit) as client:
        result = await call(client, "everything__trigger-elicitation-request", {})
        assert result.is_error
        assert "elicitation/create did not reach the caller of the tool: this caller cannot be asked" in text_of(result)
