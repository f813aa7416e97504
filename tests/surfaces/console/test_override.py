"""The owner changes a tool on its page, and the configuration file has it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.servers import make_scripted_spec
from tests.servers.gateway import run_gateway
from tests.surfaces.console.conftest import OpenPage, find_violations
from tests.surfaces.console.test_access_page import create_link

pytestmark = [pytest.mark.req("W-01", "O-03"), pytest.mark.extended]

REFUSED = "Failed to load resource"


async def test_the_owner_renames_a_tool_and_fixes_an_argument(tmp_path: Path, open_page: OpenPage) -> None:
    file = tmp_path / ".toolscript.json"
    numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    add = {"name": "add", "inputSchema": {"type": "object", "properties": numbers, "required": ["a", "b"]}}
    (tmp_path / "tools.json").write_text(json.dumps({"tools": [add]}), encoding="utf-8")
    entry = make_scripted_spec(listing=str(tmp_path / "tools.json"))
    file.write_text(json.dumps({"mcpServers": {"notes": entry}}), encoding="utf-8")
    with run_gateway(tmp_path, "--data-dir", str(tmp_path / "data")) as gateway:
        stranger = await open_page(f"{gateway.url}/#/tool/notes__add", expects=(REFUSED,))
        await stranger.get_by_text("Change it for all callers").click()
        await stranger.get_by_text("overrides are for the owner").wait_for()
        page = await open_page(await create_link(tmp_path), expects=(REFUSED,))
        await page.get_by_role("link", name="Tools").first.wait_for()
        await page.goto(f"{gateway.url}/#/tool/notes__add")
        await page.get_by_text("Change it for all callers").click()
        form = page.locator("details.override")
        await form.get_by_label("Name").fill("a name with spaces")
        await form.get_by_role("button", name="Write to the configuration").click()
        await form.get_by_text("invalid name of a tool").wait_for()
        await form.get_by_label("Name").fill("sum")
        await form.get_by_label("Description").first.fill("Adds to two.")
        fixed = form.get_by_role("group", name="a", exact=True)
        await fixed.get_by_label("Callers neither see nor set it").check()
        await form.get_by_role("button", name="Write to the configuration").click()
        await form.get_by_text("is hidden and has no default").wait_for()
        await fixed.get_by_label("Value of each call").fill("2")
        assert await find_violations(page) == []
        await form.get_by_role("button", name="Write to the configuration").click()
        await form.get_by_role("link", name="notes__sum").wait_for()
        tools = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["notes"]["tools"]
        assert tools == {
            "add": {
                "name": "sum",
                "description": "Adds to two.",
                "arguments": {"a": {"default": 2, "hidden": True}},
            }
        }
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            async with asyncio.timeout(60):
                while (await client.get("/tools/notes__sum")).status_code != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            answer = (await client.post("/tools/notes__sum", json={"b": 3})).json()["content"][0]["text"]
            assert json.loads(answer) == {"tool": "add", "arguments": {"a": 2, "b": 3}}
        await form.get_by_role("link", name="notes__sum").click()
        await page.get_by_role("heading", name="sum").wait_for()
        await page.get_by_text("Change it for all callers").click()
        await page.get_by_role("group", name="a", exact=True).get_by_label("Value").wait_for()
