"""Everything that server-everything offers, directly and through the gateway side by side: the answers are equal.

Every tool, prompt, resource and template of the server must be in the tables here, so that a new version's are noticed.
What changes from call to call is replaced before the comparison, and so are the URIs of the gateway.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.subscriptions import ResourceUpdated
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    Root,
    TextContent,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import BaseModel

from tests.fixtures.examples import choose
from tests.fixtures.serving import serve
from tests.servers.preloaded import toolscript_command
from tests.servers.real import real_servers
from toolscript.app.app import open_app
from toolscript.configuration.files import load_configuration
from toolscript.settings import load_settings

pytestmark = [
    pytest.mark.req("G-05", "G-08", "G-10"),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

TIMEOUT_SECONDS = 60.0
PREFIX = "toolscript:everything/"
DYNAMIC = "demo://resource/dynamic"
ELICITED = {"action": "accept", "content": {"name": "Ada", "color": "blue", "integer": 7}}
NO_CALL = "the server asks for roots when it is connected, where there is no call and no caller"
NO_INPUT = "a server before 2026-07-28 can ask only older clients, over stdio"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool. `missing` says why the gateway cannot do it."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""


TOOLS: dict[str, list[Call]] = {
    "echo": [Call({"message": "grüße 😀"}), Call({})],
    "get-annotated-message": [
        Call({"messageType": kind, "includeImage": image}) for kind in ("error", "debug") for image in (True, False)
    ],
    "get-env": [Call()],
    "get-resource-links": [Call({"count": 3}), Call({"count": 10})],
    "get-resource-reference": [Call({"resourceType": kind, "resourceId": 3}) for kind in ("Text", "Blob")],
    "get-structured-content": [Call({"location": "Chicago"})],
    "get-sum": [Call({"a": 1.5, "b": -3})],
    "get-tiny-image": [Call()],
    "gzip-file-as-resource": [
        Call({"name": "hello.gz", "data": "data:text/plain;base64,aGVsbG8=", "outputType": kind})
        for kind in ("resourceLink", "resource")
    ],
    "toggle-simulated-logging": [Call(), Call()],
    "toggle-subscriber-updates": [Call(), Call()],
    "trigger-long-running-operation": [Call({"duration": 0.2, "steps": 2})],
    "get-roots-list": [Call(missing=NO_CALL)],
    "trigger-elicitation-request": [Call(missing=NO_INPUT)],
    "trigger-url-elicitation": [Call({"url": "https://example.org/login"}, missing=NO_INPUT)],
    "trigger-sampling-request": [Call({"prompt": "Say hello.", "maxTokens": 10}, missing=NO_INPUT)],
    "simulate-research-query": [Call({"topic": "tides"})],  # an error: it needs tasks, which 2026-07-28 has no more
}
PROMPTS: dict[str, list[dict[str, str]]] = {
    "simple-prompt": [{}],
    "args-prompt": [{"city": "Paris"}, {"city": "Paris", "state": "Texas"}, {}],
    "completable-prompt": [{"department": "Sales", "name": "Eve"}],
    "resource-prompt": [{"resourceType": kind, "resourceId": "2"} for kind in ("Text", "Blob")],
}
RESOURCES = [
    f"demo://resource/static/document/{name}.md"
    for name in ("architecture", "extension", "features", "how-it-works", "instructions", "startup", "structure")
]
TEMPLATES: dict[str, list[str]] = {
    f"{DYNAMIC}/text/{{resourceId}}": [f"{DYNAMIC}/text/1", f"{DYNAMIC}/text/none"],
    f"{DYNAMIC}/blob/{{resourceId}}": [f"{DYNAMIC}/blob/7"],
}
COMPLETIONS: list[tuple[str, str, str, dict[str, str]]] = [
    ("completable-prompt", "department", "S", {}),
    ("completable-prompt", "name", "", {"department": "Engineering"}),
    ("resource-prompt", "resourceId", "1", {}),
    (f"{DYNAMIC}/text/{{resourceId}}", "resourceId", "2", {}),
    (f"{DYNAMIC}/blob/{{resourceId}}", "resourceId", "", {}),
]


async def answer_sampling(context: Any, params: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text="Hello."), model="none")


async def answer_elicitation(context: Any, params: Any) -> ElicitResult:
    return ElicitResult.model_validate(ELICITED)


async def list_roots(context: Any) -> ListRootsResult:
    return ListRootsResult(roots=[Root.model_validate({"uri": "file:///work", "name": "work"})])


def connect(server: Any, **options: Any) -> Client:
    """A client that can do all that a server may ask for."""
    return Client(
        server,
        sampling_callback=answer_sampling,
        elicitation_callback=answer_elicitation,
        list_roots_callback=list_roots,
        **options,
    )


@dataclass(frozen=True, slots=True)
class Both:
    """The server itself, and the same server behind a gateway."""

    direct: Client
    proxied: Client
    heard: asyncio.Queue[str]
    """The notifications that the proxied client got."""

    @property
    def is_older(self) -> bool:
        return self.proxied.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS

    async def compare_calls(self, name: str, arguments: Mapping[str, Any]) -> None:
        steps: tuple[list[Any], list[Any]] = ([], [])

        def note(seen: list[Any]) -> Any:
            async def append(progress: float, total: float | None, message: str | None) -> None:
                seen.append((progress, total, message))

            return append

        request = {"tool_id": f"everything__{name}", "arguments": dict(arguments)}
        own = await settle(self.direct.call_tool(name, dict(arguments), progress_callback=note(steps[0])))
        ours = await settle(self.proxied.call_tool("call_tool", request, progress_callback=note(steps[1])))
        assert ours.get("isError", False) == own.get("isError", False)
        if not own.get("isError"):  # the gateway itself refuses arguments that do not fit the schema
            assert normalise(ours) == normalise(own)
        assert steps[0] == steps[1]


async def settle(request: Any) -> dict[str, Any]:
    """The result on the wire, or the error."""
    try:
        return dump(await request)
    except MCPError as error:
        return {"isError": True, "code": error.code, "message": error.message}


def dump(entry: BaseModel) -> dict[str, Any]:
    dumped: dict[str, Any] = entry.model_dump(by_alias=True, exclude_none=True, mode="json")
    return dumped


def normalise(value: Any) -> Any:
    """The value without what the newest protocol adds, with the server's own URIs, and without times."""
    if isinstance(value, Mapping):
        added = {"resultType", "ttlMs", "cacheScope"}
        kept = {key: normalise(each) for key, each in value.items() if key not in added and key != "_meta"}
        meta = {k: v for k, v in (value.get("_meta") or {}).items() if not k.startswith("io.modelcontextprotocol/")}
        if "blob" in kept and "/dynamic/blob/" in kept["uri"]:
            kept["blob"] = normalise(base64.b64decode(kept["blob"]).decode())
        return kept | ({"_meta": meta} if meta else {})
    if isinstance(value, list):
        return [normalise(each) for each in value]
    if isinstance(value, str):
        if value.startswith("{") and '"HOME"' in value:  # of the environment only what the configuration sets
            return json.loads(value)["HOME"]
        text = re.sub(r"\d{1,2}:\d\d:\d\d(\s[AP]M)?", "TIME", value.replace(PREFIX, ""))
        return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    return value


