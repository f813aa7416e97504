"""Brings everything up to date on request: what servers offer, the classification, the index."""

from __future__ import annotations

from dataclasses import dataclass

from toolscript.domain.catalog import SuggestionStatus
from toolscript.ports.stores import ItemStore, SkillStore
from toolscript.services.catalogue.gateway import Gateway
from toolscript.services.catalogue.server_connection import RefreshResult
from toolscript.services.catalogue.sync import Sync
from toolscript.services.support.concurrency import Progress


@dataclass(frozen=True, slots=True)
class ResyncReport:
    """What a resync did: per server, then for the whole catalogue."""

    servers: list[RefreshResult]
    items: int
    classified: int
    refined: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Resync:
    """Lists every connected server again and brings catalogue and index up to date."""

    gateway: Gateway
    sync: Sync
    item_store: ItemStore
    skill_store: SkillStore

    async def run(
        self,
        *,
        reclassify: bool = False,
        force: bool = False,
        just_connected: bool = False,
        progress: Progress | None = None,
    ) -> ResyncReport:
        """With `reclassify` every item is classified again, with `force` also those that a person assigned. Servers
        that are `just_connected` were listed already: the report has those results."""
        refined_before = 0 if just_connected else self.sync.refinement.refined
        servers = self.gateway.last_refreshes if just_connected else await self.gateway.refresh()
        everything = reclassify or force
        done = await self.sync.reclassify(
            None if everything else (), force=force, replace_model=everything, progress=progress
        )
        items = [item.id for item in await self.item_store.get_fingerprints() if item.is_active]
        await self.sync.refinement.run(items if everything else None, progress=progress)
        waiting = await self.skill_store.list_suggestions(SuggestionStatus.PENDING)
        classified = done.classified + sum(r.report.classified for r in servers if r.report)
        refined = self.sync.refinement.refined - refined_before  # includes items refined while servers were listed
        return ResyncReport(servers, len(items), classified, refined, len(waiting))
