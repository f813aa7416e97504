"""Notifications of changed lists and resources: over HTTP, over stdio, and through a process that forwards them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from tests.fixtures.examples import choose
from tests.fixtures.serving import build_mcp_command, serve_configuration
from tests.servers import make_scripted_spec
from toolscript.app.app import App
from toolscript.domain.profiles import ItemRules, Profile
from toolscript.services.tools import native_changes
from toolscript.services.tools.native_changes import ChangeFilter, ResourceChanged
from toolscript.surfaces.cli.client.remote_gateway import START_TIMEOUT_SECONDS
from toolscript.surfaces.mcp.definitions import TOOLS

pytestmark = [
    pytest.mark.req("G-08"),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

TIMEOUT_SECONDS = 40.0
WELCOME = "toolscript:notes/memo://welcome"
LISTS: dict[str, list[Any]] = {
    "tools": [],
    "prompts": [{"name": "greet"}],
    "resources": [{"uri": "memo://welcome", "name": "welcome"}],
    "resourceTemplates": [],
}


@dataclass
class Notes:
    """The server whose lists and resources change, and the configuration that names it."""

    folder: Path
    served: tuple[App, str] | None = None
    """A gateway that serves it already, for tests that change no list and no profile."""
    lists: dict[str, list[Any]] = field(default_factory=lambda: {key: list(value) for key, value in LISTS.items()})
    updates: int = 0

    def __post_init__(self) -> None:
        self.write()
        (self.folder / "updates").write_text("0")
        spec = make_scripted_spec(watch=str(self.folder / "lists.json"), subscriptions=str(self.folder / "updates"))
        servers = {"notes": spec, "other": make_scripted_spec(resources=True)}
        self.configuration.write_text(json.dumps({"mcpServers": servers}))

    @property
    def configuration(self) -> Path:
        return self.folder / "servers.json"

    def write(self) -> None:
        (self.folder / "lists.json").write_text(json.dumps(self.lists))

    def add(self, kind: str, entry: dict[str, Any]) -> None:
        self.lists[kind].append(entry)
        self.write()

    def update_resources(self) -> None:
        self.updates += 1
        (self.folder / "updates").write_text(str(self.updates))


def open_gateway(notes: Notes) -> AbstractAsyncContextManager[tuple[App, str]]:
    return nullcontext(notes.served) if notes.served else serve_configuration(notes.configuration, notes.folder)


@asynccontextmanager
async def over_http(notes: Notes, **options: Any) -> AsyncIterator[Client]:
    async with open_gateway(notes) as (_, url), Client(f"{url}/mcp", **options) as client:
        yield client


async def wait_for_prompts(client: Client) -> None:
    """Waits until the gateway in another process has listed its servers."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (await client.list_prompts()).prompts:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def wait_for_change(changes: AsyncIterator[Any], expected: Any) -> None:
    async for change in changes:
        if change == expected:
            return
    raise AssertionError(f"the stream ended before {expected}")


@asynccontextmanager
async def over_stdio(notes: Notes, **options: Any) -> AsyncIterator[Client]:
    arguments = ("--config", str(notes.configuration), "--data-dir", str(notes.folder / "data"))
    async with Client(build_mcp_command(notes.folder, *arguments), **options) as client:
        await wait_for_prompts(client)
        yield client


@asynccontextmanager
async def through_another_process(notes: Notes, **options: Any) -> AsyncIterator[Client]:
    (notes.folder / "other").mkdir()
    arguments = ("--data-dir", str(notes.folder / "other"))
    async with (
        open_gateway(notes) as (_, url),
        Client(build_mcp_command(notes.folder, "--gateway", url, *arguments), **options) as client,
    ):
        await wait_for_prompts(client)
        yield client


# `through_another_process` is over stdio, too, beside a gateway like that of `over_http`.
CONNECTIONS = (over_http, through_another_process)


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


@pytest.fixture(scope="module")
async def shared_notes(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Notes]:
    """Notes with a gateway, for tests that change no list and no profile."""
    notes = Notes(tmp_path_factory.mktemp("notes"))
    async with open_gateway(notes) as served:
        notes.served = served
        yield notes


