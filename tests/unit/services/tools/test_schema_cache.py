"""Schemas at hand: asked for once, read ahead when that keeps happening, never older than what was written (H-05)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.items import SqlItems
from toolscript.domain.catalog import Item, Schemas
from toolscript.domain.errors import Unavailable
from toolscript.services.tools.schema_cache import PAGE, KnownSchemas

pytestmark = pytest.mark.req("H-05")

MANY = [Item("s", f"t{n:03}", input_schema={"n": n}) for n in range(3 * PAGE + 1)]
IDS = [item.id for item in MANY]


class Watched(SqlItems):
    """Counts how often it is read, for what was asked and ahead of that; may be made to fail."""

    def __init__(self) -> None:
        super().__init__(Database("sqlite://"))
        self.asked = 0
        self.pages = 0
        self.is_broken = False
        self.has_read = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def get_schemas(self, item_ids: Sequence[str]) -> dict[str, Schemas]:
        self.asked += 1
        return await super().get_schemas(item_ids)

    async def get_schemas_after(self, item_id: str, limit: int) -> dict[str, Schemas]:
        self.pages += 1
        if self.is_broken:
            raise Unavailable("gone")
        page = await super().get_schemas_after(item_id, limit)
        self.has_read.set()
        await self.may_go_on.wait()
        return page


@pytest.fixture
async def item_store() -> AsyncIterator[Watched]:
    held = Watched()
    await held.save_items([(item, frozenset()) for item in MANY])
    yield held
    await held.close()


async def test_they_are_read_once(item_store: Watched) -> None:
    known = KnownSchemas(item_store, asked_before=None)
    for _ in range(3):
        assert await known.of([IDS[0], "gone"]) == {IDS[0]: ({"n": 0}, None, None), "gone": None}
    assert (item_store.asked, item_store.pages) == (3, 0)  # what is gone is looked for each time
    await known.of(IDS[:1])
    assert item_store.asked == 3


async def test_once_the_store_was_asked_often_enough_it_need_not_be_asked_again(item_store: Watched) -> None:
    known = KnownSchemas(item_store, asked_before=2)
    for item_id in IDS[:2]:
        assert item_store.pages == 0
        await known.of([item_id])
    await known.settled()
    asked = item_store.asked
    assert await known.of(IDS) == {item.id: (item.input_schema, None, None) for item in MANY}
    assert item_store.asked == asked


async def test_where_others_write_none_is_read_ahead(item_store: Watched) -> None:
    known = KnownSchemas(item_store, oldest=60, asked_before=1)
    for item_id in IDS[:3]:
        await known.of([item_id])
    await known.settled()
    assert item_store.pages == 0


async def test_no_more_are_read_ahead_than_there_is_room_for_nor_again_and_again(item_store: Watched) -> None:
    known = KnownSchemas(item_store, asked_before=1, room=PAGE)
    for item_id in (IDS[0], *IDS[-5:]):
        await known.of([item_id])
        await known.settled()
    assert item_store.pages == 1


async def test_what_was_read_before_a_change_is_not_known_after_it(item_store: Watched) -> None:
    known = KnownSchemas(item_store, asked_before=1)
    item_store.may_go_on.clear()
    await known.of(IDS[:1])
    await item_store.has_read.wait()
    await item_store.save_items([(Item("s", item.name, input_schema={"n": -1}), frozenset()) for item in MANY])
    known.changed()
    item_store.may_go_on.set()
    await known.settled()
    assert item_store.pages == 1  # the first page was of before, so the others are not read
    for _ in range(2):
        assert set(map(str, (await known.of(IDS)).values())) == {"({'n': -1}, None, None)"}
        await known.settled()
    assert item_store.pages > 2


async def test_a_store_that_fails_while_it_is_read_ahead_is_asked_as_before(item_store: Watched) -> None:
    known = KnownSchemas(item_store, asked_before=1)
    item_store.is_broken = True
    for item_id in IDS[:3]:
        assert (await known.of([item_id]))[item_id]
        await known.settled()
    assert (item_store.asked, item_store.pages) == (3, 1)


async def test_the_reading_ends_with_whoever_asked_for_it(item_store: Watched) -> None:
    known = KnownSchemas(item_store, asked_before=1)
    item_store.may_go_on.clear()
    await known.of(IDS[:1])
    await known.close()
    await known.close()
