"""Prompts and resources by MCP's own requests: over HTTP, over stdio, and through a process that forwards them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError
from mcp_types import (
    INVALID_PARAMS,
    GetPromptResult,
    PromptReference,
    ReadResourceResult,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)

from tests.fixtures.examples import choose
from tests.fixtures.serving import build_mcp_command, serve_configuration
from tests.servers import make_scripted_spec
from toolscript.app.app import App
from toolscript.configuration.files import load_configuration
from toolscript.domain.access import Scope
from toolscript.services.tools import native
from toolscript.surfaces.mcp.native import RESOURCE_NOT_FOUND

pytestmark = pytest.mark.req("G-08")

TIMEOUT_SECONDS = 40.0
ICON = {"src": "data:image/png;base64,aGVsbG8=", "mimeType": "image/png", "sizes": ["48x48"]}
PROMPT = {
    "name": "review__code",
    "title": "Review code",
    "description": "Asks for a review.",
    "arguments": [
        {"name": "code", "title": "The code", "description": "What to review", "required": True},
        {"name": "style"},
    ],
    "icons": [ICON],
    "_meta": {"example.org/kind": "review"},
}
RESOURCE = {
    "uri": "memo://welcome?lang=en#top",
    "name": "welcome",
    "title": "Welcome",
    "description": "A first memo.",
    "mimeType": "text/plain",
    "size": 17,
    "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-12T15:00:58Z"},
    "icons": [ICON],
    "_meta": {"example.org/kind": "memo"},
}
TEMPLATE: dict[str, Any] = {
    "uriTemplate": "memo://{year}/{month}{?lang}",
    "name": "memos",
    "mimeType": "text/plain",
    "icons": [ICON],
}
LISTS: dict[str, list[Any]] = {
    "tools": [],
    "prompts": [PROMPT, {"name": "plain"}, {"name": "hidden"}],
    "resources": [
        RESOURCE,
        {"uri": "memo://2", "name": "welcome"},
        {"uri": "memo://3", "name": "odd", "icons": "none", "size": "big"},
        {"uri": "memo://hidden", "name": "hidden"},
    ],
    "resourceTemplates": [TEMPLATE],
}


def write_configuration(folder: Path) -> Path:
    lists = folder / "lists.json"
    lists.write_text(json.dumps(LISTS))
    servers = {
        "my notes": make_scripted_spec(watch=str(lists)) | {"excludeTools": ["hidden"]},
        "open": make_scripted_spec(prompts=True, resources=True, completions=True),
    }
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def open_gateway(folder: Path) -> AbstractAsyncContextManager[tuple[App, str]]:
    return serve_configuration(write_configuration(folder), folder)


@asynccontextmanager
async def over_http(folder: Path) -> AsyncIterator[Client]:
    async with open_gateway(folder) as (_, url), Client(f"{url}/mcp") as client:
        yield client


async def wait_for_prompts(client: Client) -> None:
    """Waits until the gateway in another process has listed its servers."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len((await client.list_prompts()).prompts) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@asynccontextmanager
async def over_stdio(folder: Path) -> AsyncIterator[Client]:
    arguments = ("--config", str(write_configuration(folder)), "--data-dir", str(folder / "data"))
    async with Client(build_mcp_command(folder, *arguments)) as client:
        await wait_for_prompts(client)
        yield client


@asynccontextmanager
async def through_another_process(folder: Path) -> AsyncIterator[Client]:
    other = folder / "other"
    other.mkdir()
    async with (
        open_gateway(folder) as (_, url),
        Client(build_mcp_command(folder, "--gateway", url, "--data-dir", str(other))) as client,
    ):
        await wait_for_prompts(client)
        yield client


# `through_another_process` is over stdio, too, beside a gateway like that of `over_http`.
WAYS = choose([over_http, over_stdio, through_another_process], over_http, through_another_process)


@pytest.fixture(scope="module", params=WAYS)
async def client(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client]:
    async with request.param(tmp_path_factory.mktemp("native")) as opened:
        yield opened