@asynccontextmanager
async def over_http(folder: Path, configuration: Path, **options: Any) -> AsyncIterator[Client]:
    settings = load_settings(variables={}, data_dir=folder / "data", search_model="hashed-64", index="memory:", port=0)
    servers = load_configuration(configuration, home=folder, folder=folder, environment={}).servers
    async with open_app(settings, serving=True) as app:
        await app.servers.gateway.apply(servers)
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        async with serve(app) as url, connect(f"{url}/mcp", **options) as client:
            yield client


@asynccontextmanager
async def over_stdio(folder: Path, configuration: Path, **options: Any) -> AsyncIterator[Client]:
    command, *arguments = toolscript_command()
    arguments += ["mcp", "--linger", "0", "--config", str(configuration), "--data-dir", str(folder / "data")]
    environment = {"TOOLSCRIPT_SEARCH_MODEL": "hashed-64", "HOME": str(folder)}
    server = StdioServerParameters(command=command, args=arguments, env=environment)
    async with connect(server, **options) as client, asyncio.timeout(TIMEOUT_SECONDS):
        while not (await client.list_prompts()).prompts:  # noqa: ASYNC110  (the event happens in another process)
            await asyncio.sleep(0.05)
        yield client


@asynccontextmanager
async def older_over_stdio(folder: Path, configuration: Path, **options: Any) -> AsyncIterator[Client]:
    async with over_stdio(folder, configuration, mode="legacy", **options) as client:
        yield client


# The newest protocol and the older one, HTTP and stdio: each is in one of those chosen.
WAYS = choose([over_http, over_stdio, older_over_stdio], over_http, older_over_stdio)


@pytest.fixture(scope="module", params=WAYS)
async def both(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Both]:
    folder = tmp_path_factory.mktemp("everything")
    entry = real_servers(folder / "work")["everything"]
    (configuration := folder / "servers.json").write_text(json.dumps({"mcpServers": {"everything": entry}}))
    server = StdioServerParameters(command=entry["command"], args=entry["args"], env=entry["env"], cwd=entry["cwd"])
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def note(message: Any) -> None:
        heard.put_nowait(f"{message.method} {getattr(message.params, 'uri', '')}")

    async with (
        connect(server, mode="legacy") as direct,
        request.param(folder, configuration, message_handler=note) as proxied,
    ):
        yield Both(direct, proxied, heard)


async def test_the_tables_have_everything_that_the_server_offers(both: Both) -> None:
    """A new version's tool, prompt, resource or template belongs into the tables above."""
    direct = both.direct
    assert {each.name for each in (await direct.list_tools()).tools} == TOOLS.keys()
    assert {each.name for each in (await direct.list_prompts()).prompts} == PROMPTS.keys()
    listed = {each.uri for each in (await direct.list_resources()).resources}
    assert {uri for uri in listed if "/session/" not in uri} == set(RESOURCES)
    templates = (await direct.list_resource_templates()).resource_templates
    assert {each.uri_template for each in templates} == TEMPLATES.keys()


