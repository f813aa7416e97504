"""A real browser on the console of a real gateway. Each page is watched: whatever violates the content policy, asks
another origin, or fails in a script, fails the test."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx
import pytest

from tests.servers import make_scripted_spec
from tests.servers.gateway import RunningGateway, run_gateway
from tests.servers.real import MODULES, real_servers

# Not imported here: where Playwright is not installed, the tests are skipped and their types checked all the same.
Page: TypeAlias = Any
Browser: TypeAlias = Any

WAIT_MS = 60_000
START_SECONDS = 240.0  # 10 s where nothing else runs
HOSTILE_NAME = "run_<script>alert(1)</script>"
HOSTILE_TEXT = '<img src=x onerror="alert(2)"> Paints a wall in <b>bold</b> colours.'
REVERSED = "Sorts a shelf \u202esdrawkcab\u202c and \u200bbackwards."
OpenPage = Callable[..., Awaitable[Page]]
MISSING = "no Chromium, or no playwright: `make test` installs both; TOOLSCRIPT_TEST_CHROMIUM names another browser"


# Fontconfig reads its files again when a folder of fonts has changed, and a thread of Chromium that draws text then
# crashes the browser: that happened when the home folder of the test that started it was deleted.
FONTS = """<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><include ignore_missing="yes">/etc/fonts/fonts.conf</include><rescan><int>0</int></rescan></fontconfig>
"""


@pytest.fixture(scope="session")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    playwright = pytest.importorskip("playwright.async_api", reason=MISSING)
    names = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    program = os.environ.get("TOOLSCRIPT_TEST_CHROMIUM") or next(filter(None, names), None)
    if program is None:
        pytest.skip(MISSING)
    home = tmp_path_factory.mktemp("browser")
    fonts = home / "fonts.conf"
    fonts.write_text(FONTS, encoding="utf-8")
    environment = os.environ | {"HOME": str(home), "FONTCONFIG_FILE": str(fonts)}
    async with playwright.async_playwright() as driver:
        started = await driver.chromium.launch(executable_path=program, env=environment)
        yield started
        await started.close()


@pytest.fixture
async def open_page(browser: Browser) -> AsyncIterator[OpenPage]:
    """Opens an address in a window of its own. Expected errors of the network are given as parts of their texts."""
    faults: list[str] = []
    async with AsyncExitStack() as stack:

        async def open_it(url: str, *, expects: tuple[str, ...] = (), width: int = 1280, theme: Any = "light") -> Page:
            context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
            context.set_default_timeout(WAIT_MS)
            stack.push_async_callback(context.close)
            page = await context.new_page()
            origin = urlsplit(url).netloc

            def note(message: str) -> None:
                if not any(part in message for part in expects):
                    faults.append(message)

            def note_entry(entry: Any) -> None:
                if entry.type == "error":
                    note(f"console: {entry.text}")

            def note_request(request: Any) -> None:
                if urlsplit(request.url).netloc not in {origin, ""}:
                    note(f"asked {request.url}")

            page.on("pageerror", lambda error: note(f"a script failed: {error}"))
            page.on("dialog", lambda dialog: note(f"a dialog: {dialog.message}"))
            page.on("console", note_entry)
            page.on("request", note_request)
            await page.goto(url)
            return page

        yield open_it
    assert not faults


@pytest.fixture(scope="session")
def hostile_listing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tools whose texts try to become part of the page, or to fill it."""
    schema = {
        "type": "object",
        "properties": {"<b>who</b>": {"type": "string", "description": HOSTILE_TEXT}},
        "required": ["<b>who</b>"],
    }
    tools = [
        {"name": HOSTILE_NAME, "description": HOSTILE_TEXT, "inputSchema": schema},
        {"name": "sort_shelf", "description": REVERSED, "inputSchema": {"type": "object"}},
        {"name": "enormous", "description": "Tells an enormous story. " * 40_000, "inputSchema": {"type": "object"}},
    ]
    file = tmp_path_factory.mktemp("listing") / "tools.json"
    file.write_text(json.dumps({"tools": tools}), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def console_gateway(tmp_path_factory: pytest.TempPathFactory, hostile_listing: Path) -> Iterator[RunningGateway]:
    """A gateway with real servers, hostile definitions, and a server that does not start."""
    folder = tmp_path_factory.mktemp("gateway")
    real = real_servers(folder / "servers")
    servers = {name: real[name] for name in ("filesystem", "everything")}
    servers |= {"hostile": make_scripted_spec(listing=str(hostile_listing)), "broken": make_scripted_spec(crash=True)}
    (folder / ".toolscript.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    with run_gateway(folder, "--data-dir", str(folder / "data"), SEARCH_MODEL="", FEEDBACK="true") as gateway:
        deadline = time.monotonic() + START_SECONDS
        while (
            httpx.get(f"{gateway.url}/ready", timeout=60).json().get("servers", {}).get("ready", 0) < len(servers) - 1
        ):
            assert time.monotonic() < deadline, gateway.log.read_text()
            time.sleep(0.1)
        yield gateway


async def find_violations(page: Page) -> list[str]:
    """Serious problems that axe finds."""
    await page.evaluate((MODULES / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [each for each in found["violations"] if each["impact"] in {"serious", "critical"}]
    return [f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}" for each in serious]
