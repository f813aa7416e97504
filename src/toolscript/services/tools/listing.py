"""Lists the items of the catalogue."""

from __future__ import annotations

from toolscript.domain.catalog import Item, select_items
from toolscript.domain.requests import current_request
from toolscript.ports.stores import ItemStore
from toolscript.services.catalogue.visibility import Visibility


class ListTools:
    """Tools, prompts and resources by server or id, as far as the caller may see them."""

    def __init__(self, item_store: ItemStore, visibility: Visibility) -> None:
        self._item_store = item_store
        self._visibility = visibility

    async def matching(self, filter: str | None) -> list[Item]:  # noqa: A002  (the name it has on every surface)
        """The items that a filter names, ordered by id; all without one. Unknown names are ignored."""
        items = [stored.item for stored in await self._item_store.get_items()]
        return select_items(await self._visibility.select(items, current_request()), filter)

    async def by_id(self, item_ids: list[str]) -> dict[str, Item]:
        """The items with these ids that exist."""
        items = [stored.item for stored in await self._item_store.get_items(item_ids)]
        return {item.id: item for item in await self._visibility.select(items, current_request())}
