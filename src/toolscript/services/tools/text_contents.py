"""Whether there is anything to find in documents and knowledge: agents are offered no search that finds nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits
from toolscript.ports.stores import DocumentStore, KnowledgeReader


@dataclass(frozen=True, slots=True)
class TextContents:
    """What a caller could find."""

    has_documents: bool = True
    has_knowledge: bool = True


class FindTextContents:
    """Reads the stores. One that does not answer counts as one that has something."""

    def __init__(self, documents: DocumentStore, knowledge: KnowledgeReader) -> None:
        self._documents = documents
        self._knowledge = knowledge

    async def read(self, tenant: str | None) -> TextContents:
        """What there is for the tenant; None for callers without documents."""
        return TextContents(*await asyncio.gather(self._has_documents(tenant), self._has_knowledge()))

    async def _has_documents(self, tenant: str | None) -> bool:
        if tenant is None:
            return False
        try:
            async with asyncio.timeout(current_limits().text_contents):
                return bool(await self._documents.list_ids(tenant, limit=1))
        except (TimeoutError, Unavailable):
            return True

    async def _has_knowledge(self) -> bool:
        try:
            async with asyncio.timeout(current_limits().text_contents):
                return await self._knowledge.has_sources()
        except (TimeoutError, Unavailable):
            return True
