"""The other pages in a real browser, with the data of real servers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.servers.gateway import RunningGateway
from tests.servers.preloaded import toolscript_command
from tests.surfaces.console.conftest import OpenPage, find_violations


@pytest.mark.req("W-01", "W-02")
async def test_a_tool_is_called_with_its_form(console_gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(f"{console_gateway.url}/#/tool/everything__get-sum")
    form = page.get_by_role("region", name="Call")
    await form.get_by_role("button", name="Call").wait_for()
    for field, value in zip(await form.locator("input[type=number]").all(), ("19", "23"), strict=True):
        await field.fill(value)
    await form.get_by_role("button", name="Call").click()
    await form.get_by_text("42").wait_for()
    await page.get_by_role("button", name="TypeScript").click()
    await page.get_by_text("export interface EverythingGetSumParams").wait_for()
    assert await find_violations(page) == []


@pytest.mark.req("W-02")
async def test_answers_are_shown_as_text_and_pictures(console_gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(f"{console_gateway.url}/#/tool/everything__echo")
    form = page.get_by_role("region", name="Call")
    await form.get_by_label("message").fill("<b>loud</b> \u202edrawkcab")
    await form.get_by_role("button", name="Call").click()
    await form.get_by_text("<b>loud</b> ⟨U+202E⟩drawkcab").wait_for()
    await page.goto(f"{console_gateway.url}/#/tool/everything__get-tiny-image")
    # The form of the tool before stays until the next one is there.
    await page.get_by_role("heading", name="get-tiny-image").wait_for()
    await page.get_by_role("region", name="Call").get_by_role("button", name="Call").click()
    image = page.get_by_alt_text("An image of the answer")
    await image.wait_for()
    assert await image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0


@pytest.mark.req("W-01", "W-02")
async def test_a_definition_in_quarantine_is_looked_at_and_approved(
    console_gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(f"{console_gateway.url}/#/tool/hostile__sort_shelf")
    quarantine = page.get_by_role("region", name="Quarantine")
    await quarantine.get_by_role("heading", name="description").wait_for()
    assert "\u202e" not in await quarantine.inner_text()
    assert await find_violations(page) == []
    await quarantine.get_by_role("button", name="Approve this definition").click()
    await quarantine.wait_for(state="detached")
    await page.get_by_role("region", name="Call").get_by_role("button", name="Call").wait_for()


@pytest.mark.extended
@pytest.mark.req("W-01")
async def test_the_list_of_tools_is_narrowed_down(console_gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(f"{console_gateway.url}/#/tools")
    await page.get_by_label("Server").select_option("everything")
    await page.get_by_label("Words").fill("echo")
    rows = page.locator("tbody tr")
    await rows.get_by_role("link", name="echo").wait_for()
    assert "everything" in await rows.first.inner_text()
    assert await find_violations(page) == []


@pytest.mark.extended
@pytest.mark.req("W-01")
async def test_skills_show_their_tools(console_gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(f"{console_gateway.url}/#/skills")
    await page.get_by_role("button", name="File Operations").click()
    await page.locator(".skill-tools").get_by_text("read_text_file").wait_for()
    assert await find_violations(page) == []


@pytest.mark.extended
@pytest.mark.req("W-01")
async def test_calls_are_listed_and_filtered(console_gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(f"{console_gateway.url}/#/tool/filesystem__read_text_file", expects=("Failed to load",))
    form = page.get_by_role("region", name="Call")
    await form.get_by_label("path", exact=False).first.fill("/nowhere")
    await form.get_by_role("button", name="Call").click()
    await form.get_by_role("alert").wait_for()
    await page.goto(f"{console_gateway.url}/#/search?q=echo")
    await page.locator(".hit").first.wait_for()
    await page.goto(f"{console_gateway.url}/#/calls")
    await page.get_by_label("Outcome").select_option("error")
    await page.get_by_role("region", name="Events").get_by_text("filesystem__read_text_file").first.wait_for()
    await page.get_by_role("button", name="All", exact=True).click()
    await page.get_by_role("button", name="Searches").click()
    await page.get_by_role("columnheader", name="Request").wait_for()
    assert await find_violations(page) == []


@pytest.mark.extended
@pytest.mark.req("W-01")
async def test_files_become_knowledge_that_is_found(console_gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(f"{console_gateway.url}/#/files")
    text = "# Brewing\n\nGreen tea is brewed for two minutes at eighty degrees, and never with boiling water.\n"
    await page.get_by_label("Files to add").set_input_files(
        {"name": "brewing.md", "mimeType": "text/markdown", "buffer": text.encode()}
    )
    await page.get_by_role("region", name="Sources").get_by_text("Brewing", exact=False).first.wait_for()
    await page.get_by_label("Question").fill("how long is green tea brewed")
    passage = page.get_by_role("region", name="Passages")
    await passage.locator("mark", has_text="tea").first.wait_for()
    assert "two minutes" in await passage.inner_text()
    assert "relevant" in await passage.inner_text()
    await page.get_by_label("Question").fill("the shares of a shipping company in Norway")
    await passage.get_by_text("Nothing relevant was found").wait_for()
    assert await find_violations(page) == []


@pytest.mark.extended
@pytest.mark.req("W-01")
async def test_own_requests_are_measured_as_by_the_command(
    console_gateway: RunningGateway, open_page: OpenPage, tmp_path: Path
) -> None:
    page = await open_page(f"{console_gateway.url}/#/quality")
    lines = ["read a text file => filesystem__read_text_file", '{"query": "echo", "relevant": ["everything__echo"]}']
    lines += ["fly to the moon => nobody__flies", "bake a chocolate cake =>"]
    await page.get_by_label("Requests and the tools").fill("\n".join(lines))
    await page.get_by_role("button", name="Measure").click()
    results = page.get_by_role("region", name="Results")
    await results.get_by_text("not found").wait_for()
    assert "1 of them finds no right tool" in await results.inner_text()
    assert "share of 1 request that no tool serves" in await results.inner_text()
    assert await find_violations(page) == []
    async with page.expect_download() as saved:
        await page.get_by_role("button", name="Save for toolscript eval").click()
    await (await saved.value).save_as(tmp_path / "queries.jsonl")
    command = [*toolscript_command(), "eval", str(tmp_path), "--live", "--json"]
    environment = os.environ | {"TOOLSCRIPT_GATEWAY_URL": console_gateway.url}
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, env=environment, check=True)
    (figures,) = json.loads(ended.stdout)["sets"].values()
    for name, title in (("hit@1", "Hit@1"), ("r@5", "R@5"), ("ndcg@10", "NDCG@10")):
        card = results.locator(".figure", has_text=title)
        assert await card.locator(".figure-value").inner_text() == f"{figures[name]:.3f}"
    await page.get_by_role("button", name="Check", exact=True).click()
    await page.get_by_text("tools and ").wait_for()
    assert await find_violations(page) == []
    left_empty = results.locator(".figure", has_text="Left empty").locator(".figure-value")
    assert await left_empty.inner_text() == f"{figures['no_match']['left_empty']:.3f}"


@pytest.mark.extended
@pytest.mark.req("W-01")
async def test_health_names_what_is_wrong_and_how_long_things_take(
    console_gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(f"{console_gateway.url}/#/health")
    await page.get_by_text("1 server failed.").wait_for()
    await page.get_by_role("cell", name="GET /console").wait_for()
    index = page.get_by_role("region", name="Index", exact=True)
    tools = index.get_by_role("row", name="Tools, prompts and resources").get_by_role("cell").last
    assert int(await tools.inner_text()) > len(("read", "write", "list"))
    await page.goto(f"{console_gateway.url}/#/search?q=echo")
    await page.locator(".hit").first.wait_for()
    await page.goto(f"{console_gateway.url}/#/health")
    await page.get_by_role("region", name="Stages of searches").get_by_role("cell", name="tools embed").wait_for()
    caches = page.get_by_role("region", name="Caches", exact=True)
    await caches.get_by_role("row", name="Vectors of requests for tools").wait_for()
    assert await find_violations(page) == []


@pytest.mark.extended
@pytest.mark.req("W-01")
async def test_tools_are_chosen_on_the_map(console_gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(f"{console_gateway.url}/#/map")
    canvas = page.locator("canvas")
    await canvas.wait_for()
    await page.get_by_text("File Operations").wait_for()
    box = await canvas.bounding_box()
    corners = [(2, 2), (box["width"] - 2, 2), (box["width"] - 2, box["height"] - 2), (2, box["height"] - 2)]
    await page.keyboard.down("Shift")
    for i, (x, y) in enumerate(corners):
        await page.mouse.move(box["x"] + x, box["y"] + y)
        if i == 0:
            await page.mouse.down()
    await page.mouse.up()
    await page.keyboard.up("Shift")
    chosen = page.get_by_role("region", name="Chosen tools")
    await chosen.get_by_role("link", name="filesystem__read_text_file").wait_for()
    assert await find_violations(page) == []
    await chosen.get_by_role("button", name="Let go").click()
    await chosen.wait_for(state="detached")


@pytest.mark.req("W-01", "W-02")
async def test_a_skill_is_proposed_from_the_map_and_approved_with_the_keyboard_alone(
    console_gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(f"{console_gateway.url}/#/map")
    await page.get_by_text("File Operations").wait_for()
    await page.get_by_label("Words of names").fill("echo")
    await page.locator("canvas").press("c")
    chosen = page.get_by_role("region", name="Chosen tools")
    assert await chosen.get_by_role("link").all_inner_texts() == ["everything__echo"]
    await chosen.get_by_label("Skill", exact=True).fill("Echoes of the mountains")
    await page.keyboard.press("Enter")
    await chosen.get_by_role("link", name="Review it").press("Enter")
    review = page.get_by_role("region", name="Review")
    await review.get_by_text("Echoes of the mountains").wait_for()
    await review.get_by_role("link", name="everything__echo").wait_for()
    await review.press("a")
    await page.get_by_role("button", name="Echoes of the mountains").press("Enter")
    await page.locator(".skill-tools").get_by_text("by a person").wait_for()
    assert await page.locator(".skill-tools a").all_inner_texts() == ["echo"]


@pytest.mark.extended
async def test_a_page_that_writes_its_address_late_does_not_undo_a_step_to_another(
    console_gateway: RunningGateway, open_page: OpenPage
) -> None:
    page = await open_page(console_gateway.url)
    await page.evaluate("""import('/console/core/router.js').then(({ replaceAddress }) => {
        location.hash = '#/tools';  // the page hears of it later
        replaceAddress('#/search?q=late');
    })""")
    await page.get_by_role("heading", name="Tools", exact=True, level=1).wait_for()


@pytest.mark.extended
@pytest.mark.req("W-02")
async def test_every_page_fits_a_small_screen(console_gateway: RunningGateway, open_page: OpenPage) -> None:
    page = await open_page(console_gateway.url, width=400, theme="dark")
    for name in ("tools", "map", "servers", "skills", "files", "calls", "quality", "health"):
        await page.goto(f"{console_gateway.url}/#/{name}")
        await page.get_by_role("heading", name=name.capitalize(), exact=True, level=1).wait_for()
        await page.locator("main .card, main .empty").first.wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert await find_violations(page) == [], name
