"""The composition root: settings in, a working application out. The only place that knows every adapter."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.adapters.vector_cache_files import EmbeddingFiles
from toolscript.app.access import Verifier, local_token
from toolscript.app.engines import Servers, open_index, open_language_model, open_reranker
from toolscript.app.knowledge import open_library, open_reader, open_store, store_url
from toolscript.app.models import Model, open_model
from toolscript.app.observability import Observability, open_observability
from toolscript.domain.catalog import Skill, compute_skills_digest
from toolscript.domain.search import Collection
from toolscript.ports.access import TokenVerifier
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder, LanguageModel, Reranker
from toolscript.ports.observability import EventSink
from toolscript.ports.stores import DocumentStore, ItemStore, KnowledgeReader, KnowledgeStore, SkillStore
from toolscript.retrieval.capabilities import load_capabilities
from toolscript.retrieval.retriever import Retriever
from toolscript.services.access.environment import check_environment
from toolscript.services.access.plans import Plans, load_plans
from toolscript.services.access.rates import Rates
from toolscript.services.catalogue.embedding_classifier import EmbeddingClassifier
from toolscript.services.catalogue.gateway import Gateway
from toolscript.services.catalogue.llm_classifier import LlmClassifier
from toolscript.services.catalogue.resync import Resync
from toolscript.services.catalogue.server_connection import Timeouts
from toolscript.services.catalogue.skill_points import SKILLS, skills_collection
from toolscript.services.catalogue.skill_proposals import ProposeSkills
from toolscript.services.catalogue.skills import Skills
from toolscript.services.catalogue.skills_file import load_skills
from toolscript.services.catalogue.sync import Sync
from toolscript.services.catalogue.tool_points import TOOLS, tools_collection
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.page_tokens import PageTokens
from toolscript.services.documents.points import DOCUMENTS, documents_collection
from toolscript.services.documents.search import DocumentSearch
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS
from toolscript.services.knowledge.search import KnowledgeSearch
from toolscript.services.support.result_cache import ResultCache
from toolscript.services.tools.call import CallTool
from toolscript.services.tools.hierarchical_search import HierarchicalQuery, HierarchicalResults, HierarchicalSearch
from toolscript.services.tools.hybrid_search import ToolSearch
from toolscript.services.tools.listing import ListTools
from toolscript.services.tools.schema_cache import KnownSchemas
from toolscript.services.tools.skill_finder import SkillFinder
from toolscript.services.tools.token_costs import TokenCosts
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.adapters.observability.prometheus import PrometheusMetrics
    from toolscript.adapters.observability.telemetry import Telemetry
    from toolscript.services.knowledge.ingest import IngestKnowledge
    from toolscript.services.knowledge.transfer import ImportKnowledge

__all__ = ["App", "Model", "local_token", "open_app", "open_library"]

# How old what is kept of an index or a store may be where other processes write to it too.
OTHERS_MAY_WRITE_SECONDS = 2.0
# Skills change seldom, and looking at all of them takes a while.
SKILLS_LOOKED_AT_SECONDS = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class App:
    """Every use case, wired."""

    settings: Settings
    model: Model
    index: VectorIndex
    item_store: ItemStore
    skill_store: SkillStore
    documents: DocumentStore
    knowledge: KnowledgeReader
    tool_search: ToolSearch
    document_search: DocumentSearch
    knowledge_search: KnowledgeSearch
    knowledge_rates: Rates
    sync: Sync
    ingest_documents: IngestDocuments
    ingest_knowledge: IngestKnowledge | None
    """None where knowledge is served: there it is read and nothing else."""
    import_knowledge: ImportKnowledge | None
    """The same."""
    gateway: Gateway
    call_tool: CallTool
    list_tools: ListTools
    hierarchical_search: HierarchicalSearch
    skills: Skills
    propose_skills: ProposeSkills
    resync: Resync
    token_costs: TokenCosts
    verifier: TokenVerifier
    plans: Plans
    events: EventSink
    metrics: PrometheusMetrics | None
    telemetry: Telemetry | None
    local_key: str
    """What the tokens of this machine's own commands are signed with."""

    async def count_indexed_tools(self) -> int:
        """How many tools, prompts and resources searches look at."""
        return await self.index.count(TOOLS)

    async def check_ready(self) -> None:
        """Raises Unavailable when store or index do not answer."""
        await self.item_store.ping()
        await self.index.count(TOOLS)