async def test_tools_are_described_as_the_server_does(both: Both) -> None:
    for tool in (await both.direct.list_tools()).tools:
        if any(call.missing for call in TOOLS[tool.name]):
            continue
        result = await both.proxied.call_tool("describe_tool", {"tool_id": f"everything__{tool.name}"})
        described = json.loads(dump(result)["content"][0]["text"])
        own = dump(tool)
        assert described["description"] == own["description"]
        assert described["inputSchema"] == own["inputSchema"]
        assert described.get("outputSchema") == own.get("outputSchema")
        assert described.get("annotations") == own.get("annotations")


async def test_prompts_resources_and_templates_are_listed_as_the_server_does(both: Both) -> None:
    def by_name(entries: list[Any]) -> list[Any]:
        listed = [normalise(dump(each)) for each in entries]
        own = [each | {"name": each["name"].removeprefix("everything__")} for each in listed]
        return sorted((each for each in own if "/session/" not in each.get("uri", "")), key=lambda each: each["name"])

    direct, proxied = both.direct, both.proxied
    assert by_name((await proxied.list_prompts()).prompts) == by_name((await direct.list_prompts()).prompts)
    assert by_name((await proxied.list_resources()).resources) == by_name((await direct.list_resources()).resources)
    ours, own = await proxied.list_resource_templates(), await direct.list_resource_templates()
    assert by_name(ours.resource_templates) == by_name(own.resource_templates)


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, calls in TOOLS.items() for call in calls])
async def test_a_tool_answers_as_it_does_directly(
    both: Both, name: str, call: Call, request: pytest.FixtureRequest
) -> None:
    if call.missing == NO_CALL or (call.missing and not both.is_older):
        request.applymarker(pytest.mark.xfail(reason=call.missing, strict=True))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await both.compare_calls(name, call.arguments)


@pytest.mark.parametrize(("name", "arguments"), [(name, given) for name, all_ in PROMPTS.items() for given in all_])
async def test_a_prompt_answers_as_it_does_directly(both: Both, name: str, arguments: dict[str, str]) -> None:
    own = await settle(both.direct.get_prompt(name, arguments))
    ours = await settle(both.proxied.get_prompt(f"everything__{name}", arguments))
    assert normalise(ours) == normalise(own)


@pytest.mark.parametrize("uri", [*RESOURCES, *(uri for uris in TEMPLATES.values() for uri in uris), "demo://none"])
async def test_a_resource_is_read_as_it_is_directly(both: Both, uri: str) -> None:
    own, ours = await settle(both.direct.read_resource(uri)), await settle(both.proxied.read_resource(PREFIX + uri))
    assert normalise(ours) == normalise(own)


async def test_a_resource_that_a_tool_links_to_is_read_through_the_gateway(both: Both) -> None:
    arguments = {"name": "linked.gz", "data": "data:text/plain;base64,aGVsbG8="}
    request = {"tool_id": "everything__gzip-file-as-resource", "arguments": arguments}
    (own,) = dump(await both.direct.call_tool("gzip-file-as-resource", arguments))["content"]
    (ours,) = dump(await both.proxied.call_tool("call_tool", request))["content"]
    assert ours["uri"] == PREFIX + own["uri"]
    read = normalise(dump(await both.proxied.read_resource(ours["uri"])))
    assert read == normalise(dump(await both.direct.read_resource(own["uri"])))


@pytest.mark.parametrize(("name", "argument", "value", "others"), COMPLETIONS)
async def test_an_argument_is_completed_as_it_is_directly(
    both: Both, name: str, argument: str, value: str, others: dict[str, str]
) -> None:
    def refer(prefix: str) -> Any:
        if name in TEMPLATES:
            return ResourceTemplateReference(uri=(PREFIX if prefix else "") + name)
        return PromptReference(name=prefix + name)

    request = {"name": argument, "value": value}
    own = await both.direct.complete(refer(""), request, context_arguments=others or None)
    ours = await both.proxied.complete(refer("everything__"), request, context_arguments=others or None)
    assert normalise(dump(ours)) == normalise(dump(own))


async def test_an_update_of_a_resource_reaches_who_listens(both: Both) -> None:
    toggle = {"tool_id": "everything__toggle-subscriber-updates", "arguments": {}}
    uri = PREFIX + RESOURCES[0]
    async with asyncio.timeout(TIMEOUT_SECONDS), AsyncExitStack() as stack:
        if both.is_older:
            await both.proxied.subscribe_resource(uri)
            await both.proxied.call_tool("call_tool", toggle)
            while await both.heard.get() != f"notifications/resources/updated {uri}":  # lists may change meanwhile
                pass
        else:
            changes = await stack.enter_async_context(both.proxied.listen(resource_subscriptions=[uri]))
            await both.proxied.call_tool("call_tool", toggle)
            assert await anext(changes) == ResourceUpdated(uri)
        await both.proxied.call_tool("call_tool", toggle)
