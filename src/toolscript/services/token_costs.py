"""What reading costs an agent: how many tokens of its context a text takes, and how many all tools would have taken."""

from __future__ import annotations

from toolscript.ports import CatalogStore

# What the tokenizers of large language models make of English and JSON, on average: near enough to compare two texts.
CHARACTERS_PER_TOKEN = 4


class TokenCosts:
    """Estimates, by the number of characters."""

    def __init__(self, catalog: CatalogStore) -> None:
        self._catalog = catalog
        self._everything: int | None = None

    def changed(self) -> None:
        """To be called when the catalogue has changed."""
        self._everything = None

    def of(self, text: str) -> int:
        """The tokens of a text."""
        return -(-len(text) // CHARACTERS_PER_TOKEN)

    async def of_everything(self) -> int:
        """The tokens of the names, descriptions and schemas of all tools, prompts and resources."""
        if self._everything is None:
            self._everything = -(-await self._catalog.size_of_definitions() // CHARACTERS_PER_TOKEN)
        return self._everything
