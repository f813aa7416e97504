"""The embedding cache: unchanged items are embedded once, even if the index is lost or the configuration changes."""

from __future__ import annotations

import asyncio

import pytest

from toolscript.app.app import open_app
from toolscript.domain.catalog import Item
from toolscript.services.catalogue.item_points import TOOLS
from toolscript.settings import Settings

pytestmark = [pytest.mark.req("S-10"), pytest.mark.slow]

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
A, B = Item("one", "a", "Read a file", input_schema=SCHEMA), Item("one", "b", "Write a file")
C = Item("two", "c", "Send mail")


async def count_embedded(settings: Settings, items: list[Item], *, fresh: bool = False) -> int:
    """The number of texts that a run with these items embeds."""
    async with open_app(settings, fresh_index=fresh) as app:
        await app.catalogue.sync.configure({item.server for item in items})
        for server in {item.server for item in items}:
            await app.catalogue.sync.run([i for i in items if i.server == server], servers=[server])
        assert await app.index.count(TOOLS) == len(items)
        return app.catalogue.sync.embedded


async def test_servers_that_are_no_longer_configured_are_removed_from_catalogue_and_index(small: Settings) -> None:
    await count_embedded(small, [A, B, C])
    async with open_app(small) as app:
        await app.catalogue.sync.configure(["two"])
        assert [m.id for m in await app.stores.items.get_fingerprints() if m.is_active] == ["two__c"]
        assert [c.id for c in await app.index.scroll(TOOLS)] == ["two__c"]
        assert (await app.stores.items.count_terms([])).documents == 1


async def test_an_index_that_lost_its_points_gets_them_back_when_the_servers_are_known(small: Settings) -> None:
    await count_embedded(small, [A, B])
    async with open_app(small, fresh_index=True) as app:
        await app.catalogue.sync.configure(["one"])
        assert await app.index.count(TOOLS) == 2
        assert app.catalogue.sync.embedded == 0


@pytest.mark.req("G-03", "S-02")
async def test_concurrent_searches_after_a_change_all_see_it(small: Settings) -> None:
    async with open_app(small) as app:
        await app.catalogue.sync.run([A, B])
        await app.tools.search.search("a")
        await app.catalogue.sync.run([C])
        found = await asyncio.gather(*(app.tools.search.search("c", threshold=0.0) for _ in range(5)))
        assert [[hit.id for hit in each.hits] for each in found] == [["two__c"]] * 5
