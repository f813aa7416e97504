"""Removes sources of knowledge: through the gateway that runs on the data folder, or in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolscript.domain.errors import NotFound
from toolscript.surfaces.cli.client.session import CommandSession

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.knowledge import Source


async def list_sources(session: CommandSession) -> list[Source]:
    """All sources, read from the store itself."""
    from toolscript.app.app import open_library

    if session.app:
        return await session.app.stores.knowledge.list_sources()
    async with open_library(session.settings) as library:
        return await library.list_sources()


async def remove_source(session: CommandSession, source_id: str) -> None:
    """Removes a source with its chunks and extractions; one that is gone already is ignored."""

    async def local(app: App) -> None:
        await app.texts.ingest_knowledge.remove(source_id)

    path = f"/api/v1/knowledge/sources/{source_id}"
    try:
        await session.request(path, local, method="DELETE", tenant=session.settings.tenant)
    except NotFound:
        return


async def remove_gone_sources(session: CommandSession, roots: Sequence[Path]) -> int:
    """Removes sources of files below these folders that are gone. Returns how many."""
    gone = [source for source in await list_sources(session) if _is_gone(Path(source.path), roots)]
    for source in gone:
        await remove_source(session, source.id)
    return len(gone)


def _is_gone(path: Path, roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots) and not path.exists()
