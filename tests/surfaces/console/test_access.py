"""Who may use the console: the key that it asks for, what a key without a scope sees, and a gateway that goes away."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.servers import make_scripted_spec
from tests.servers.gateway import RunningGateway, run_gateway
from tests.servers.preloaded import toolscript_command
from tests.surfaces.console.conftest import OpenPage

KEY = "a-key-of-the-tests"
REFUSED = "Failed to load resource"
SEARCH = "#/search?q=echo&threshold=0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keyed")
    (made / ".toolscript.json").write_text(json.dumps({"mcpServers": {"own": make_scripted_spec()}}), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def keyed(folder: Path) -> Iterator[RunningGateway]:
    with run_gateway(folder, "--data-dir", str(folder / "data"), API_KEY=KEY) as gateway:
        yield gateway


def create_key(folder: Path, *scopes: str, tenant: str | None = None) -> str:
    given = [part for scope in scopes for part in ("--scope", scope)] + (["--tenant", tenant] if tenant else [])
    command = [
        *toolscript_command(),
        "keys",
        "create",
        "-".join(scopes),
        *given,
        "--data-dir",
        str(folder / "data"),
        "--json",
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return str(json.loads(made.stdout)["key"])


@pytest.mark.req("W-02")
async def test_where_a_key_is_required_the_page_asks_for_it_and_keeps_it_for_the_tab(
    keyed: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(f"{keyed.url}/{SEARCH}", expects=(REFUSED,))
    dialog = page.get_by_role("dialog", name="Sign in")
    await dialog.get_by_label("Key", exact=False).first.fill("a wrong one")
    await dialog.get_by_role("button", name="Sign in").click()
    await dialog.get_by_text("The key was not accepted").wait_for()
    await dialog.get_by_label("Key", exact=False).first.fill(KEY)
    await dialog.get_by_role("button", name="Sign in").click()
    await page.locator(".hit", has_text="echo").first.wait_for()
    await page.reload()
    await page.locator(".hit", has_text="echo").first.wait_for()
    assert KEY not in page.url
    assert await page.evaluate("localStorage.length") == 0


@pytest.mark.extended
async def test_a_dialog_that_is_needed_again_while_it_closes_is_shown(
    keyed: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(f"{keyed.url}/{SEARCH}", expects=(REFUSED,))
    dialog = page.get_by_role("dialog", name="Sign in")
    await dialog.wait_for()
    await page.evaluate("""import('/console/core/api.js').then(({ signInNeeded }) => new Promise((hasClosed) => {
        const close = HTMLDialogElement.prototype.close;
        HTMLDialogElement.prototype.close = function () {
            HTMLDialogElement.prototype.close = close;
            this.addEventListener('close', () => hasClosed(true));
            close.call(this);  // its event comes later
            signInNeeded.set({ message: 'needed again' });
        };
        signInNeeded.set(null);
    }))""")
    await dialog.get_by_text("needed again").wait_for()
    await page.keyboard.press("Escape")
    await dialog.wait_for(state="hidden")


@pytest.mark.extended
@pytest.mark.req("W-02")
async def test_a_key_without_a_scope_gets_the_reason(keyed: RunningGateway, folder: Path, open_page: OpenPage) -> None:
    key = create_key(folder, "search")
    page = await open_page(f"{keyed.url}/{SEARCH}", expects=(REFUSED,))
    dialog = page.get_by_role("dialog", name="Sign in")
    await dialog.get_by_label("Key", exact=False).first.fill(key)
    await dialog.get_by_role("button", name="Sign in").click()
    hit = page.locator(".hit", has_text="echo").first
    await hit.wait_for()
    await hit.get_by_role("button", name="Right").click()
    await hit.get_by_text("it lacks the scope call").wait_for()


@pytest.mark.extended
@pytest.mark.req("W-02")
async def test_servers_are_neither_shown_nor_controlled_without_the_scope_admin(
    keyed: RunningGateway, folder: Path, open_page: OpenPage
) -> None:
    page = await open_page(f"{keyed.url}/#/servers", expects=(REFUSED,))
    dialog = page.get_by_role("dialog", name="Sign in")
    await dialog.get_by_label("Key", exact=False).first.fill(create_key(folder, "search", "call"))
    await dialog.get_by_role("button", name="Sign in").click()
    await page.get_by_text("it lacks the scope admin").wait_for()
    assert await page.locator(".server").count() == 0
    assert await page.get_by_label("Snippet").count() == 0


@pytest.mark.extended
@pytest.mark.req("W-01", "W-02")
async def test_a_tenant_adds_documents_and_finds_them(keyed: RunningGateway, folder: Path, open_page: OpenPage) -> None:
    key = create_key(folder, "documents", tenant="acme")
    page = await open_page(f"{keyed.url}/#/files?as=documents", expects=(REFUSED,))
    await page.get_by_role("button", name="Sign in").first.click()
    dialog = page.get_by_role("dialog", name="Sign in")
    await dialog.get_by_label("Key", exact=False).first.fill(key)
    await dialog.get_by_role("button", name="Sign in").click()
    await page.get_by_label("Files to add").set_input_files(
        {"name": "tides.txt", "mimeType": "text/plain", "buffer": b"The harbour is deep at noon."}
    )
    documents = page.get_by_role("region", name="Documents", exact=True)
    await documents.get_by_role("button", name="tides.txt").click()
    await page.get_by_role("dialog", name="Document").get_by_text("deep at noon").wait_for()
    await page.keyboard.press("Escape")
    await page.get_by_label("Question").fill("harbour")
    await page.get_by_role("region", name="Passages").locator("mark", has_text="harbour").wait_for()


@pytest.mark.req("W-02", "D-01")
async def test_the_link_of_open_signs_the_owner_in_and_documents_need_no_key(
    keyed: RunningGateway, folder: Path, open_page: OpenPage
) -> None:
    command = [*toolscript_command(), "open", "--data-dir", str(folder / "data"), "--json"]
    environment = {name: value for name, value in os.environ.items() if name not in {"DISPLAY", "WAYLAND_DISPLAY"}}
    opened = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=True, cwd=folder, env=environment
    )
    page = await open_page(json.loads(opened.stdout)["url"])
    await page.get_by_role("button", name="Signed in").wait_for()
    assert "code=" not in page.url
    await page.goto(f"{keyed.url}/#/files?as=documents")
    await page.get_by_role("region", name="Documents", exact=True).wait_for()
    assert await page.get_by_role("dialog", name="Sign in").count() == 0


@pytest.mark.req("W-02", "D-01")
async def test_without_keys_the_owner_sees_documents_without_signing_in(folder: Path, open_page: OpenPage) -> None:
    data = folder.parent / f"{folder.name}-own"
    with run_gateway(folder, "--data-dir", str(data)) as gateway:
        page = await open_page(f"{gateway.url}/#/files?as=documents")
        await page.get_by_role("region", name="Documents", exact=True).wait_for()
        await page.close()  # it would report that its gateway has ended


@pytest.mark.extended
@pytest.mark.req("W-02")
async def test_a_gateway_that_goes_away_and_comes_back_is_noticed(folder: Path, open_page: OpenPage) -> None:
    data = folder.parent / f"{folder.name}-restarted"
    with run_gateway(folder, "--data-dir", str(data)) as gateway:
        port = str(urlsplit(gateway.url).port)
        page = await open_page(f"{gateway.url}/{SEARCH}", expects=(REFUSED,))
        await page.locator(".hit", has_text="echo").first.wait_for()
    await page.get_by_label("What should be found").fill("echo it")
    await page.keyboard.press("Enter")
    await page.get_by_text("The gateway does not answer. Trying").wait_for()
    with run_gateway(folder, "--data-dir", str(data), "--port", port):
        await page.locator(".hit", has_text="echo").first.wait_for()
        assert await page.get_by_text("The gateway does not answer. Trying").count() == 0
