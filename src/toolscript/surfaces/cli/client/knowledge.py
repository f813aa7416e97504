"""Where knowledge is kept, opened to be written: embedded, nobody else may have it at the same time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolscript.domain.errors import Unavailable
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.gateway import address, ask

if TYPE_CHECKING:
    from toolscript.services.knowledge.ingest import IngestKnowledge
    from toolscript.services.knowledge.transfer import ImportKnowledge


@dataclass(frozen=True, slots=True)
class Library:
    """What writes knowledge."""

    ingest: IngestKnowledge
    imports: ImportKnowledge


@asynccontextmanager
async def open_to_write(settings: Settings) -> AsyncIterator[Library]:
    """What writes knowledge, for as long as the block lasts. Raises Unavailable while a gateway has the data folder."""
    if not settings.index and ask(settings, "/health") is not None:
        raise Unavailable(
            f"the gateway at {address(settings.data)} holds {settings.data}, and knowledge is written only while "
            "nobody serves from there: stop the gateway, run this again, and start it anew",
            details={"folder": str(settings.data)},
        )
    from toolscript.app.app import open_app  # --help must not wait for engines to load

    async with open_app(settings) as app:
        if app.ingest_knowledge and app.import_knowledge:  # only an application that serves has none
            yield Library(app.ingest_knowledge, app.import_knowledge)
