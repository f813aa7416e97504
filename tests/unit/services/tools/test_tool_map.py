"""The map of the catalogue: drawn when it changes, so that those who ask for it need not wait."""

from __future__ import annotations

import asyncio

import pytest

from tests.fixtures.limits import set_limits
from toolscript.app.app import App
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.tools import tool_map
from toolscript.services.tools.tool_map import DrawToolMap

pytestmark = pytest.mark.req("W-01")


@pytest.fixture
async def drawn(app: App, monkeypatch: pytest.MonkeyPatch) -> DrawToolMap:
    set_limits(monkeypatch, map_after=0.0)
    set_limits(monkeypatch, map_interval=0.01)
    return DrawToolMap(app.catalogue_index, app.catalogue.snapshots, app.catalogue.visibility.find_view)


@pytest.mark.slow
async def test_the_map_is_drawn_when_the_catalogue_has_changed(
    app: App, drawn: DrawToolMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn.start_following()
    items = load_demo_items()[:8]
    await app.catalogue.sync.run(items)
    version = app.catalogue.snapshots.current().version
    async with asyncio.timeout(60):
        while drawn._drawn[0] < version:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await drawn.close()

    async def fail() -> tool_map.ToolMap:
        pytest.fail("drawn again for a caller")

    monkeypatch.setattr(drawn, "_draw_everything", fail)
    assert len((await drawn.draw()).tools) == len(items)
