"""Workflows that call read-only tools only are read-only, and stay so."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.servers import make_scripted_server
from tests.surfaces.code.conftest import TIMEOUT_SECONDS, CodeClient
from toolscript.domain.profiles import Profile
from toolscript.domain.programs import WORKFLOW_SERVER, Language, Workflow
from toolscript.domain.servers import CallRelay
from toolscript.services.code.host import RunCaller
from toolscript.surfaces.callers import OWNER

pytest.importorskip("deno", reason="Deno has no wheel for this platform")
pytestmark = pytest.mark.req("C-03", "G-13")

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [
    {"name": "echo", "description": "Says it.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    {"name": "fail", "description": "Fails.", "inputSchema": SCHEMA},
]
READ = 'await tools.disk.echo({"text": "a"})\nreturn 1'
WRITE = 'await tools.disk.fail({"text": "a"})'


@pytest.fixture(scope="module")
async def client(shared_workflows: CodeClient, tmp_path_factory: pytest.TempPathFactory) -> CodeClient:
    """The workflows of each test have names of their own."""
    app, lists = shared_workflows.app, tmp_path_factory.mktemp("disk") / "lists.json"
    lists.write_text(json.dumps({"tools": TOOLS}), encoding="utf-8")
    app.access.profiles.replace([Profile("reader", read_only=True)])
    await app.servers.gateway.apply([make_scripted_server("disk", watch=str(lists)), WORKFLOW_SERVER])
    await app.servers.gateway.settle(TIMEOUT_SECONDS)
    return shared_workflows


async def save(client: CodeClient, name: str, source: str) -> dict[str, Any]:
    return await client.save(name, {"description": "Does it.", "language": "python", "source": source})


async def test_profiles_that_only_read_show_workflows_that_only_read(client: CodeClient) -> None:
    assert (await save(client, "look", READ))["is_read_only"] is True
    assert (await save(client, "alter", WRITE))["is_read_only"] is False
    assert (await save(client, "look_again", "return await tools.workflows.look({})"))["is_read_only"] is True
    assert (await save(client, "alter_again", "await tools.workflows.alter({})"))["is_read_only"] is False
    for name, is_shown in {"look": True, "look_again": True, "alter": False, "alter_again": False}.items():
        (text,), is_error = await client.call("call_tool", "reader", tool_id=f"workflows__{name}", arguments={})
        assert is_error is not is_shown, text
        assert ("no such tool" in text) is not is_shown


async def test_a_workflow_that_only_reads_calls_no_tool_that_writes(client: CodeClient) -> None:
    workflow = Workflow("sly", "Looks harmless.", Language.PYTHON, WRITE, is_read_only=True)
    caller = RunCaller(OWNER, CallRelay(user=""), may_search=True)
    report = await client.app.code.workflows.run(workflow, {}, caller, seconds=TIMEOUT_SECONDS)
    assert "disk__fail may change something, and this workflow is read-only" in report.outcome.message


async def test_one_that_is_saved_again_and_writes_is_not_read_only(client: CodeClient) -> None:
    await save(client, "turn", READ)
    assert (await client.app.tools.call.describe("workflows__turn")).is_read_only
    await save(client, "turn", WRITE)
    assert not (await client.app.tools.call.describe("workflows__turn")).is_read_only


async def test_one_whose_change_the_catalogue_does_not_know_yet_writes_nothing_either(client: CodeClient) -> None:
    """As on another gateway of the same store, until its next sync. A listing that saving has caused may come between:
    then the catalogue knows that it writes now."""
    await save(client, "turn_later", READ)
    await save(client, "outer", "return await tools.workflows.turn_later({})")
    newer = await client.app.stores.workflows.find("turn_later")
    assert newer
    await client.app.stores.workflows.save(replace(newer, source=WRITE, is_read_only=False))
    response = await client.call_over_http("workflows__outer", {})
    assert re.search("(disk__fail|workflows__turn_later) may change something, and", response.text), response.text
