"""Everything brought up to date on request: what the servers offer, how it is sorted into skills, the index."""

from __future__ import annotations

from dataclasses import dataclass

from toolscript.domain.catalog import SuggestionStatus
from toolscript.ports.stores import ItemStore, SkillStore
from toolscript.services.catalogue.gateway import Gateway
from toolscript.services.catalogue.indexing import Progress
from toolscript.services.catalogue.server_connection import RefreshResult
from toolscript.services.catalogue.sync import Sync


@dataclass(frozen=True, slots=True)
class ResyncReport:
    """What was found and done: per server, then over the whole catalogue."""

    servers: list[RefreshResult]
    items: int
    classified: int
    refined: int
    waiting: int


class Resync:
    """Asks every connected server anew, and leaves nothing behind."""

    def __init__(self, gateway: Gateway, sync: Sync, item_store: ItemStore, skill_store: SkillStore) -> None:
        self._gateway = gateway
        self._sync = sync
        self._item_store = item_store
        self._skill_store = skill_store

    async def run(
        self,
        *,
        reclassify: bool = False,
        force: bool = False,
        just_connected: bool = False,
        progress: Progress | None = None,
    ) -> ResyncReport:
        """With `reclassify` every item is sorted anew; what a person decided only with `force`, too. Servers that were
        `just_connected` have been asked already: what that has led to is told."""
        refined_before = 0 if just_connected else self._sync.refinement.refined
        servers = self._gateway.last_refreshes if just_connected else await self._gateway.refresh()
        everything = reclassify or force
        done = await self._sync.reclassify(
            None if everything else (), force=force, replace_model=everything, progress=progress
        )
        items = [m.id for m in await self._item_store.get_fingerprints() if m.is_active]
        await self._sync.refinement.run(items if everything else None, progress=progress)
        waiting = await self._skill_store.list_suggestions(SuggestionStatus.PENDING)
        classified = done.classified + sum(r.report.classified for r in servers if r.report)
        refined = self._sync.refinement.refined - refined_before  # some of it while the servers were asked
        return ResyncReport(servers, len(items), classified, refined, len(waiting))