@pytest.mark.parametrize("connect", choose([over_http, over_stdio, through_another_process], over_http))
async def test_a_client_that_listens_hears_of_changed_lists_and_resources(connect: Any, notes: Notes) -> None:
    async with (
        connect(notes) as client,
        asyncio.timeout(TIMEOUT_SECONDS),
        client.listen(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=[WELCOME, "toolscript:other/memo://welcome", "memo://welcome"],
        ) as changes,
    ):
        assert changes.honored.resource_subscriptions == [WELCOME]
        assert changes.honored.tools_list_changed is True
        notes.add("prompts", {"name": "part"})
        names: list[str] = []
        while "notes__part" not in names:  # a gateway that has just started may still report its own first lists
            await wait_for_change(changes, PromptsListChanged())
            names = [each.name for each in (await client.list_prompts()).prompts]
        assert names == ["notes__greet", "notes__part"]
        notes.add("resourceTemplates", {"uriTemplate": "memo://{day}", "name": "day"})
        await wait_for_change(changes, ResourcesListChanged())
        notes.update_resources()
        await wait_for_change(changes, ResourceUpdated(WELCOME))


@pytest.mark.parametrize("connect", choose([over_stdio, through_another_process], *CONNECTIONS))
async def test_an_older_client_over_stdio_is_notified_on_its_connection(connect: Any, notes: Notes) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def note(message: Any) -> None:
        heard.put_nowait(message.method + getattr(message.params, "uri", ""))

    async with connect(notes, mode="legacy", message_handler=note) as client, asyncio.timeout(TIMEOUT_SECONDS):
        await client.subscribe_resource(WELCOME)
        await client.subscribe_resource(WELCOME)
        notes.update_resources()
        assert await wait_for(heard, "resources/updated") == f"notifications/resources/updated{WELCOME}"
        notes.add("prompts", {"name": "part"})
        assert await wait_for(heard, "prompts") == "notifications/prompts/list_changed"
        notes.add("resources", {"uri": "memo://2", "name": "second"})
        assert await wait_for(heard, "resources") == "notifications/resources/list_changed"
        await client.unsubscribe_resource(WELCOME)
        with pytest.raises(MCPError, match="cannot be followed") as refused:
            await client.subscribe_resource("toolscript:other/memo://welcome")
        assert refused.value.code == INVALID_PARAMS


@pytest.mark.extended  # it waits for its gateway for 30 s
@pytest.mark.parametrize("mode", choose(["legacy", "auto"], "auto"))
async def test_a_process_that_forwards_outlives_the_gateway_that_it_listens_to(mode: Any, notes: Notes) -> None:
    (notes.folder / "other").mkdir()
    async with AsyncExitStack() as stack, asyncio.timeout(10 * START_TIMEOUT_SECONDS):
        gateway = await stack.enter_async_context(AsyncExitStack())
        _, url = await gateway.enter_async_context(open_gateway(notes))
        arguments = ("--gateway", url, "--data-dir", str(notes.folder / "other"))
        client = await stack.enter_async_context(Client(build_mcp_command(notes.folder, *arguments), mode=mode))
        await wait_for_prompts(client)
        if mode == "legacy":
            await client.subscribe_resource(WELCOME)
            await gateway.aclose()
        else:
            async with client.listen(prompts_list_changed=True) as changes:
                await gateway.aclose()
                async for change in changes:  # a gateway that has just started may still report its own first lists
                    assert change == PromptsListChanged()
        assert (await client.list_tools()).tools == TOOLS


async def test_many_clients_that_begin_to_listen_at_once_are_all_notified(notes: Notes) -> None:
    async with open_gateway(notes) as (app, _), AsyncExitStack() as stack, asyncio.timeout(TIMEOUT_SECONDS):
        opened = [app.tools.native_changes.open(ChangeFilter(prompts=True, uris=(WELCOME,))) for _ in range(20)]
        streams = await asyncio.gather(*(stream.__aenter__() for stream in opened))
        for stream in opened:
            stack.push_async_exit(stream.__aexit__)
        notes.add("prompts", {"name": "part"})
        assert len({await anext(stream) for stream in streams}) == 1


