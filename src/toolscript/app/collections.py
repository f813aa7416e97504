"""Opens the collections of an index, and decides what happens to those that another model has filled."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from toolscript.domain.search import Collection
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.services.catalogue.skill_points import skills_collection
from toolscript.services.catalogue.tool_points import tools_collection
from toolscript.services.documents.points import DOCUMENTS, documents_collection
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS

log = logging.getLogger(__name__)


async def drop_collections(index: VectorIndex, names: Iterable[str]) -> None:
    """Drops the collections of these names."""
    for name in names:
        await index.drop(name)


async def find_text_model(index: VectorIndex) -> str | None:
    """The model that documents or knowledge are indexed with, if there are any."""
    for name in (DOCUMENTS, CHUNKS, EXTRACTIONS):
        existing = await index.describe(name)
        if existing and existing.model != "none" and not await _is_empty(index, existing):
            return existing.model
    return None


async def open_collections(
    index: VectorIndex, embedder: Embedder | None, text_embedder: Embedder | None, *, shared: bool
) -> None:
    """Opens the collections. Tools and skills that another model indexed are dropped, and the next sync indexes them
    again. Documents are kept, and so is everything on a shared server: there opening raises Invalid."""
    for build, own in (
        (tools_collection, embedder),
        (skills_collection, embedder),
        (documents_collection, text_embedder),
    ):
        collection = build(own.model, own.dimensions) if own else build("none", 1)
        existing = await index.describe(collection.name)
        if existing and own and existing.model != collection.model:
            may_drop = not shared and (existing.name != DOCUMENTS or await _is_empty(index, existing))
            if existing.model == "none" or may_drop:
                log.info("index_of_another_model_dropped", extra={"collection": existing.name, "model": existing.model})
                await index.drop(collection.name)
        await index.open(collection if own or not existing else existing)


async def _is_empty(index: VectorIndex, existing: Collection) -> bool:
    await index.open(existing)
    return await index.count(existing.name) == 0