def dump(entry: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = entry.model_dump(by_alias=True, exclude_none=True)
    return dumped


async def test_prompts_are_listed_as_their_servers_list_them_under_prefixed_names(client: Client) -> None:
    prompts = {each.name: dump(each) for each in (await client.list_prompts()).prompts}
    assert list(prompts) == ["my notes__plain", "my notes__review__code", "open__greet", "open__summarise"]
    assert prompts["my notes__review__code"] == PROMPT | {"name": "my notes__review__code"}
    assert prompts["my notes__plain"] == {"name": "my notes__plain"}


async def test_resources_are_listed_with_uris_that_name_their_server(client: Client) -> None:
    resources = {each.uri: dump(each) for each in (await client.list_resources()).resources}
    prefix = "toolscript:my%20notes/"
    assert resources[f"{prefix}memo://welcome?lang=en#top"] == RESOURCE | {"uri": f"{prefix}memo://welcome?lang=en#top"}
    assert resources[f"{prefix}memo://2"] == {"uri": f"{prefix}memo://2", "name": "welcome"}
    assert len(resources) == 5
    templates = {each.uri_template: dump(each) for each in (await client.list_resource_templates()).resource_templates}
    assert templates.keys() == {prefix + TEMPLATE["uriTemplate"], "toolscript:open/memo://{year}/{month}"}
    assert templates[prefix + TEMPLATE["uriTemplate"]] == TEMPLATE | {"uriTemplate": prefix + TEMPLATE["uriTemplate"]}


async def test_a_field_that_the_protocol_does_not_allow_costs_only_itself(client: Client) -> None:
    (odd,) = [dump(each) for each in (await client.list_resources()).resources if each.name == "odd"]
    assert odd == {"uri": "toolscript:my%20notes/memo://3", "name": "odd"}


async def test_a_prompt_is_got_with_its_arguments(client: Client) -> None:
    result = await client.get_prompt("my notes__review__code", {"code": "x = 1"})
    assert isinstance(result, GetPromptResult)
    assert isinstance(block := result.messages[0].content, TextContent)
    assert block.text == 'review__code {"code": "x = 1"}'


@pytest.mark.parametrize(
    "uri",
    [
        "toolscript:my%20notes/memo://welcome?lang=en#top",
        "toolscript:my%20notes/memo://2",
        "toolscript:my%20notes/memo://2026/11?lang=de",
        "toolscript:open/memo://linked/but/not/listed",
    ],
)
async def test_a_resource_is_read_and_its_contents_have_the_uri_of_the_request(client: Client, uri: str) -> None:
    result = await client.read_resource(uri)
    assert isinstance(result, ReadResourceResult)
    assert isinstance(contents := result.contents[0], TextResourceContents)
    assert contents.uri == uri
    assert contents.text == f"What {uri.partition('/')[2]} holds"


@pytest.mark.parametrize(
    "uri", ["memo://welcome", "toolscript:my%20notes/memo://hidden", "toolscript:none/memo://2", "toolscript:open/", ""]
)
async def test_a_resource_that_is_excluded_or_does_not_exist_is_refused_by_its_uri(client: Client, uri: str) -> None:
    with pytest.raises(MCPError, match="no such resource") as refused:
        await client.read_resource(uri)
    assert refused.value.code == INVALID_PARAMS
    assert refused.value.data == {"uri": uri}


@pytest.mark.parametrize("name", ["plain", "my notes__hidden", "my notes__prompt:plain", "none__plain", "__"])
async def test_a_prompt_that_is_excluded_or_does_not_exist_is_refused_by_its_name(client: Client, name: str) -> None:
    with pytest.raises(MCPError, match="no such prompt") as refused:
        await client.get_prompt(name)
    assert refused.value.code == INVALID_PARAMS


async def test_arguments_of_prompts_and_variables_of_templates_are_completed_by_their_server(client: Client) -> None:
    prompt = PromptReference(name="open__summarise")
    completed = await client.complete(prompt, {"name": "text", "value": "a"}, context_arguments={"words": "3"})
    assert (completed.completion.total, completed.completion.has_more) == (7, True)
    assert json.loads(completed.completion.values[0]) == {
        "argument": {"name": "text", "value": "a"},
        "context": {"arguments": {"words": "3"}},
        "ref": {"type": "ref/prompt", "name": "summarise"},
    }
    template = ResourceTemplateReference(uri="toolscript:open/memo://{year}/{month}")
    completed = await client.complete(template, {"name": "year", "value": "20"})
    assert json.loads(completed.completion.values[0])["ref"] == {"type": "ref/resource", "uri": "memo://{year}/{month}"}


async def test_servers_without_completions_suggest_nothing(client: Client) -> None:
    for reference in (
        PromptReference(name="my notes__plain"),
        ResourceTemplateReference(uri="toolscript:my%20notes/memo://{year}/{month}{?lang}"),
    ):
        assert (await client.complete(reference, {"name": "x", "value": ""})).completion.values == []


async def test_an_unknown_prompt_is_not_completed(client: Client) -> None:
    with pytest.raises(MCPError, match="no such prompt") as refused:
        await client.complete(PromptReference(name="my notes__hidden"), {"name": "x", "value": ""})
    assert refused.value.code == INVALID_PARAMS


async def test_an_older_client_gets_the_older_code_for_an_unknown_resource(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as (_, url), Client(f"{url}/mcp", mode="legacy") as client:
        with pytest.raises(MCPError) as refused:
            await client.read_resource("memo://none")
        assert refused.value.code == RESOURCE_NOT_FOUND
        assert len((await client.list_prompts()).prompts) == 4


async def test_cursors_that_we_did_not_give_are_invalid(client: Client) -> None:
    for request in (client.list_prompts, client.list_resources, client.list_resource_templates, client.list_tools):
        for cursor in ("7", "bm9uZQ==", "é", "eyJhZnRlciI6IDd9"):
            with pytest.raises(MCPError, match="invalid cursor") as refused:
                await request(cursor=cursor)
            assert refused.value.code == INVALID_PARAMS


async def test_long_lists_come_in_pages_that_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "PAGE_SIZE", 2)
    async with open_gateway(tmp_path) as (_, url), Client(f"{url}/mcp") as client:
        found, cursor = [], None
        for _ in range(3):
            page = await client.list_resources(cursor=cursor)
            found += [each.uri for each in page.resources]
            cursor = page.next_cursor
    assert cursor is None
    assert len(found) == len(set(found)) == 5


async def test_keys_see_and_get_what_their_scopes_allow(tmp_path: Path) -> None:
    async def ask(method: str, secret: str, **params: str) -> dict[str, Any]:
        headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {secret}"}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer: dict[str, Any] = (await http.post(f"{url}/mcp", json=body, headers=headers)).json()
        return answer

    async with open_gateway(tmp_path) as (app, url), httpx.AsyncClient() as http:
        _, searching = await app.access.keys.create("searching", frozenset({Scope.SEARCH}))
        _, reading = await app.access.keys.create("reading", frozenset({Scope.KNOWLEDGE}))
        assert len((await ask("prompts/list", searching))["result"]["prompts"]) == 4
        assert (await ask("prompts/list", reading))["result"]["prompts"] == []
        assert (await ask("resources/templates/list", reading))["result"]["resourceTemplates"] == []
        refused = [await ask("prompts/get", searching, name="open__greet")]
        refused += [await ask("resources/read", searching, uri="toolscript:open/memo://welcome")]
        assert all("it lacks the scope call" in each["error"]["message"] for each in refused)


async def test_servers_that_are_not_connected_stay_in_the_lists(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as (app, url), Client(f"{url}/mcp") as client:
        entry = make_scripted_spec(crash=True)
        (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"open": entry}}))
        file = tmp_path / "servers.json"
        await app.servers.gateway.apply(
            load_configuration(file, home=tmp_path, folder=tmp_path, environment={}).servers
        )
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        assert [each.name for each in (await client.list_prompts()).prompts] == ["open__greet", "open__summarise"]
        with pytest.raises(MCPError, match="server open is not available"):
            await client.get_prompt("open__greet")
