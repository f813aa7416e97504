"""Lists the items of the catalogue."""

from __future__ import annotations

from toolscript.domain.catalog import Item, select_items
from toolscript.ports.stores import ItemStore


class ListTools:
    """Tools, prompts and resources by server or id."""

    def __init__(self, item_store: ItemStore) -> None:
        self._item_store = item_store

    async def matching(self, filter: str | None) -> list[Item]:  # noqa: A002  (the name it has on every surface)
        """The items that a filter names, ordered by id; all without one. Unknown names are ignored."""
        return select_items([stored.item for stored in await self._item_store.get_items()], filter)

    async def by_id(self, item_ids: list[str]) -> dict[str, Item]:
        """The items with these ids that exist."""
        return {stored.item.id: stored.item for stored in await self._item_store.get_items(item_ids)}
