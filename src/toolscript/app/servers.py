"""Builds what connects to the configured servers, and logs in there."""

from __future__ import annotations

from toolscript.app.access import AccessServices
from toolscript.app.catalogue import CatalogueServices
from toolscript.app.engines import open_admission, open_gateway, open_servers
from toolscript.app.observability import Observability
from toolscript.app.stores import Stores
from toolscript.ports.access import RateBuckets
from toolscript.services.access.login_flows import LoginFlows
from toolscript.services.access.logins import Logins
from toolscript.services.access.own_logins import OwnLogins
from toolscript.services.servers.gateway import Resync
from toolscript.services.support.server_changes import ServerChanges
from toolscript.settings import Settings


class ServerServices:
    """The use cases of `services/servers`, and the logins of `services/access`."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        logins: Logins,
        buckets: RateBuckets,
        observability: Observability,
        access: AccessServices,
        catalogue: CatalogueServices,
        *,
        demo: bool,
    ) -> None:
        self.changes = ServerChanges(observability.events)
        self.login_flows = LoginFlows(logins, self.changes)
        self.admission = open_admission(settings, buckets, access.profiles.find)
        self.connections = open_servers(settings, logins)
        self.gateway = gateway = open_gateway(settings, self.connections, catalogue.sync, self.admission, demo=demo)
        if observability.metrics:
            observability.metrics.watch_servers(lambda: gateway.statuses)
        self.own_logins = OwnLogins(logins, lambda: gateway.specs, catalogue.visibility.shows_server)
        self.resync = Resync(gateway, catalogue.sync, stores.items, stores.skills)
