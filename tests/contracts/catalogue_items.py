"""Items for the contract tests of the item and skill stores, and what those tests read."""

from __future__ import annotations

from toolscript.domain.catalog import Item, ItemFingerprint, ItemType, SuggestionStatus
from toolscript.ports.stores import ItemStore, SkillStore

READ = Item(
    "files",
    "read",
    "Read a file",
    input_schema={"type": "object", "properties": {"z": {}, "a": {"enum": [1, None, "x"]}}, "required": ["z"]},
    output_schema={"type": "string"},
    annotations={"readOnlyHint": True},
    title="Reader",
)
WRITE = Item("files", "write")
PROMPT = Item("files", "read", "A prompt of the same name", type=ItemType.PROMPT)
TERMS = frozenset({1, 2, 4_000_000})
PENDING = SuggestionStatus.PENDING


async def get_fingerprint(item_store: ItemStore, item: Item) -> ItemFingerprint:
    return next(m for m in await item_store.get_fingerprints() if m.id == item.id)


async def list_pending(skill_store: SkillStore) -> list[tuple[str, str | None]]:
    return [(s.name, s.source_item_id) for s in await skill_store.list_suggestions(PENDING)]
