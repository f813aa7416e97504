"""What there is: the catalogue, whole or in part."""

from __future__ import annotations

from toolscript.domain.catalog import Item
from toolscript.domain.selection import select_items
from toolscript.ports.stores import CatalogStore


class ListTools:
    """Tools, prompts and resources by server or id."""

    def __init__(self, catalog: CatalogStore) -> None:
        self._catalog = catalog

    async def matching(self, filter: str | None) -> list[Item]:  # noqa: A002  (the name it has on every surface)
        """The items that a filter names, by id; all without one. Unknown names are nothing."""
        return select_items([stored.item for stored in await self._catalog.items()], filter)

    async def by_id(self, item_ids: list[str]) -> dict[str, Item]:
        """The named items that there are."""
        return {stored.item.id: stored.item for stored in await self._catalog.items(item_ids)}
