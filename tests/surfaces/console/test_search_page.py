"""The search page in a real browser: results, their reasons, and what hostile definitions can do."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.fixtures.examples import choose
from tests.servers.gateway import RunningGateway
from tests.surfaces.console.conftest import HOSTILE_NAME, OpenPage, find_violations

MAX_FIRST_BYTES = 100_000


@pytest.mark.req("W-01", "W-02")
async def test_enter_searches_once_and_each_hit_has_its_reason(
    console_gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(console_gateway.url)
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    await page.locator("#search-box:focus").press_sequentially("read a text file")
    await page.keyboard.press("Enter")
    first = page.locator("section[aria-label=Tools] .hit", has_text="read_text_file").first
    await first.wait_for()
    await first.locator(".hit-reason", has_text=re.compile("match|similarity")).wait_for()
    label = await first.locator(".bar").get_attribute("aria-label") or ""
    total, *parts = map(float, re.findall(r"\d\.\d\d", label))
    assert total == pytest.approx(sum(parts), abs=0.03)
    assert "tokens instead of" in await page.locator("section[aria-label=Tools] .count").inner_text()
    await page.locator("section[aria-label=Skills] .hit").first.wait_for()
    assert {url.split("&")[0].split("=")[-1] for url in urls if "/search?q" in url} == {"read+a+text+file"}
    assert "q=read+a+text+file" in page.url
    await page.reload()
    await first.wait_for()


@pytest.mark.extended
@pytest.mark.req("W-01")
async def test_sliders_change_the_results_at_once_and_back(
    console_gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(f"{console_gateway.url}/#/search?q=write%20a%20file")
    returned = page.locator("section[aria-label=Tools] > .hits > .hit")
    await returned.first.wait_for()
    before = await returned.count()
    await page.get_by_role("slider", name="Limit").fill("20")
    await page.get_by_role("slider", name="Threshold").fill("0.1")
    await page.locator(".hit .tag.good", has_text="new").first.wait_for()
    assert await returned.count() > before
    await page.get_by_role("button", name="As agents get it").click()
    await page.locator("section[aria-label=Tools] > .hits > .hit").nth(before).wait_for(state="detached")
    assert await returned.count() == before


@pytest.mark.req("Q-06", "W-01")
async def test_close_tools_are_shown_below_the_confident_ones(
    console_gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(f"{console_gateway.url}/#/search?q=write%20a%20file&threshold=1")
    tools = page.locator("section[aria-label=Tools]")
    await tools.get_by_text("No tool is a confident match").wait_for()
    closest = tools.get_by_role("group", name="Less sure").locator(".hit")
    await closest.first.wait_for()
    assert await closest.count() == 3
    assert await tools.locator("> .hits > .hit").count() == 0


@pytest.mark.extended
@pytest.mark.req("W-01")
async def test_strategies_are_compared_side_by_side(console_gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(f"{console_gateway.url}/#/search?q=read%20a%20file")
    await page.get_by_role("button", name="Compare strategies").click()
    for name in ("hierarchical", "hybrid", "direct"):
        column = page.get_by_role("article", name=name)
        await column.locator(".strategy-tools li").first.wait_for()
        assert "tokens of all tools" in await column.inner_text()


@pytest.mark.extended
@pytest.mark.req("W-01")
async def test_a_hit_is_marked_as_right_or_wrong_and_taken_back(
    console_gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(f"{console_gateway.url}/#/search?q=list%20what%20is%20in%20a%20folder")
    first = page.locator("section[aria-label=Tools] .hit").first
    await first.get_by_role("button", name="Right").click()
    await first.get_by_text("recorded as right").wait_for()
    await first.get_by_role("button", name="Wrong").click()
    await first.get_by_text("recorded as wrong").wait_for()
    async with httpx.AsyncClient(base_url=console_gateway.url, timeout=60) as client:
        (marked,) = (await client.get("/api/v1/feedback")).json()["tools"]
    assert (marked["successes"], marked["wrong"]) == (0, 1)
    await first.get_by_role("button", name="Wrong").click()
    await first.get_by_text("taken back", exact=True).wait_for()


@pytest.mark.req("W-02")
async def test_hostile_definitions_are_shown_as_text(console_gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(f"{console_gateway.url}/#/search?q=paint%20a%20wall&threshold=0&limit=50")
    hit = page.locator(".hit", has_text=HOSTILE_NAME).first
    await hit.wait_for()
    text = await hit.inner_text()
    assert "<b>bold</b>" in text
    assert '<img src=x onerror="alert(2)">' in text
    assert await page.locator(".hit b, .hit script, .hit img").count() == 0
    await page.get_by_label("What should be found").fill("an enormous story")
    await page.keyboard.press("Enter")
    story = page.locator(".hit", has_text="enormous").first
    await story.wait_for()
    assert len(await story.inner_text()) < 1000


@pytest.mark.extended
@pytest.mark.req("W-02")
async def test_the_page_of_a_hostile_tool_shows_text_too(console_gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(f"{console_gateway.url}/#/tool/{quote(f'hostile__{HOSTILE_NAME}', safe='')}")
    await page.get_by_role("heading", name=HOSTILE_NAME).wait_for()
    form = page.get_by_role("region", name="Call")
    await form.get_by_text("<b>who</b>").wait_for()
    assert await page.locator("main b, main script, main img").count() == 0
    await page.goto(f"{console_gateway.url}/#/tool/hostile__enormous")
    await page.get_by_role("button", name="Show all").click()
    await page.get_by_role("button", name="Show less").wait_for()
    assert await find_violations(page) == []


@pytest.mark.req("W-02")
@pytest.mark.parametrize("theme", choose(["light", "dark"], "light"))
async def test_it_works_from_the_keyboard_and_for_screen_readers(
    console_gateway: RunningGateway, open_page: OpenPage, theme: Any
) -> None:
    page = await open_page(f"{console_gateway.url}/#/search?q=read%20a%20file", theme=theme)
    await page.locator(".others .hit").first.wait_for()
    assert await find_violations(page) == []
    await page.keyboard.press("ArrowDown")
    assert await page.evaluate("document.activeElement.className") == "hit-name mono"
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("?")
    await page.get_by_role("dialog", name="Keys").wait_for()
    await page.keyboard.press("Escape")
    await page.keyboard.press("/")
    assert await page.evaluate("document.activeElement.id") == "search-box"


@pytest.mark.extended
@pytest.mark.req("W-01", "W-02")
async def test_the_first_paint_is_small_and_fits_a_small_screen(
    console_gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(console_gateway.url, width=400)
    await page.get_by_label("What should be found").wait_for()
    sizes = await page.evaluate("performance.getEntriesByType('resource').map(e => e.transferSize)")
    page_size = await page.evaluate("performance.getEntriesByType('navigation')[0].transferSize")
    assert 0 < sum(sizes) + page_size < MAX_FIRST_BYTES
    await page.get_by_label("What should be found").fill("read a file")
    await page.keyboard.press("Enter")
    await page.locator(".hit").first.wait_for()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
