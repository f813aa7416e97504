"""Estimates how many tokens of an agent's context a text takes, and how many all tools together would take."""

from __future__ import annotations

import json

from toolscript.domain.profiles import Profile
from toolscript.domain.requests import current_request
from toolscript.ports.stores import ItemStore
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.visibility import View, Visibility

# The average of large language models' tokenizers for English and JSON: good enough to compare two texts.
CHARACTERS_PER_TOKEN = 4


class TokenCosts:
    """Estimates by the number of characters."""

    def __init__(self, item_store: ItemStore, snapshots: CatalogueSnapshots, visibility: Visibility) -> None:
        self._visibility = visibility
        self._item_store = item_store
        self._snapshots = snapshots
        self._totals: dict[Profile | None, tuple[int, int]] = {}
        """The version of the catalogue, and the tokens of what a profile shows of it."""

    def of(self, text: str) -> int:
        return estimate_tokens(len(text))

    async def of_everything(self) -> int:
        """The tokens of the names, descriptions and schemas of all tools, prompts and resources that the caller may
        see."""
        view = await self._visibility.find_view(current_request())
        version = self._snapshots.current().version
        known, tokens = self._totals.get(view.profile, (0, 0))
        if known != version:
            tokens = estimate_tokens(await self._count_characters(view))
            self._totals = {**self._totals, view.profile: (version, tokens)}
        return tokens

    async def _count_characters(self, view: View) -> int:
        if view.ids is None:
            return await self._item_store.count_definition_characters()
        facts = (await self._snapshots.current().facts()).items
        definitions = ([facts[i].name, facts[i].description, *facts[i].schemas[:2]] for i in view.ids if i in facts)
        return sum(len(json.dumps(definition, ensure_ascii=False)) for definition in definitions)


def estimate_tokens(characters: int) -> int:
    """The tokens of a text with that many characters."""
    return -(-characters // CHARACTERS_PER_TOKEN)