@pytest.mark.req("G-13")
async def test_a_client_hears_of_no_change_that_its_profile_hides(notes: Notes) -> None:
    async with open_gateway(notes) as (app, url), asyncio.timeout(TIMEOUT_SECONDS):
        app.access.profiles.replace([Profile("quiet", deny=ItemRules(tools=("secret*",)))])
        async with (
            Client(f"{url}/mcp/quiet") as client,
            client.listen(prompts_list_changed=True, resources_list_changed=True) as changes,
        ):
            notes.add("prompts", {"name": "secret"})
            while app.catalogue.snapshots.find_item("notes__prompt:secret") is None:
                await asyncio.sleep(0.02)
                await app.catalogue.snapshots.current().facts()
            notes.add("resources", {"uri": "memo://2", "name": "second"})
            assert await anext(changes) == ResourcesListChanged()
            assert [each.name for each in (await client.list_prompts()).prompts] == ["notes__greet"]


async def wait_for(heard: asyncio.Queue[str], part: str) -> str:
    """The next notification with that part in its name: while servers start, lists change more than once."""
    while part not in (method := await heard.get()):
        pass
    return method


async def test_an_older_client_over_http_is_promised_no_notifications(shared_notes: Notes) -> None:
    async with over_http(shared_notes, mode="legacy") as client:
        capabilities = client.server_capabilities
        assert capabilities.tools is not None
        assert not capabilities.tools.list_changed
        assert capabilities.prompts is not None
        assert not capabilities.prompts.list_changed
        assert capabilities.resources is not None
        assert not capabilities.resources.list_changed
        assert not capabilities.resources.subscribe
        with pytest.raises(MCPError) as refused:
            await client.subscribe_resource(WELCOME)
        assert refused.value.code == METHOD_NOT_FOUND


async def test_a_stream_ends_when_the_gateway_does_and_nothing_waits_for_it(notes: Notes) -> None:
    async with (
        open_gateway(notes) as (app, url),
        Client(f"{url}/mcp") as client,
        client.listen(prompts_list_changed=True, resource_subscriptions=[WELCOME]) as changes,
        asyncio.timeout(TIMEOUT_SECONDS),
    ):
        app.tools.native_changes.end_streams()
        assert [change async for change in changes] == []


async def test_a_server_is_followed_only_while_somebody_listens(shared_notes: Notes) -> None:
    async with open_gateway(shared_notes) as (app, _), asyncio.timeout(TIMEOUT_SECONDS):
        wanted = ChangeFilter(uris=(WELCOME,))
        async with app.tools.native_changes.open(wanted) as one, app.tools.native_changes.open(wanted) as two:
            shared_notes.update_resources()
            assert await anext(one) == await anext(two)
        async with app.tools.native_changes.open(wanted) as three:
            shared_notes.update_resources()
            assert await anext(three) == ResourceChanged(WELCOME)
            assert one.honoured == three.honoured


async def test_the_number_of_streams_is_bounded(shared_notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_gateway(shared_notes) as (app, url), Client(f"{url}/mcp") as client:
        monkeypatch.setattr(app.tools.native_changes.shares, "total", 1)
        async with client.listen(prompts_list_changed=True):
            with pytest.raises(MCPError, match="as many subscriptions in progress as it can take"):
                async with client.listen(prompts_list_changed=True):
                    pass
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                try:
                    async with client.listen(prompts_list_changed=True):
                        break
                except MCPError:  # the end of the first has not arrived yet
                    await asyncio.sleep(0.05)


async def test_a_client_that_takes_nothing_holds_each_change_once_and_is_ended_at_the_bound(
    shared_notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_changes, "MAX_WAITING", 2)
    async with (
        open_gateway(shared_notes) as (app, _),
        app.tools.native_changes.open(ChangeFilter(uris=(WELCOME,))) as stream,
    ):
        for uri in ("a", "a", "a", "b", "c", "d"):
            stream.deliver(ResourceChanged(uri))
        assert [change.uri async for change in stream if isinstance(change, native_changes.ResourceChanged)] == [
            "a",
            "b",
        ]


@pytest.mark.extended
async def test_a_lost_server_is_followed_again_and_its_resource_reported(notes: Notes) -> None:
    async with (
        open_gateway(notes) as (app, _),
        asyncio.timeout(TIMEOUT_SECONDS),
        app.tools.native_changes.open(ChangeFilter(uris=(WELCOME,))) as stream,
    ):
        connection = app.servers.gateway._connections["notes"]  # a server that ends by itself would end during a call
        assert connection._server is not None
        connection.abandon(connection._server, "lost")
        assert await anext(stream) == ResourceChanged(WELCOME)
        notes.update_resources()
        assert await anext(stream) == ResourceChanged(WELCOME)
