"""What searches and calls do while servers are still starting: they wait for servers without stored tools, and name
missing servers. Callers learn of no server that their profile may hide."""

from __future__ import annotations

from dataclasses import dataclass

from toolscript.domain.catalog import Item
from toolscript.domain.requests import current_request
from toolscript.domain.search import SearchPart, SearchReport
from toolscript.services.catalogue.visibility import Visibility
from toolscript.services.servers.gateway import Gateway


@dataclass(frozen=True, slots=True)
class StartingServers:
    """The servers that are still starting and that the catalogue has nothing of."""

    gateway: Gateway
    visibility: Visibility

    def list_names(self) -> list[str]:
        """Their names, for the caller of the current request."""
        context = current_request()
        return [name for name in self.gateway.starting if self.visibility.shows_unlisted(Item(name, ""), context)]

    def add_to(self, report: SearchReport) -> None:
        """Notes in the report of a search that tools are missing, and their servers."""
        if self.gateway.is_incomplete:
            report.degrade(SearchPart.CATALOGUE)
            report.servers_starting = self.list_names()

    async def wait_for_item(self, item_id: str) -> None:
        """Waits until the server of an item that is not in the catalogue is listed for the first time or has failed, at
        most as long as a call may take."""
        server, _, name = item_id.partition("__")
        if self.visibility.shows_unlisted(Item(server, name), current_request()):
            await self.gateway.settle(self.gateway.call_timeout, server)
