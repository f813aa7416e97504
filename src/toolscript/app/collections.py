"""Opens the collections of an index, and decides what happens to collections that another model has filled."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress

from toolscript.adapters.onnx.model_folders import find_model_card
from toolscript.app.catalogue_use import CatalogueUse
from toolscript.domain.errors import IndexDamaged, Invalid
from toolscript.domain.search import Collection
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.services.catalogue.item_points import TOOLS, tools_collection
from toolscript.services.catalogue.skill_points import SKILLS, skills_collection
from toolscript.services.documents.points import DOCUMENTS, documents_collection
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS

ALL = (TOOLS, SKILLS, DOCUMENTS, CHUNKS, EXTRACTIONS)

log = logging.getLogger(__name__)


async def drop_collections(index: VectorIndex, names: Iterable[str], *, damaged: bool) -> None:
    """Drops the collections of these names. With `damaged` drops damaged collections, too: a gateway fills them from
    the store again."""
    for name in names:
        await index.drop(name)
    if damaged:
        await _drop_damaged(index)


async def _drop_damaged(index: VectorIndex) -> None:
    for name in ALL:
        try:
            existing = await index.describe(name)
            if existing:
                await _is_empty(index, existing)
        except IndexDamaged as error:
            log.warning("damaged_index_rebuilt_from_the_store", extra={"collection": name, "reason": error.message})
            with suppress(OSError):  # it stays closed then
                await index.drop(name)


async def find_text_model(index: VectorIndex) -> str | None:
    """The model that documents or knowledge are indexed with, if there are any that can be read."""
    for name in (DOCUMENTS, CHUNKS, EXTRACTIONS):
        with suppress(IndexDamaged):
            existing = await index.describe(name)
            if existing and existing.model != "none" and not await _is_empty(index, existing):
                return existing.model
    return None


async def open_collections(
    index: VectorIndex,
    embedder: Embedder | None,
    text_embedder: Embedder | None,
    *,
    shared: bool,
    catalogue: CatalogueUse = "change",
) -> None:
    """Opens the collections. With `change`, tools and skills that another model indexed are dropped, and the next sync
    indexes them again; with `read` opening raises Invalid, and with `leave` they stay. Documents are kept, and so is
    everything on a shared server: there opening raises Invalid. Damaged collections stay closed, and using them raises
    IndexDamaged."""
    for build, own in (
        (tools_collection, embedder),
        (skills_collection, embedder),
        (documents_collection, text_embedder),
    ):
        collection = build(own.model, own.dimensions) if own else build("none", 1)
        with suppress(IndexDamaged):
            existing = await index.describe(collection.name)
            is_left = catalogue == "leave" and collection.name in {TOOLS, SKILLS}
            if existing and own and existing.model != collection.model and not is_left:
                if catalogue == "read" and collection.name == TOOLS and not _is_former_name(existing.model, own):
                    await _require_empty(index, existing, own)
                await _drop_other_model(index, existing, shared=shared)
            await index.open(existing if existing and (is_left or not own) else collection)


def _is_former_name(model: str, embedder: Embedder) -> bool:
    """Whether a collection has vectors of older weights of the same model, which even commands that read replace."""
    card = find_model_card(model)
    return card is not None and card.name == embedder.model


async def _require_empty(index: VectorIndex, existing: Collection, embedder: Embedder) -> None:
    """Raises Invalid when another model has indexed tools: a command that reads must not replace their vectors."""
    if existing.model == "none" or await _is_empty(index, existing):
        return
    raise Invalid(
        f"the tools of this catalogue are indexed with the model {existing.model}, not with {embedder.model}: search "
        f"with that one (TOOLSCRIPT_SEARCH_MODEL={existing.model}), or index them again with `toolscript index rebuild "
        f"--model {embedder.model}`",
        details={"field": "TOOLSCRIPT_SEARCH_MODEL", "allowed": [existing.model]},
    )


async def _drop_other_model(index: VectorIndex, existing: Collection, *, shared: bool) -> None:
    may_drop = not shared and (existing.name != DOCUMENTS or await _is_empty(index, existing))
    if existing.model == "none" or may_drop:
        log.info("index_of_another_model_dropped", extra={"collection": existing.name, "model": existing.model})
        await index.drop(existing.name)


async def _is_empty(index: VectorIndex, existing: Collection) -> bool:
    await index.open(existing)
    return await index.count(existing.name) == 0
