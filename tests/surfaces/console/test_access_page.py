"""The page Access: calls that wait are decided, and keys are made, by the signed-in owner alone; what an agent wrote is
text."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import make_scripted_spec
from tests.servers.gateway import RunningGateway, run_gateway
from tests.servers.preloaded import toolscript_command
from tests.surfaces.console.conftest import OpenPage, Page, find_violations

pytestmark = pytest.mark.req("W-01", "W-02", "X-04")

REFUSED = "Failed to load resource"
HOSTILE = '<img src=x onerror="alert(1)"> \u202edrawkcab'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    entry = make_scripted_spec(tools=["echo"]) | {"approval": "writes"}
    (tmp_path / ".toolscript.json").write_text(json.dumps({"mcpServers": {"notes": entry}}), encoding="utf-8")
    return tmp_path


@pytest.fixture
def gateway(folder: Path) -> Iterator[RunningGateway]:
    with run_gateway(folder, "--data-dir", str(folder / "data")) as opened:
        yield opened


async def call(gateway: RunningGateway, text: str, key: str | None = None) -> httpx.Response:
    """An agent's call, which waits without an approval."""
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        headers = {"X-API-Key": key} if key else {}
        return await client.post("/tools/notes__echo", json={"text": text}, headers=headers)


async def create_link(folder: Path) -> str:
    """The link of `toolscript open`."""
    command = [*toolscript_command(), "open", "--data-dir", str(folder / "data"), "--json"]
    environment = {name: value for name, value in os.environ.items() if name not in {"DISPLAY", "WAYLAND_DISPLAY"}}
    opened = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=True, cwd=folder, env=environment
    )
    return str(json.loads(opened.stdout)["url"])


async def open_as_owner(gateway: RunningGateway, folder: Path, open_page: OpenPage) -> Page:
    """The page Access, signed in."""
    page = await open_page(await create_link(folder))
    await page.get_by_role("button", name="Signed in").wait_for()
    await page.goto(f"{gateway.url}/#/access")
    return page


async def test_the_signed_in_owner_decides_about_calls_and_what_an_agent_wrote_is_text(
    gateway: RunningGateway, folder: Path, open_page: OpenPage
) -> None:
    long = HOSTILE + " word" * 30_000
    texts = [HOSTILE, "<b>declined</b>", long]
    for text in texts:
        assert (await call(gateway, text)).status_code == 403
    page = await open_as_owner(gateway, folder, open_page)
    waiting = page.get_by_role("listitem", name="Call of notes__echo")
    await waiting.nth(2).wait_for()
    shown = await waiting.first.inner_text()
    assert r"<img src=x onerror=\"alert(1)\"> \u202edrawkcab" in shown
    assert "\u202e" not in await page.locator("main").inner_text()
    assert len(await page.locator("main").inner_text()) < 10_000
    assert await find_violations(page) == []
    await page.set_viewport_size({"width": 400, "height": 900})
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await waiting.nth(1).get_by_role("button", name="Decline notes__echo").click()
    await waiting.nth(1).get_by_text("You have declined it.").wait_for()
    await waiting.first.get_by_role("button", name="Approve notes__echo").click()
    await waiting.first.get_by_text("You have approved it.").wait_for()
    codes = [(await call(gateway, text)).json() for text in texts]
    assert codes[0] == {"text": HOSTILE}
    assert [each["error"]["code"] for each in codes[1:]] == ["APPROVAL_DECLINED", "APPROVAL_REQUIRED"]


@pytest.mark.extended
async def test_a_page_without_credentials_shows_no_calls_until_a_link_signs_it_in(
    gateway: RunningGateway, folder: Path, open_page: OpenPage
) -> None:
    await call(gateway, "secret of another agent")
    page = await open_page(f"{gateway.url}/#/access", expects=(REFUSED,))
    await page.get_by_text("toolscript open").wait_for()
    assert "secret of another agent" not in await page.content()
    assert await page.get_by_role("button", name="Create the key").count() == 0
    await page.goto(await create_link(folder))
    await page.get_by_role("button", name="Signed in").wait_for()
    assert "code=" not in page.url
    await page.goto(f"{gateway.url}/#/access")
    await page.get_by_text("secret of another agent").wait_for()


async def test_the_owner_creates_a_key_sees_its_secret_once_and_revokes_it(
    gateway: RunningGateway, folder: Path, open_page: OpenPage
) -> None:
    page = await open_as_owner(gateway, folder, open_page)
    form = page.get_by_role("form", name="Create a key")
    await form.get_by_label("Name").fill("ci")
    await form.get_by_role("button", name="Create the key").click()
    dialog = page.get_by_role("dialog", name="The key, shown once")
    secret = str(await dialog.locator(".secret").inner_text())
    assert await find_violations(page) == []
    assert (await call(gateway, "with the key", secret)).json()["error"]["code"] == "APPROVAL_REQUIRED"
    await dialog.get_by_role("button", name="I have it").click()
    keys = page.get_by_role("region", name="Keys")
    await keys.get_by_role("row", name="ci").get_by_text("call, search").wait_for()
    storage: Any = await page.evaluate("JSON.stringify([localStorage, sessionStorage])")
    assert secret not in await page.content()
    assert secret not in storage
    assert await find_violations(page) == []
    await keys.get_by_role("button", name="Revoke ci").click()
    await page.get_by_role("dialog", name="Revoke ci?").get_by_role("button", name="Revoke the key").click()
    await keys.get_by_text("revoked").wait_for()
