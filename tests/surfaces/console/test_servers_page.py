"""The page of servers in a real browser: states live, control, logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import make_scripted_spec
from tests.servers.gateway import RunningGateway, run_gateway
from tests.servers.logins import serving_authorization, serving_protected
from tests.servers.registry import RegistryDouble, describe_server
from tests.surfaces.console.conftest import OpenPage, Page, find_violations
from tests.surfaces.console.test_access import create_key

HOSTILE_SERVER = "<img src=x onerror=alert(5)> ?#%"
HOSTILE_LINE = '<script>alert(3)</script> <img src=x onerror="alert(4)"> \u202esdrawkcab'

# The page outlives its gateway for a moment, and goes on asking.
GONE = "net::ERR_"


def write_servers(folder: Path, servers: dict[str, Any]) -> None:
    (folder / ".toolscript.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    write_servers(tmp_path, {"steady": make_scripted_spec(log=[HOSTILE_LINE, "listening"])})
    with run_gateway(tmp_path, "--data-dir", str(tmp_path / "data")) as gateway:
        yield gateway


def find_row(page: Page, name: str) -> Page:
    return page.locator(".server").filter(has=page.get_by_role("button", name=name))


@pytest.mark.req("W-01")
async def test_servers_are_followed_live(tmp_path: Path, open_page: OpenPage) -> None:
    servers = {"broken": make_scripted_spec(crash=True) | {"sandbox": "bwrap"}, "steady": make_scripted_spec()}
    write_servers(tmp_path, servers)
    with run_gateway(tmp_path, "--data-dir", str(tmp_path / "data")) as gateway:
        page = await open_page(f"{gateway.url}/#/servers", expects=(GONE,))
        await find_row(page, "broken").get_by_text("failed", exact=True).wait_for()
        await find_row(page, "steady").get_by_text("ready", exact=True).wait_for()
        assert await find_violations(page) == []
        servers["later"] = make_scripted_spec()
        write_servers(tmp_path, servers)
        await find_row(page, "later").get_by_text("ready", exact=True).wait_for()
        await page.get_by_role("button", name="steady").click()
        await page.get_by_text("none since the gateway started").wait_for()
        await page.get_by_role("button", name="broken").click()
        await find_row(page, "broken").get_by_text("bwrap, no network", exact=True).wait_for()


@pytest.mark.req("W-01", "W-02")
async def test_a_server_is_stopped_started_and_restarted(gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(f"{gateway.url}/#/servers")
    row = find_row(page, "steady")
    await row.get_by_role("button", name="steady").click()
    await row.get_by_role("button", name="Stop").click()
    await row.get_by_text("stopped on request").first.wait_for()
    await row.get_by_text("stopped", exact=True).wait_for()
    assert await find_violations(page) == []
    await page.goto(f"{gateway.url}/#/tool/steady__echo")
    await page.get_by_text("its server is stopped").wait_for()
    await page.goto(f"{gateway.url}/#/servers")
    await row.get_by_role("button", name="steady").click()
    await row.get_by_role("button", name="Start").click()
    await row.get_by_text("ready", exact=True).wait_for()
    await row.get_by_role("button", name="Restart").click()
    await row.get_by_text("the last one: restarted on request").wait_for()
    await page.goto(f"{gateway.url}/#/calls")
    await page.get_by_role("button", name="Changes of servers").click()
    await page.get_by_role("row", name="restart steady").get_by_text("ok", exact=True).wait_for()
    assert await find_violations(page) == []


@pytest.mark.extended
@pytest.mark.req("W-01", "W-02")
async def test_log_lines_are_text_and_appear_while_the_page_is_open(
    gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(f"{gateway.url}/#/servers")
    row = find_row(page, "steady")
    await row.get_by_role("button", name="steady").click()
    log = row.get_by_role("log")
    await log.get_by_text("<script>alert(3)</script>").first.wait_for()
    assert "⟨U+202E⟩" in await log.inner_text()
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        await http.post("/tools/steady__die", json={})
    await log.get_by_text("exited with code 7").first.wait_for()
    await row.get_by_text("the last one: exited with code 7").wait_for()
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        await http.post("/tools/steady__echo", json={"text": "x"})
    await row.get_by_role("img", name="Times of the last 2 calls").last.wait_for()
    await row.get_by_text("1 error").wait_for()
    assert await find_violations(page) == []


@pytest.mark.extended
@pytest.mark.req("W-01", "W-02")
async def test_a_server_is_added_from_a_snippet_with_a_hostile_name(
    gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(f"{gateway.url}/#/servers", expects=("Failed to load resource",))
    form = page.get_by_role("region", name="Add a server")
    await form.get_by_label("Snippet").fill("npx -y something")
    await form.get_by_text("the snippet is not valid JSON").wait_for()
    await form.get_by_label("Snippet").fill(json.dumps({"<script>x</script>": {"command": "x"}}))
    await form.get_by_text("invalid server name").wait_for()
    assert await form.get_by_role("button", name="Add 1 server").is_disabled()
    await form.get_by_label("Snippet").fill(json.dumps(make_scripted_spec(tools=["echo"])))
    await form.get_by_label("Name of the server").fill(HOSTILE_SERVER)
    await form.get_by_text("scripted.py").wait_for()
    assert await find_violations(page) == []
    await form.get_by_role("button", name="Add 1 server").click()
    await form.get_by_text("The gateway connects now").wait_for()
    row = find_row(page, HOSTILE_SERVER)
    await row.get_by_text("ready", exact=True).wait_for()
    await row.get_by_role("button", name=HOSTILE_SERVER).click()
    await row.get_by_role("button", name="Stop").click()
    await row.get_by_text("stopped", exact=True).wait_for()
    assert await find_violations(page) == []


@pytest.mark.extended
@pytest.mark.req("W-01", "W-02", "G-11")
async def test_a_person_logs_in_at_a_server_from_the_page(tmp_path: Path, open_page: OpenPage) -> None:
    with serving_authorization(ttl=3600) as authorization, serving_protected(authorization.issuer) as web:
        write_servers(tmp_path, {"web": {"type": "http", "url": web.http}})
        with run_gateway(tmp_path, "--data-dir", str(tmp_path / "data")) as gateway:
            page = await open_page(f"{gateway.url}/#/servers", expects=(GONE,))
            row = find_row(page, "web")
            await row.get_by_text("needs a login", exact=True).wait_for()
            await row.get_by_role("button", name="Log in").click()
            link = row.get_by_role("link", name="Continue at 127.0.0.1")
            await link.wait_for()
            assert await find_violations(page) == []
            async with page.context.expect_page() as opened:
                await link.click()
            tab = await opened.value
            await tab.get_by_role("heading", name="Logged in").wait_for()
            assert await find_violations(tab) == []
            await row.get_by_text("ready", exact=True).wait_for()
            await link.wait_for(state="detached")
            await row.get_by_role("button", name="web").click()
            await row.get_by_text(f"logged in at {authorization.issuer}").wait_for()
            await row.get_by_role("button", name="Log out").click()
            dialog = page.get_by_role("dialog", name="Log out at web?")
            await dialog.get_by_text("for everyone").wait_for()
            assert await find_violations(page) == []
            await dialog.get_by_role("button", name="Cancel").click()
            await row.get_by_text(f"logged in at {authorization.issuer}").wait_for()
            await row.get_by_role("button", name="Log out").click()
            await dialog.get_by_role("button", name="Log out").click()
            await row.get_by_text("Logged out.").wait_for()
            await row.get_by_text("needs a login", exact=True).wait_for()


@pytest.mark.extended
@pytest.mark.req("W-01", "W-02", "G-11")
async def test_a_key_that_may_only_call_tools_makes_and_removes_its_own_login(
    tmp_path: Path, open_page: OpenPage
) -> None:
    with serving_authorization(ttl=3600) as authorization, serving_protected(authorization.issuer) as web:
        write_servers(tmp_path, {"web": {"type": "http", "url": web.http, "oauth": {"perUser": True}}})
        with run_gateway(tmp_path, "--data-dir", str(tmp_path / "data"), API_KEY="of the operator") as gateway:
            key = create_key(tmp_path, "call")
            page = await open_page(f"{gateway.url}/#/servers", expects=(GONE, "Failed to load resource"))
            dialog = page.get_by_role("dialog", name="Sign in")
            await dialog.get_by_label("Key", exact=False).first.fill(key)
            await dialog.get_by_role("button", name="Sign in").click()
            own = page.get_by_role("region", name="Your logins")
            await own.get_by_text("not logged in").wait_for()
            await page.clock.install()
            await own.get_by_role("button", name="Log in").click()
            assert await find_violations(page) == []
            async with page.context.expect_page() as opened:
                await own.get_by_role("link", name="Continue at 127.0.0.1").click()
            tab = await opened.value
            await tab.get_by_role("heading", name="Logged in").wait_for()
            await own.get_by_text(f"logged in at {authorization.issuer}").wait_for()
            await own.get_by_role("button", name="Log out").click()
            dialog = page.get_by_role("dialog", name="Log out at web?")
            await dialog.wait_for()
            requests: list[str] = []
            page.on("request", lambda request: requests.append(request.url))
            await page.clock.run_for(10_000)
            assert [url for url in requests if url.endswith("/own-logins")] == []
            await dialog.get_by_role("button", name="Log out").click()
            await own.get_by_text("Logged out.").wait_for()
            await own.get_by_text("not logged in").wait_for()


@pytest.mark.extended
@pytest.mark.req("W-01", "G-01")
async def test_the_first_server_is_added_where_the_demo_is_served(tmp_path: Path, open_page: OpenPage) -> None:
    with run_gateway(tmp_path, "--data-dir", str(tmp_path / "data")) as gateway:
        page = await open_page(f"{gateway.url}/#/servers", expects=("Failed to load resource", "net::ERR"))
        await page.get_by_text("No servers are configured").wait_for()
        form = page.get_by_role("region", name="Add a server")
        await form.get_by_label("Snippet").fill(json.dumps({"mcpServers": {"first": make_scripted_spec()}}))
        await form.get_by_role("button", name="Add 1 server").click()
        await find_row(page, "first").get_by_text("ready", exact=True).wait_for()
        assert await page.get_by_text("No servers are configured").count() == 0


@pytest.mark.req("O-02", "W-01", "W-02")
async def test_a_server_that_is_not_connected_is_found_and_its_texts_stay_texts(
    gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(f"{gateway.url}/#/servers", expects=("Failed to load resource",))
    search = page.get_by_role("searchbox", name="What the server should do")
    await search.fill("weather")
    await page.get_by_role("button", name="Find", exact=True).click()
    await page.get_by_text("no registry was read yet").wait_for()
    with RegistryDouble() as registry:
        registry.publish(describe_server("io.github.ann/weather", f"Weather forecasts {HOSTILE_SERVER}"))
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
            answer = await http.post("/api/v1/registry/sync", json={"url": registry.root})
        assert answer.json()["added"] == 1, answer.text
    await search.fill("weather forecasts")
    await page.get_by_role("button", name="Find", exact=True).click()
    await page.get_by_text("uvx weather@1.0.0").wait_for()
    await page.get_by_text(HOSTILE_SERVER).wait_for()
    await page.get_by_text("toolscript servers add io.github.ann/weather").wait_for()
    assert await find_violations(page) == []
