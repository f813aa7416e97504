"""Schemas at hand: asked for once, read ahead when that keeps happening, never older than what was written (H-05)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from toolscript.adapters.sql.catalog import SqlCatalog
from toolscript.adapters.sql.database import Database
from toolscript.domain.catalog import Item, Schemas
from toolscript.domain.errors import Unavailable
from toolscript.services.tools.schema_cache import PAGE, KnownSchemas

pytestmark = pytest.mark.req("H-05")

MANY = [Item("s", f"t{n:03}", input_schema={"n": n}) for n in range(3 * PAGE + 1)]
IDS = [item.id for item in MANY]


class Watched(SqlCatalog):
    """Counts how often it is read, for what was asked and ahead of that; may be made to fail."""

    def __init__(self) -> None:
        super().__init__(Database("sqlite://"))
        self.asked = 0
        self.pages = 0
        self.is_broken = False
        self.has_read = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def schemas(self, item_ids: Sequence[str]) -> dict[str, Schemas]:
        self.asked += 1
        return await super().schemas(item_ids)

    async def schemas_after(self, item_id: str, limit: int) -> dict[str, Schemas]:
        self.pages += 1
        if self.is_broken:
            raise Unavailable("gone")
        page = await super().schemas_after(item_id, limit)
        self.has_read.set()
        await self.may_go_on.wait()
        return page


@pytest.fixture
async def catalog() -> AsyncIterator[Watched]:
    held = Watched()
    await held.save_items([(item, frozenset()) for item in MANY])
    yield held
    await held.close()


async def test_they_are_read_once(catalog: Watched) -> None:
    known = KnownSchemas(catalog, asked_before=None)
    for _ in range(3):
        assert await known.of([IDS[0], "gone"]) == {IDS[0]: ({"n": 0}, None, None), "gone": None}
    assert (catalog.asked, catalog.pages) == (3, 0)  # what is gone is looked for each time
    await known.of(IDS[:1])
    assert catalog.asked == 3


async def test_once_the_store_was_asked_often_enough_it_need_not_be_asked_again(catalog: Watched) -> None:
    known = KnownSchemas(catalog, asked_before=2)
    for item_id in IDS[:2]:
        assert catalog.pages == 0
        await known.of([item_id])
    await known.settled()
    asked = catalog.asked
    assert await known.of(IDS) == {item.id: (item.input_schema, None, None) for item in MANY}
    assert catalog.asked == asked


async def test_where_others_write_none_is_read_ahead(catalog: Watched) -> None:
    known = KnownSchemas(catalog, oldest=60, asked_before=1)
    for item_id in IDS[:3]:
        await known.of([item_id])
    await known.settled()
    assert catalog.pages == 0


async def test_no_more_are_read_ahead_than_there_is_room_for_nor_again_and_again(catalog: Watched) -> None:
    known = KnownSchemas(catalog, asked_before=1, room=PAGE)
    for item_id in (IDS[0], *IDS[-5:]):
        await known.of([item_id])
        await known.settled()
    assert catalog.pages == 1


async def test_what_was_read_before_a_change_is_not_known_after_it(catalog: Watched) -> None:
    known = KnownSchemas(catalog, asked_before=1)
    catalog.may_go_on.clear()
    await known.of(IDS[:1])
    await catalog.has_read.wait()
    await catalog.save_items([(Item("s", item.name, input_schema={"n": -1}), frozenset()) for item in MANY])
    known.changed()
    catalog.may_go_on.set()
    await known.settled()
    assert catalog.pages == 1  # the first page was of before, so the others are not read
    for _ in range(2):
        assert set(map(str, (await known.of(IDS)).values())) == {"({'n': -1}, None, None)"}
        await known.settled()
    assert catalog.pages > 2


async def test_a_store_that_fails_while_it_is_read_ahead_is_asked_as_before(catalog: Watched) -> None:
    known = KnownSchemas(catalog, asked_before=1)
    catalog.is_broken = True
    for item_id in IDS[:3]:
        assert (await known.of([item_id]))[item_id]
        await known.settled()
    assert (catalog.asked, catalog.pages) == (3, 1)


async def test_the_reading_ends_with_whoever_asked_for_it(catalog: Watched) -> None:
    known = KnownSchemas(catalog, asked_before=1)
    catalog.may_go_on.clear()
    await known.of(IDS[:1])
    await known.close()
    await known.close()
