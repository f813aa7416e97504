"""What reading costs an agent: how many tokens of its context a text takes, and how many all tools would have taken."""

from __future__ import annotations

from toolscript.ports.stores import ItemStore
from toolscript.services.support.result_cache import ResultCache

# What the tokenizers of large language models make of English and JSON, on average: near enough to compare two texts.
CHARACTERS_PER_TOKEN = 4


class TokenCosts:
    """Estimates, by the number of characters."""

    def __init__(self, item_store: ItemStore, known: ResultCache[None, int]) -> None:
        self._item_store = item_store
        self._known = known

    def of(self, text: str) -> int:
        """The tokens of a text."""
        return -(-len(text) // CHARACTERS_PER_TOKEN)

    async def of_everything(self) -> int:
        """The tokens of the names, descriptions and schemas of all tools, prompts and resources."""
        known = self._known.find(None)
        if known is None:
            at = self._known.now()
            known = -(-await self._item_store.count_definition_characters() // CHARACTERS_PER_TOKEN)
            self._known.keep(None, known, at)
        return known