@asynccontextmanager
async def open_app(settings: Settings, *, fresh_index: bool = False, serving: bool = False) -> AsyncIterator[App]:
    """Opens everything that the settings name and closes it in the end.

    With `fresh_index` the collections are dropped first, so that another model may fill them; what only a server needs
    is opened when `serving`. Raises Invalid or Unavailable, naming what cannot be opened.
    """
    check_environment(settings)
    async with AsyncExitStack() as stack:
        outside = await _open_outside(settings, stack, fresh_index=fresh_index, serving=serving)
        await outside.skill_store.seed_skills(*_seed(settings))
        yield _wired(settings, outside, stack)


@dataclass(frozen=True, slots=True)
class _Outside:
    """What the settings name: everything that is opened, and closed again."""

    model: Model
    index: VectorIndex
    item_store: ItemStore
    skill_store: SkillStore
    documents: DocumentStore
    knowledge: KnowledgeReader
    knowledge_store: KnowledgeStore | None
    language_model: LanguageModel | None
    reranker: Reranker | None
    watching: Observability
    others_write: bool
    """Whether other processes may write to the index or the store, too."""


async def _open_outside(settings: Settings, stack: AsyncExitStack, *, fresh_index: bool, serving: bool) -> _Outside:
    language_model, reranker = open_language_model(settings), await open_reranker(settings)
    for each in (language_model, reranker):
        if each:
            stack.push_async_callback(each.close)
    watching = open_observability(settings, stack, serving=serving)
    if not settings.index or not settings.store:
        with suppress(OSError):  # whoever needs the folder says what is wrong with it
            settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    index = open_index(settings)
    stack.push_async_callback(index.close)
    is_shared = settings.index.startswith(("http", "postgres"))
    anew = (TOOLS, SKILLS) if settings.search_no_cache and not is_shared else ()
    for name in (TOOLS, SKILLS, DOCUMENTS, CHUNKS, EXTRACTIONS) if fresh_index else anew:
        await index.drop(name)
    held = await index.describe(TOOLS)
    model = await open_model(settings, held.model if held else None)
    if model.embedder:
        stack.push_async_callback(model.embedder.close)
    database = await asyncio.to_thread(Database, store_url(settings))
    stack.push_async_callback(database.close)
    knowledge = await open_reader(settings, database)
    stack.push_async_callback(knowledge.close)
    knowledge_store = None if serving else open_store(settings, database)
    if knowledge_store:
        stack.push_async_callback(knowledge_store.close)
    await _open_collections(index, model.embedder, shared=is_shared)
    others_write = is_shared or settings.store.startswith("postgres")
    return _Outside(
        model,
        index,
        SqlItems(database),
        SqlSkills(database),
        SqlDocuments(database),
        knowledge,
        knowledge_store,
        language_model,
        reranker,
        watching,
        others_write,
    )


@dataclass(frozen=True, slots=True)
class _Caches:
    """What is kept of the catalogue, for as long as nothing is written to it."""

    answers: ResultCache[HierarchicalQuery, HierarchicalResults]
    schemas: KnownSchemas
    sizes: ResultCache[None, int]

    def changed(self) -> None:
        for each in (self.answers, self.schemas, self.sizes):
            each.changed()


def _caches(item_store: ItemStore, oldest: float | None) -> _Caches:
    return _Caches(ResultCache(oldest=oldest), KnownSchemas(item_store, oldest=oldest), ResultCache(oldest=oldest))


def _wired(settings: Settings, outside: _Outside, stack: AsyncExitStack) -> App:
    index, embedder = outside.index, outside.model.embedder
    item_store, skill_store = outside.item_store, outside.skill_store
    retriever = Retriever(embedder, index)
    tool_search = _tool_search(settings, outside, retriever, lambda: gateway.is_incomplete)
    oldest = OTHERS_MAY_WRITE_SECONDS if outside.others_write else None
    finder = SkillFinder(index, retriever.similarity, oldest=oldest and SKILLS_LOOKED_AT_SECONDS)
    caches = _caches(item_store, oldest)
    sync = _sync(settings, outside, tool_search, finder, caches)
    gateway = Gateway(Servers(), sync, Timeouts(connect=settings.connect_timeout, call=settings.call_timeout))
    local_key = secrets.token_urlsafe(32)
    verifier = Verifier(settings, local_key)
    for each in (caches.schemas, finder, sync, gateway, verifier):
        stack.push_async_callback(each.close)
    plans = Plans(load_plans(settings.plans))
    return App(
        settings=settings,
        model=outside.model,
        index=index,
        item_store=item_store,
        skill_store=skill_store,
        documents=outside.documents,
        knowledge=outside.knowledge,
        tool_search=tool_search,
        document_search=_document_search(settings, outside, retriever, plans),
        knowledge_search=_knowledge_search(outside, retriever),
        knowledge_rates=Rates(settings.knowledge_rate),
        sync=sync,
        ingest_documents=IngestDocuments(outside.documents, index, embedder),
        ingest_knowledge=_ingest_knowledge(outside),
        import_knowledge=_import_knowledge(outside),
        gateway=gateway,
        call_tool=CallTool(item_store, gateway, tool_search),
        list_tools=ListTools(item_store),
        hierarchical_search=_hierarchical_search(retriever, finder, caches, gateway),
        skills=Skills(item_store, skill_store, sync),
        propose_skills=ProposeSkills(item_store, skill_store, index, embedder, outside.language_model),
        resync=Resync(gateway, sync, item_store, skill_store),
        token_costs=TokenCosts(item_store, caches.sizes),
        verifier=verifier,
        plans=plans,
        events=outside.watching.events,
        metrics=outside.watching.metrics,
        telemetry=outside.watching.telemetry,
        local_key=local_key,
    )


