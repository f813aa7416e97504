"""Servers with agent skills that are flawed or hostile: what is listed of them, and what is read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.client.session import ClientSession

from tests.fixtures.http_services import HttpDouble
from toolscript.adapters.mcp.agent_skills import AgentSkillReader
from toolscript.adapters.mcp.client import McpServer, McpServers
from toolscript.domain.agent_skills import EXTENSION, compute_digest
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import InvalidArguments, UpstreamFailed
from toolscript.domain.servers import ServerListing, ServerSpec, Transport

pytestmark = pytest.mark.req("A-02", "X-11", "X-12")

TIMEOUT_SECONDS = 60.0
URI = "skill://notes/SKILL.md"


def write_main_file(name: str = "notes", more: str = "") -> str:
    return f"---\nname: {name}\ndescription: Takes notes.\n{more}---\nText."


class SkillServer(HttpDouble):
    """An MCP server with a tool, the given files by URI, and an agent skill for each `SKILL.md`."""

    def __init__(self, files: Mapping[str, str], *, templates: tuple[str, ...] = (), is_legacy: bool = False) -> None:
        super().__init__()
        self.files, self.templates, self.is_legacy = dict(files), templates, is_legacy
        self.digests = {uri: compute_digest(text.encode()) for uri, text in files.items()}
        self.sizes: dict[str, str] = {}
        """Sizes of files, as they are written in the answer."""
        self.reads: list[str] = []
        self.before_skills: Callable[[], object] = lambda: None

    def answer(self, request: Any, body: bytes) -> None:
        message = json.loads(body or b"{}")
        if "id" not in message:
            return self.send(request, 202 if body else 405, b"")
        result = self.find_result(message["method"], message.get("params") or {})
        about = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], **about})
        for uri, size in self.sizes.items():
            text = text.replace(f'"size of {uri}"', size)
        return self.send(request, 200, text.encode())

    def find_result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        extensions: dict[str, Any] = {} if self.is_legacy else {"extensions": {EXTENSION: {}}}
        match method:
            case "initialize":
                return {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}, "resources": {}, **extensions},
                    "serverInfo": {"name": "notes", "version": "1"},
                }
            case "tools/list":
                return {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
            case "resources/list":
                return {"resources": [{"uri": uri, "name": f"file {n}"} for n, uri in enumerate(self.files)]}
            case "resources/templates/list":
                templates = enumerate(self.templates)
                return {"resourceTemplates": [{"uriTemplate": each, "name": f"template {n}"} for n, each in templates]}
            case "skills/list" if not self.is_legacy:
                self.before_skills()
                return {"skills": [self.describe(uri) for uri in self.files if uri.endswith("/SKILL.md")]}
            case "resources/read":
                self.reads.append(params["uri"])
                return {"contents": [{"uri": params["uri"], "text": self.files.get(params["uri"], "")}]}
        return {} if method == "ping" else None

    def describe(self, uri: str) -> dict[str, Any]:
        root = uri.removesuffix("SKILL.md")
        sizes = {each: {"size": f"size of {each}"} for each in self.sizes}
        listed = [
            {"uri": each, "digest": digest, **sizes.get(each, {})}
            for each, digest in self.digests.items()
            if each.startswith(root)
        ]
        name = self.files[uri].partition("name: ")[2].partition("\n")[0]
        return {"uri": uri, "frontmatter": {"name": name, "description": "Takes notes."}, "resources": listed}


@asynccontextmanager
async def connecting(web: SkillServer) -> AsyncIterator[McpServer]:
    spec = ServerSpec("s", Transport.HTTP, url=f"{web.root}/mcp")
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server:
        yield server


async def list_server(web: SkillServer) -> ServerListing:
    with web:
        async with connecting(web) as server:
            return await server.list_items()


async def test_a_server_of_an_older_version_keeps_its_tools_when_it_knows_no_agent_skills() -> None:
    listing = await list_server(SkillServer({URI: write_main_file()}, is_legacy=True))
    assert [item.id for item in listing.items] == ["s__add", "s__resource:file 0"]
    assert listing.problems == ["its agent skills could not be listed: no such method"]


async def test_a_listing_that_is_cancelled_ends_although_its_second_session_fails() -> None:
    is_open = asyncio.Event()

    @asynccontextmanager
    async def open_modern() -> AsyncIterator[ClientSession]:
        is_open.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ExceptionGroup("as the SDK's", [OSError()]) from None
        yield session

    session: Any = SimpleNamespace(server_capabilities=None, protocol_version="2025-06-18")
    item = Item("s", "notes", type=ItemType.RESOURCE, annotations={"uri": URI})
    listing = asyncio.create_task(AgentSkillReader("s", open_modern).list(session, [item]))
    await is_open.wait()
    listing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listing


@pytest.mark.parametrize(
    ("more", "size", "problem"),
    [
        ("", "1e999", "its entry is invalid: OverflowError"),
        ('x: !!int ""\n', "1", "its frontmatter is not valid YAML"),
    ],
)
async def test_a_flawed_agent_skill_costs_itself_only(more: str, size: str, problem: str) -> None:
    web = SkillServer({"skill://good/SKILL.md": write_main_file("good"), URI: write_main_file(more=more)})
    web.sizes[URI] = size
    listing = await list_server(web)
    assert [i.name for i in listing.items if i.type is ItemType.AGENT_SKILL] == ["good"]
    assert problem in listing.problems[0]


@pytest.mark.parametrize("more", ["\ud800", "a\n", "%0a", "%00"])
async def test_addresses_that_no_store_takes_cost_their_agent_skill(more: str) -> None:
    files = {uri: write_main_file("notes") for uri in ("skill://good/notes/SKILL.md", URI)}
    listing = await list_server(SkillServer(files | {f"skill://notes/{more}.md": "x"}))
    (item,) = (i for i in listing.items if i.type is ItemType.AGENT_SKILL)
    assert (item.annotations or {})["uri"] == "skill://good/notes/SKILL.md"
    assert "is not inside of its folder, or has characters that no store takes" in listing.problems[0]


async def test_a_file_of_an_agent_skill_is_read_through_no_template() -> None:
    templates = ("skill://notes/{path*}", "skill://{+path}")
    with SkillServer({URI: write_main_file()}, templates=templates) as web:
        async with connecting(web) as server:
            items = {item.id: item for item in (await server.list_items()).items}
            assert items.keys() == {"s__add", "s__agent_skill:notes", "s__resource:template 1"}
            web.files[URI] = write_main_file(more="x: changed\n")
            with pytest.raises(UpstreamFailed, match="is not the file that was listed"):
                await server.call(items["s__agent_skill:notes"], {}, within=TIMEOUT_SECONDS)
            web.reads.clear()
            for path in ("notes/SKILL.md", "%6eotes/SKILL.md", "x/../notes/SKILL.md", "Notes/./SKILL.md"):
                with pytest.raises(InvalidArguments, match="file of an agent skill: read the agent skill"):
                    await server.call(items["s__resource:template 1"], {"path": path}, within=TIMEOUT_SECONDS)
            assert web.reads == []
            await server.call(items["s__resource:template 1"], {"path": "other"}, within=TIMEOUT_SECONDS)
    assert web.reads == ["skill://other"]


async def test_a_resource_is_read_only_after_the_first_listing_has_named_the_agent_skills() -> None:
    with SkillServer({URI: write_main_file()}) as web:
        async with connecting(web) as server:
            loop, is_listing = asyncio.get_running_loop(), asyncio.Event()
            web.before_skills = lambda: loop.call_soon_threadsafe(is_listing.set)
            listing = asyncio.create_task(server.list_items())
            await is_listing.wait()
            early = Item("s", "early", type=ItemType.RESOURCE, annotations={"uri": URI})
            with pytest.raises(InvalidArguments, match="file of an agent skill"):
                await server.call(early, {}, within=TIMEOUT_SECONDS)
            await listing
    assert web.reads == [URI]


async def test_a_main_file_is_read_once_and_forgotten_when_it_is_no_longer_listed() -> None:
    with SkillServer({URI: write_main_file()}) as web:
        async with connecting(web) as server:
            for text in (write_main_file(), write_main_file(more="x: 1\n"), write_main_file(more="x: 2\n")):
                web.files[URI], web.digests[URI] = text, compute_digest(text.encode())
                for _ in range(2):
                    assert (await server.list_items()).problems == []
            assert len(server._agent_skills._read) == 1
    assert web.reads == [URI] * 3


async def test_agent_skills_with_one_name_get_their_paths_as_names_on_one_line() -> None:
    files = {f"skill://{folder}/notes/SKILL.md": write_main_file() for folder in ("a%0A%1b[31m", "b c", "d%20e")}
    listing = await list_server(SkillServer(files))
    names = [item.name for item in listing.items if item.type is ItemType.AGENT_SKILL]
    assert names == ["a%0A%1b[31m/notes", "b c/notes", "d e/notes"]
