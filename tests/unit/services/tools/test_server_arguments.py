"""Tools of equal definition are one hit only where package and arguments of their servers are the same; else each says
in what it differs, without secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.fixtures.real_servers import load_real_tools
from tests.unit.services.tools.test_variants import copy_servers
from toolscript.app.app import App
from toolscript.domain.catalog import Item
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.services.catalogue.visibility import View
from toolscript.services.tools.hierarchical_search import HierarchicalQuery, HierarchicalSearch, Strategy
from toolscript.services.tools.hybrid_search import ToolSearch
from toolscript.services.tools.variants import Variants
from toolscript.surfaces.json.hierarchical import build_tool_hit
from toolscript.surfaces.json.tools import build_search_response

pytestmark = pytest.mark.req("G-17")

PACKAGE = "@modelcontextprotocol/server-filesystem"
READ = Item("files", "read_file", "Read a file")


def start(name: str, *args: str, command: str = "npx", env: Mapping[str, str] | None = None) -> ServerSpec:
    return ServerSpec(name, Transport.STDIO, command=command, args=args, env=env or {})


def know(specs: Sequence[ServerSpec]) -> Variants:
    return Variants({spec.name: spec for spec in specs}.get, [spec.name for spec in specs].index)


HOME = start("files-home", "-y", PACKAGE, "/home/ann")
WORK = start("files-work", "-y", PACKAGE, "/srv/work")
CLUB = start("files-club", PACKAGE + "@latest", "/srv/work", command="/usr/bin/npx")


async def test_two_folders_are_two_tools_that_say_which_folder(app: App) -> None:
    await app.catalogue.sync.run(copy_servers([READ], ["home", "work", "club"]))
    search = ToolSearch(app.tools.ranking, app.catalogue.snapshots, variants=know([HOME, WORK, CLUB]))
    results = await search.search("read a file")
    assert {(frozenset(hit.ids), hit.server_arguments) for hit in results.hits} == {
        (frozenset({"files-home__read_file"}), "/home/ann"),
        (frozenset({"files-work__read_file", "files-club__read_file"}), "/srv/work"),
    }
    shown = build_search_response(results)["results"]
    assert {each["serverArguments"] for each in shown} == {"/home/ann", "/srv/work"}


async def test_hits_of_hierarchical_search_say_it_too(app: App) -> None:
    await app.catalogue.sync.run(copy_servers([READ], ["home", "work"]))
    search = HierarchicalSearch(app.tools.ranking, app.catalogue.snapshots, variants=know([HOME, WORK]))
    request = HierarchicalQuery("read a file", tool_threshold=0.0, strategy=Strategy.DIRECT)
    tools = (await search.search(request)).tools
    assert {build_tool_hit(each, with_schemas=True)["server_arguments"] for each in tools} == {"/home/ann", "/srv/work"}


async def test_the_tools_of_a_real_server_for_two_folders_are_two_hits(app: App, shared_data: Path) -> None:
    items = load_real_tools(shared_data, "modelcontextprotocol__server-filesystem")
    server = items[0].server
    await app.catalogue.sync.run(copy_servers(items, ["home", "work"]))
    specs = [start(f"{server}-home", PACKAGE, "/home/ann"), start(f"{server}-work", PACKAGE, "/srv/work")]
    search = ToolSearch(app.tools.ranking, app.catalogue.snapshots, variants=know(specs))
    hits = (await search.search("list_directory", limit=2)).hits
    assert {(hit.name, hit.server_arguments) for hit in hits} == {
        ("list_directory", "/home/ann"),
        ("list_directory", "/srv/work"),
    }


async def test_copies_for_other_accounts_stay_one(app: App) -> None:
    await app.catalogue.sync.run(copy_servers([READ], ["home", "work"]))
    specs = [start(f"files-{name}", PACKAGE, env={"API_TOKEN": name}) for name in ("home", "work")]
    (hit,) = (
        await ToolSearch(app.tools.ranking, app.catalogue.snapshots, variants=know(specs)).search("read a file")
    ).hits
    assert len(hit.ids) == 2
    assert hit.server_arguments == ""


async def test_secrets_and_long_arguments_are_not_shown(app: App) -> None:
    await app.catalogue.sync.run(copy_servers([READ], ["home", "work"]))
    facts = await app.catalogue.snapshots.current().facts()
    for args, shown in (
        (("--token", "abc123", "/a"), "/a"),
        (("--api-key=abc123", "/a"), "/a"),
        (("a-secret-without-a-flag", "~/notes"), "~/notes"),
        (("postgresql://ann:pw@db/shop",), "postgresql://[redacted]@db/shop"),
        (("ghp_abcdefghijklmnopqrstuvwxyz012345",), ""),
        (("in-env-too", "/a"), "/a"),
        (("/" + "long/" * 90,), ("/" + "long/" * 90)[:120]),
    ):
        specs = [start("files-home", PACKAGE, *args, env={"TOKEN": "in-env-too"}), start("files-work", PACKAGE, "/b")]
        assert know(specs).describe_arguments("files-home__read_file", facts) == shown, args


async def test_addresses_are_shown_without_their_query(app: App) -> None:
    await app.catalogue.sync.run(copy_servers([READ], ["home", "work"]))
    specs = [
        ServerSpec(f"files-{name}", Transport.HTTP, url=f"https://{name}.example.org/mcp?key=abc")
        for name in ("home", "work")
    ]
    facts = await app.catalogue.snapshots.current().facts()
    assert know(specs).describe_arguments("files-home__read_file", facts) == "https://home.example.org/mcp"
    assert know(specs).list_ids("files-home__read_file", facts, View()) == ()