def _tool_search(
    settings: Settings, outside: _Outside, retriever: Retriever, is_incomplete: Callable[[], bool]
) -> ToolSearch:
    return ToolSearch(
        retriever,
        outside.item_store,
        alpha=settings.search_alpha,
        capabilities=load_capabilities(settings.search_capabilities),
        is_incomplete=is_incomplete,
    )


def _hierarchical_search(
    retriever: Retriever, finder: SkillFinder, caches: _Caches, gateway: Gateway
) -> HierarchicalSearch:
    return HierarchicalSearch(
        retriever, finder, caches.answers, caches.schemas, is_incomplete=lambda: gateway.is_incomplete
    )


def _sync(settings: Settings, outside: _Outside, tool_search: ToolSearch, finder: SkillFinder, caches: _Caches) -> Sync:
    embedder, language_model = outside.model.embedder, outside.language_model
    return Sync(
        outside.item_store,
        outside.skill_store,
        outside.index,
        embedder,
        cache=None if settings.search_no_cache else EmbeddingFiles(settings.data / "cache" / "embeddings"),
        classifier=EmbeddingClassifier(embedder) if embedder else None,
        refiner=LlmClassifier(language_model) if language_model else None,
        on_change=tool_search.catalogue_changed,
        on_written=caches.changed,
        on_indexed=finder.changed,
    )


def _ingest_knowledge(outside: _Outside) -> IngestKnowledge | None:
    if outside.knowledge_store is None:
        return None
    from toolscript.adapters.books.reader import FileBooks
    from toolscript.services.knowledge.extraction import Extractor
    from toolscript.services.knowledge.ingest import IngestKnowledge

    extractor = Extractor(outside.language_model) if outside.language_model else None
    embedder = outside.model.embedder
    return IngestKnowledge(outside.knowledge_store, outside.index, embedder, FileBooks(), extractor)


def _import_knowledge(outside: _Outside) -> ImportKnowledge | None:
    if outside.knowledge_store is None:
        return None
    from toolscript.services.knowledge.transfer import ImportKnowledge

    return ImportKnowledge(outside.knowledge_store, outside.index, outside.model.embedder)


def _document_search(settings: Settings, outside: _Outside, retriever: Retriever, plans: Plans) -> DocumentSearch:
    watching = outside.watching
    return DocumentSearch(
        retriever,
        outside.index,
        outside.documents,
        plans,
        PageTokens((settings.page_secret or secrets.token_urlsafe(32)).encode()),
        watching.events,
        reranker=outside.reranker,
        span=watching.span,
    )


def _knowledge_search(outside: _Outside, retriever: Retriever) -> KnowledgeSearch:
    watching = outside.watching
    return KnowledgeSearch(retriever, outside.index, outside.knowledge, watching.events, span=watching.span)


async def _open_collections(index: VectorIndex, embedder: Embedder | None, *, shared: bool) -> None:
    """Opens the collections. What another model made of tools is dropped, for the next sync to make anew: it costs
    little. Documents are not, nor what others may be using on a server: there opening raises Invalid."""
    model, dimensions = (embedder.model, embedder.dimensions) if embedder else ("none", 1)
    for make in (tools_collection, skills_collection, documents_collection):
        collection = make(model, dimensions)
        held = await index.describe(collection.name)
        if held and embedder and held.model != model:
            ours_to_drop = not shared and (held.name != DOCUMENTS or await _is_empty(index, held))
            if held.model == "none" or ours_to_drop:
                log.info("index_of_another_model_dropped", extra={"collection": held.name, "model": held.model})
                await index.drop(collection.name)
        await index.open(collection if embedder or not held else held)


async def _is_empty(index: VectorIndex, held: Collection) -> bool:
    await index.open(held)
    return await index.count(held.name) == 0


def _seed(settings: Settings) -> tuple[str, list[Skill]]:
    skills = load_skills(settings.skills)
    return compute_skills_digest(skills), skills
