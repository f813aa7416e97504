"""Builds what finds and calls tools."""

from __future__ import annotations

from toolscript.app.access import AccessServices
from toolscript.app.catalogue import CatalogueServices
from toolscript.app.observability import Observability
from toolscript.app.servers import ServerServices
from toolscript.app.stores import Stores
from toolscript.app.texts import TextServices
from toolscript.domain.access import ApprovalPolicy
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.schemas import ArgumentChecker
from toolscript.services.servers.starting_servers import StartingServers
from toolscript.services.support.call_log import CallLog
from toolscript.services.tools.approval import Approvals
from toolscript.services.tools.call import CallTool
from toolscript.services.tools.feedback import Feedback
from toolscript.services.tools.hierarchical_search import HierarchicalSearch
from toolscript.services.tools.hybrid_search import ToolSearch
from toolscript.services.tools.listing import ListTools
from toolscript.services.tools.native import NativeItems
from toolscript.services.tools.native_changes import NativeChanges
from toolscript.services.tools.overview import ToolOverviews
from toolscript.services.tools.ranking import ToolRanking
from toolscript.services.tools.token_costs import TokenCosts
from toolscript.services.tools.tool_map import DrawToolMap
from toolscript.services.tools.variants import Variants
from toolscript.settings import Settings


class ToolServices:
    """The use cases of `services/tools`."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        index: VectorIndex,
        checker: ArgumentChecker,
        observability: Observability,
        access: AccessServices,
        catalogue: CatalogueServices,
        servers: ServerServices,
        texts: TextServices,
    ) -> None:
        snapshots, visibility, gateway = catalogue.snapshots, catalogue.visibility, servers.gateway
        events = observability.events
        self.ranking = ToolRanking(
            catalogue.retriever, snapshots.capabilities, alpha=settings.search_alpha, find_view=visibility.find_view
        )
        variants = Variants(gateway.find_spec, gateway.get_position, lambda: gateway.version)
        starting = StartingServers(gateway, visibility)
        self.search = ToolSearch(
            self.ranking,
            snapshots,
            starting=starting,
            variants=variants,
            events=events,
            count_lacking_vectors=catalogue.sync.count_lacking_vectors,
        )
        self.hierarchical_search = HierarchicalSearch(
            self.ranking,
            snapshots,
            starting=starting,
            variants=variants,
            count_by_skill=visibility.count_by_skill,
            events=events,
        )
        self.approvals = Approvals(
            ApprovalPolicy(settings.approval), gateway.get_approval, visibility, stores.approvals
        )
        self.call = CallTool(
            stores.items,
            snapshots,
            gateway,
            self.search,
            checker,
            events,
            observability.span,
            digests_arguments=settings.audit_arguments == "digest",
            visibility=visibility,
            approvals=self.approvals,
        )
        self.call_log = CallLog(observability.audit)
        self.feedback = Feedback(
            stores.feedback, stores.items, self.call, catalogue.sync.learning, is_on=settings.feedback
        )
        self.listing = ListTools(stores.items, visibility)
        self.native = NativeItems(snapshots, gateway, events, visibility, catalogue.quarantine)
        self.overviews = ToolOverviews(snapshots, gateway, visibility, catalogue.skills, access.profiles.all)
        self.native_changes = NativeChanges(
            snapshots, gateway, self.native, self.overviews, texts.contents, visibility.find_view
        )
        access.profiles.watch(self.native_changes.compare_lists)
        self.token_costs = TokenCosts(stores.items, snapshots, visibility)
        self.tool_map = DrawToolMap(index, snapshots, visibility.find_view)
