"""Estimates how many tokens of an agent's context a text takes, and how many all tools together would take."""

from __future__ import annotations

from toolscript.ports.stores import ItemStore
from toolscript.services.catalogue.snapshot import CatalogueSnapshots

# The average of large language models' tokenizers for English and JSON: good enough to compare two texts.
CHARACTERS_PER_TOKEN = 4


class TokenCosts:
    """Estimates by the number of characters."""

    def __init__(self, item_store: ItemStore, snapshots: CatalogueSnapshots) -> None:
        self._item_store = item_store
        self._snapshots = snapshots
        self._total: tuple[int, int] | None = None
        """The version of the catalogue, and its tokens."""

    def of(self, text: str) -> int:
        return estimate_tokens(len(text))

    async def of_everything(self) -> int:
        """The tokens of the names, descriptions and schemas of all tools, prompts and resources."""
        version = self._snapshots.current().version
        if self._total is None or self._total[0] != version:
            self._total = version, estimate_tokens(await self._item_store.count_definition_characters())
        return self._total[1]


def estimate_tokens(characters: int) -> int:
    """The tokens of a text with that many characters."""
    return -(-characters // CHARACTERS_PER_TOKEN)
