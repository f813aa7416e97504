"""The composition root: builds the application that the settings describe. The only module that knows every adapter."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from toolscript.adapters.json_schema.checker import WorkerChecker
from toolscript.adapters.models.vector_cache_files import EmbeddingFiles
from toolscript.adapters.sql.access.approvals import SqlApprovals
from toolscript.adapters.sql.access.keys import SqlKeys
from toolscript.adapters.sql.access.rate_buckets import PostgresBuckets
from toolscript.adapters.sql.catalogue_version import SqlCatalogueVersion
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.adapters.sql.feedback import SqlFeedback
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.jobs import SqlJobs
from toolscript.adapters.sql.pins import SqlPins
from toolscript.adapters.sql.results import SqlResults
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.adapters.sql.workflows import SqlWorkflows
from toolscript.adapters.storage.private_files import make_private_folder, restrict_tree
from toolscript.app.access import SignIns, Verifier, check_environment, local_token
from toolscript.app.catalogue_use import CatalogueUse, seed_skills
from toolscript.app.code import CodeMode
from toolscript.app.collections import ALL, drop_collections, find_text_model, open_collections
from toolscript.app.engines import open_admission, open_gateway, open_index, open_language_model, open_reranker
from toolscript.app.ingest import build_jobs, build_knowledge_import, build_knowledge_ingest
from toolscript.app.knowledge import open_library, open_reader, open_store, store_url
from toolscript.app.logins import build_logins
from toolscript.app.models import Model, open_model, open_text_model
from toolscript.app.observability import Observability, open_observability
from toolscript.app.registry import RegistryCatalogue, open_registry
from toolscript.domain.access import ApprovalPolicy
from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.servers import TrustPolicy
from toolscript.ports.access import ApprovalStore, KeyStore, RateBuckets, TokenVerifier
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.jobs import JobStore
from toolscript.ports.models import Embedder, LanguageModel, Reranker
from toolscript.ports.results import ResultStore
from toolscript.ports.schemas import ArgumentChecker
from toolscript.ports.stores import (
    CatalogueVersion,
    DocumentStore,
    FeedbackStore,
    ItemStore,
    KnowledgeReader,
    KnowledgeStore,
    PinStore,
    SkillStore,
)
from toolscript.ports.workflows import WorkflowStore
from toolscript.retrieval.capabilities import load_capabilities
from toolscript.retrieval.retriever import Retriever
from toolscript.services.access.keys import Keys
from toolscript.services.access.login_flows import LoginFlows
from toolscript.services.access.logins import Logins
from toolscript.services.access.own_logins import OwnLogins
from toolscript.services.access.plans import Plans, load_plans
from toolscript.services.access.profiles import Profiles
from toolscript.services.access.rates import Buckets, Rates
from toolscript.services.catalogue.item_points import TOOLS, WITHOUT_PASSAGES
from toolscript.services.catalogue.skill_points import SKILLS
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.sync import Sync
from toolscript.services.catalogue.tool_steps import ToolSteps
from toolscript.services.catalogue.visibility import Visibility
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.page_tokens import PageTokens
from toolscript.services.documents.points import DOCUMENTS
from toolscript.services.documents.search import DocumentSearch
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS
from toolscript.services.knowledge.search import KnowledgeSearch
from toolscript.services.results.large_results import LargeResults
from toolscript.services.servers.gateway import Gateway, Resync
from toolscript.services.servers.starting_servers import StartingServers
from toolscript.services.skills.embedding_classifier import EmbeddingClassifier
from toolscript.services.skills.llm_classifier import LlmClassifier
from toolscript.services.skills.proposals import ProposeSkills
from toolscript.services.skills.skills import Skills
from toolscript.services.support.call_log import CallLog
from toolscript.services.support.index_sizes import count_points
from toolscript.services.support.refusals import Refusals
from toolscript.services.support.server_changes import ServerChanges
from toolscript.services.support.shares import MAX_SEARCHES, Shares
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
from toolscript.services.tools.text_contents import FindTextContents
from toolscript.services.tools.token_costs import TokenCosts
from toolscript.services.tools.tool_map import DrawToolMap
from toolscript.services.tools.variants import Variants
from toolscript.services.trust.definition_reader import DefinitionReader
from toolscript.services.trust.screening import Screening
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.services.ingest.jobs import IngestJobs
    from toolscript.services.ingest.runner import JobRunner
    from toolscript.services.knowledge.ingest import IngestKnowledge
    from toolscript.services.knowledge.transfer import ImportKnowledge

__all__ = ["App", "Model", "local_token", "open_app", "open_library"]

log = logging.getLogger(__name__)


class Closable(Protocol):
    """Something that has to be closed in the end."""

    async def close(self) -> None: ...


@dataclass(kw_only=True, eq=False)
class App:
    """What the settings name, and every use case over it."""

    settings: Settings
    model: Model
    text_model: Model
    """That of documents and knowledge: the same, unless that of tools is trained for tools or the settings name one."""
    index: VectorIndex
    catalogue_index: VectorIndex
    """The index of tools and skills: that of everything else, too, unless this is the demo."""
    item_store: ItemStore
    skill_store: SkillStore
    feedback_store: FeedbackStore
    pin_store: PinStore
    result_store: ResultStore
    workflow_store: WorkflowStore
    documents: DocumentStore
    key_store: KeyStore
    approval_store: ApprovalStore
    logins: Logins
    knowledge: KnowledgeReader
    knowledge_store: KnowledgeStore
    """For ingestion; searches use `knowledge`, which only reads."""
    job_store: JobStore
    registry: RegistryCatalogue
    language_model: LanguageModel | None
    reranker: Reranker | None
    argument_checker: ArgumentChecker
    observability: Observability
    rate_buckets: RateBuckets
    catalogue_version: CatalogueVersion | None
    """None where no other process writes to the index or the store."""

    def __post_init__(self) -> None:
        """Builds the use cases. Raises Invalid for unusable keys or plans."""
        settings = self.settings
        self.local_key = secrets.token_urlsafe(32)  # signs the tokens of this machine's own commands
        self.verifier: TokenVerifier = Verifier(settings, self.local_key)
        self.sign_ins = SignIns(self.local_key, settings.tenant)
        self.keys = Keys(self.key_store)
        self.server_changes = ServerChanges(self.observability.events)
        self.login_flows = LoginFlows(self.logins, self.server_changes)
        self.plans = Plans(load_plans(settings.plans), self.rate_buckets)
        self.profiles = Profiles()
        self.admission = open_admission(settings, self.rate_buckets, self.profiles.find)
        self.search_shares = Shares("searches", MAX_SEARCHES)
        self.text_contents = FindTextContents(self.documents, self.knowledge)
        self.knowledge_rates = Rates(settings.knowledge_rate, self.rate_buckets)
        self.call_log = CallLog(self.observability.audit)
        self.refusals = Refusals(self.observability.events, Buckets())
        self._build_tool_services(Retriever(self.model.embedder, self.catalogue_index))
        self._build_text_services(Retriever(self.text_model.embedder, self.index))
        self.own_logins = OwnLogins(self.logins, lambda: self.gateway.specs, self.visibility.shows_server)
        self.profiles.watch(self.native_changes.compare_lists)
        self.code = CodeMode(self)

    def _build_gateway(self, settings: Settings) -> Gateway:
        is_demo, workflows = self.catalogue_index is not self.index, lambda: self.code.workflow_server
        return open_gateway(settings, self.sync, self.logins, self.admission, workflows, demo=is_demo)

    def _build_tool_services(self, retriever: Retriever) -> None:
        settings, items, skills, observability = self.settings, self.item_store, self.skill_store, self.observability
        self.snapshots = self._build_snapshots(retriever)
        self.sync = self._build_sync()
        self.gateway = gateway = self._build_gateway(settings)
        if observability.metrics:
            observability.metrics.watch_servers(lambda: gateway.statuses)
        visibility = Visibility(self.profiles.find, self.snapshots, items, read_only=settings.read_only)
        self.visibility = visibility
        self.approvals = Approvals(
            ApprovalPolicy(settings.approval), gateway.get_approval, visibility, self.approval_store
        )
        self.tool_ranking = ToolRanking(
            retriever, self.snapshots.capabilities, alpha=settings.search_alpha, find_view=visibility.find_view
        )
        self.tool_search, self.hierarchical_search = self._build_tool_searches(gateway)
        observability.watch_caches(self.model, self.text_model, self.tool_search, self.hierarchical_search)
        self.call_tool = CallTool(
            items,
            self.snapshots,
            gateway,
            self.tool_search,
            self.argument_checker,
            observability.events,
            observability.span,
            digests_arguments=settings.audit_arguments == "digest",
            visibility=visibility,
            approvals=self.approvals,
        )
        self.feedback = Feedback(
            self.feedback_store, items, self.call_tool, self.sync.learning, is_on=settings.feedback
        )
        self.list_tools = ListTools(items, visibility)
        self.quarantine = self.sync.open_review(self.pin_store)
        self.native = NativeItems(self.snapshots, gateway, observability.events, visibility, self.quarantine)
        self.skills = Skills(
            items, skills, self.sync, find_view=visibility.find_view, count_by_skill=visibility.count_by_skill
        )
        self.tool_overviews = ToolOverviews(self.snapshots, gateway, visibility, self.skills, self.profiles.all)
        self.native_changes = NativeChanges(
            self.snapshots, gateway, self.native, self.tool_overviews, self.text_contents, visibility.find_view
        )
        self.propose_skills = ProposeSkills(
            items, skills, self.catalogue_index, self.model.embedder, self.language_model
        )
        self.resync = Resync(gateway, self.sync, items, skills)
        self.token_costs = TokenCosts(items, self.snapshots, visibility)
        self.tool_map = DrawToolMap(self.catalogue_index, self.snapshots, visibility.find_view)

    def _build_text_services(self, retriever: Retriever) -> None:
        index, embedder, observability = self.index, self.text_model.embedder, self.observability
        self.large_results = LargeResults(
            self.result_store, embedder, self.settings.result_tokens, self.visibility.find_profile
        )
        self.document_search = self._build_document_search(retriever)
        self.knowledge_search = KnowledgeSearch(
            retriever,
            index,
            self.knowledge,
            observability.events,
            language_model=self.language_model,
            span=observability.span,
        )
        self.ingest_documents = IngestDocuments(self.documents, index, embedder)

    @cached_property
    def ingest_knowledge(self) -> IngestKnowledge:
        return build_knowledge_ingest(self.knowledge_store, self.index, self.text_model.embedder, self.language_model)

    @cached_property
    def import_knowledge(self) -> ImportKnowledge:
        return build_knowledge_import(self.knowledge_store, self.index, self.text_model.embedder, self.ingest_knowledge)

    @cached_property
    def _ingestion(self) -> tuple[IngestJobs, JobRunner]:
        return build_jobs(self.settings, self.job_store, self.ingest_documents, self.ingest_knowledge)

    @property
    def jobs(self) -> IngestJobs:
        return self._ingestion[0]

    @property
    def job_runner(self) -> JobRunner:
        return self._ingestion[1]

    async def count_indexed_tools(self) -> int:
        """The number of tools, prompts and resources in the index."""
        return await self.catalogue_index.count(TOOLS, WITHOUT_PASSAGES)

    async def count_points(self) -> dict[str, int]:
        """The sizes of the collections of the index that are open."""
        texts = dict.fromkeys((DOCUMENTS, CHUNKS, EXTRACTIONS), self.index)
        return await count_points(dict.fromkeys((TOOLS, SKILLS), self.catalogue_index) | texts)

    async def check_ready(self) -> None:
        """Raises Unavailable when the store or the index does not respond in time."""
        seconds = current_limits().probe
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(self.item_store.ping(), self.catalogue_index.count(TOOLS))
        except TimeoutError:
            raise Unavailable(f"the store or the index does not answer within {seconds:g} seconds") from None

    def _build_tool_searches(self, gateway: Gateway) -> tuple[ToolSearch, HierarchicalSearch]:
        ranking, snapshots, events = self.tool_ranking, self.snapshots, self.observability.events
        variants = Variants(gateway.find_spec, gateway.get_position, lambda: gateway.version)
        starting, counted = StartingServers(gateway, self.visibility), self.visibility.count_by_skill
        lacking = self.sync.count_lacking_vectors
        return (
            ToolSearch(
                ranking, snapshots, starting=starting, variants=variants, events=events, count_lacking_vectors=lacking
            ),
            HierarchicalSearch(
                ranking, snapshots, starting=starting, variants=variants, count_by_skill=counted, events=events
            ),
        )

    def _build_snapshots(self, retriever: Retriever) -> CatalogueSnapshots:
        return CatalogueSnapshots(
            self.item_store,
            self.catalogue_index,
            retriever.similarity,
            steps=ToolSteps(self.feedback_store, retriever.model or "", is_on=self.settings.feedback),
            capabilities=load_capabilities(self.settings.search_capabilities),
        )

    def _build_sync(self) -> Sync:
        settings = self.settings
        embedder, language_model = self.model.embedder, self.language_model
        return Sync(
            self.item_store,
            self.skill_store,
            self.catalogue_index,
            embedder,
            cache=None if settings.search_no_cache else EmbeddingFiles(settings.data / "cache" / "embeddings"),
            classifier=EmbeddingClassifier(embedder) if embedder else None,
            refiner=LlmClassifier(language_model) if language_model else None,
            on_change=self.snapshots.advance,
            version=self.catalogue_version,
            configuration=str(settings.config.expanduser().absolute()) if settings.config else "",
            feedback=self.feedback_store,
            learns=settings.feedback,
            screening=Screening(self.pin_store, self.item_store, policy=TrustPolicy(settings.quarantine)),
            reader=DefinitionReader(language_model) if language_model else None,
        )

    def _build_document_search(self, retriever: Retriever) -> DocumentSearch:
        return DocumentSearch(
            retriever,
            self.index,
            self.documents,
            self.plans,
            PageTokens((self.settings.page_secret or secrets.token_urlsafe(32)).encode()),
            self.observability.events,
            reranker=self.reranker,
            span=self.observability.span,
        )


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    fresh_index: bool = False,
    serving: bool = False,
    demo: bool = False,
    catalogue: CatalogueUse = "change",
) -> AsyncIterator[App]:
    """Opens everything that the settings name, and closes it in the end.

    With `fresh_index` the collections are dropped first, so that another model may fill them. `serving` opens what only
    a server needs. With `demo` tools and skills come from the folder `demo` of the data folder; documents and knowledge
    stay real. Skills and index of the catalogue follow the settings. A command that only reads (`catalogue="read"`) is
    refused where that would replace other skills or indexes; a command about documents or knowledge ("leave") changes
    neither. Raises Invalid or Unavailable, naming what cannot be opened.
    """
    check_environment(settings)
    async with AsyncExitStack() as stack:
        app = await _open_adapters(
            settings, stack, fresh_index=fresh_index, serving=serving, demo=demo, catalogue=catalogue
        )
        _close_at_exit(
            stack,
            app.logins,
            app.login_flows,
            app.snapshots,
            app.sync,
            app.gateway,
            app.verifier,
            app.keys,
            app.feedback,
            app.native_changes,
            app.code,
        )
        await seed_skills(app.skill_store, settings, catalogue)
        if app.catalogue_version:
            app.snapshots.start_following(app.catalogue_version)
        if serving:
            await app.keys.load()
            gateway = app.gateway
            app.logins.start_following(lambda name: gateway.reconnect(name.server, name.user, "its login has changed"))
            _close_at_exit(stack, app.job_runner, app.tool_map)
            app.tool_map.start_following()
            await app.job_runner.start(alone=not settings.index)
            await app.code.prepare()
        yield app


async def _open_adapters(
    settings: Settings, stack: AsyncExitStack, *, fresh_index: bool, serving: bool, demo: bool, catalogue: CatalogueUse
) -> App:
    language_model, reranker = open_language_model(settings), await open_reranker(settings)
    argument_checker = WorkerChecker()
    _close_at_exit(stack, language_model, reranker, argument_checker)
    observability = open_observability(settings, stack, serving=serving)
    is_shared = settings.index.startswith(("http", "postgres"))
    index = await _open_index(settings, stack, is_shared, fresh=fresh_index, serving=serving, catalogue=catalogue)
    model, text_model = await _open_models(settings, index, stack)
    database = await asyncio.to_thread(Database, store_url(settings))
    _close_at_exit(stack, database)
    knowledge, knowledge_store = await open_reader(settings, database), open_store(settings, database)
    _close_at_exit(stack, knowledge, knowledge_store)
    own = index, database
    if demo:
        own = await _open_demo(settings, stack, model.embedder, fresh_index, serving, catalogue)
    real: CatalogueUse = "leave" if demo else catalogue
    await open_collections(index, model.embedder, text_model.embedder, shared=is_shared, catalogue=real)
    is_alone = demo or not (is_shared or settings.store.startswith("postgres"))
    catalogue_version = None if is_alone else SqlCatalogueVersion(database)
    _close_at_exit(stack, catalogue_version)
    return App(
        settings=settings,
        model=model,
        text_model=text_model,
        index=index,
        catalogue_index=own[0],
        item_store=SqlItems(own[1]),
        skill_store=SqlSkills(own[1]),
        feedback_store=SqlFeedback(own[1]),
        pin_store=SqlPins(own[1]),
        result_store=SqlResults(database),
        workflow_store=SqlWorkflows(database),
        documents=SqlDocuments(database),
        key_store=SqlKeys(database),
        approval_store=SqlApprovals(database),
        logins=build_logins(settings, database),
        knowledge=knowledge,
        knowledge_store=knowledge_store,
        job_store=SqlJobs(database),
        registry=open_registry(database, index, model.embedder, observability.events),
        language_model=language_model,
        reranker=reranker,
        argument_checker=argument_checker,
        observability=observability,
        rate_buckets=PostgresBuckets(database, Buckets()) if settings.store.startswith("postgres") else Buckets(),
        catalogue_version=catalogue_version,
    )


async def _open_index(
    settings: Settings, stack: AsyncExitStack, is_shared: bool, *, fresh: bool, serving: bool, catalogue: CatalogueUse
) -> VectorIndex:
    """The index, without the collections that this run builds again."""
    if not settings.index or not settings.store:
        _prepare_folder(settings)
    index = open_index(settings)
    _close_at_exit(stack, index)
    stale = (TOOLS, SKILLS) if settings.search_no_cache and not is_shared and catalogue != "leave" else ()
    await drop_collections(index, ALL if fresh else stale, damaged=serving)
    return index


def _prepare_folder(settings: Settings) -> None:
    with suppress(OSError):  # the adapter that needs the folder says what is wrong with it
        make_private_folder(settings.data, follow_link=True)
        restrict_tree(settings.data / "cache")


async def _open_models(settings: Settings, index: VectorIndex, stack: AsyncExitStack) -> tuple[Model, Model]:
    model = await open_model(settings)
    _close_at_exit(stack, model.embedder)
    text_model = await open_text_model(settings, model, await find_text_model(index) if model.is_for_tools else None)
    if text_model is not model:
        _close_at_exit(stack, text_model.embedder)
    return model, text_model


async def _open_demo(
    settings: Settings,
    stack: AsyncExitStack,
    embedder: Embedder | None,
    fresh_index: bool,
    serving: bool,
    catalogue: CatalogueUse,
) -> tuple[VectorIndex, Database]:
    """The demo's own index and store, so that its tools never mix with tools of servers."""
    own = replace(settings, data_dir=settings.data / "demo", index="", store="")
    with suppress(OSError):
        make_private_folder(own.data)
    index, database = open_index(own), await asyncio.to_thread(Database, store_url(own))
    _close_at_exit(stack, index, database)
    await drop_collections(index, (TOOLS, SKILLS) if fresh_index else (), damaged=serving)
    await open_collections(index, embedder, embedder, shared=False, catalogue=catalogue)
    return index, database


def _close_at_exit(stack: AsyncExitStack, *opened: Closable | None) -> None:
    for each in opened:
        if each is not None:
            stack.push_async_callback(each.close)
