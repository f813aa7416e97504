"""Feedback over MCP: a call of a search's hit is a success, and a call can name the query that it serves."""

from __future__ import annotations

import pytest
from mcp_types import CallToolRequestParams

from tests.fixtures.examples import choose
from toolscript.app.app import App
from toolscript.domain.access import Caller, Principal
from toolscript.domain.servers import CallResult
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.surfaces.mcp.server import answer_call

TOOL = "git__git_commit"
QUERY = "record the staged changes as a new revision in the local repository"
ADA, BEN = Caller(key="ada"), Caller(key="ben")


async def identify() -> Principal:
    return Principal("default")


@pytest.fixture(autouse=True)
async def catalogue(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def call(*_: object, **__: object) -> CallResult:
        return CallResult({"content": [{"type": "text", "text": "done"}]})

    await app.catalogue.sync.run([item for item in load_demo_items() if item.server in {"git", "email"}])
    monkeypatch.setattr(app.servers.gateway, "call", call)  # tools of the demo have no server


async def use(app: App, caller: Caller, tool: str, **arguments: object) -> str:
    result = await answer_call(app, CallToolRequestParams(name=tool, arguments=arguments), identify, caller)
    return str(result["content"][0])


async def list_successes(app: App) -> list[tuple[str, str, str]]:
    await app.tools.feedback.close()
    return [(s.item_id, s.request, s.caller) for s in await app.stores.feedback.get_verdicts()]


@pytest.mark.parametrize(
    "how",
    choose([{}, {"strategy": "direct"}, {"type": "tool"}, {"skill_ids": ["version_control"]}], {}, {"type": "tool"}),
    ids=str,
)
async def test_a_call_of_a_hit_is_a_success(app: App, how: dict[str, object]) -> None:
    if "skill_ids" in how:
        (stored,) = await app.stores.items.get_items([TOOL])
        how = {"skill_ids": [stored.assignments[0].skill_id]}
    assert TOOL in await use(app, ADA, "search_tools", query=QUERY, limit=20, **how)
    await use(app, BEN, "call_tool", tool_id=TOOL, arguments={"repo_path": ".", "message": "x"})
    assert await list_successes(app) == []
    await use(app, ADA, "call_tool", tool_id=TOOL, arguments={"repo_path": ".", "message": "x"})
    assert await list_successes(app) == [(TOOL, QUERY, "ada")]


async def test_a_call_can_name_the_query_that_it_serves(app: App) -> None:
    await use(
        app, ADA, "call_tool", tool_id=TOOL, arguments={"repo_path": ".", "message": "x"}, query="keep a snapshot"
    )
    assert await list_successes(app) == [(TOOL, "keep a snapshot", "ada")]
