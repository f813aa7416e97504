"""The composition root: builds the application that the settings describe. The only module that knows every adapter."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.adapters.vector_cache_files import EmbeddingFiles
from toolscript.app.access import Verifier, check_environment, local_token
from toolscript.app.engines import Servers, open_index, open_language_model, open_reranker
from toolscript.app.knowledge import open_library, open_reader, open_store, store_url
from toolscript.app.models import Model, open_model
from toolscript.app.observability import Observability, open_observability
from toolscript.domain.catalog import compute_skills_digest
from toolscript.domain.search import Collection
from toolscript.ports.access import TokenVerifier
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder, LanguageModel, Reranker
from toolscript.ports.stores import DocumentStore, ItemStore, KnowledgeReader, KnowledgeStore, SkillStore
from toolscript.retrieval.capabilities import load_capabilities
from toolscript.retrieval.retriever import Retriever
from toolscript.services.access.plans import Plans, load_plans
from toolscript.services.access.rates import Rates
from toolscript.services.catalogue.embedding_classifier import EmbeddingClassifier
from toolscript.services.catalogue.gateway import Gateway, Resync
from toolscript.services.catalogue.llm_classifier import LlmClassifier
from toolscript.services.catalogue.server_connection import Timeouts
from toolscript.services.catalogue.skill_points import SKILLS, skills_collection
from toolscript.services.catalogue.skill_proposals import ProposeSkills
from toolscript.services.catalogue.skills import Skills
from toolscript.services.catalogue.skills_file import load_skills
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.sync import Sync
from toolscript.services.catalogue.tool_points import TOOLS, tools_collection
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.page_tokens import PageTokens
from toolscript.services.documents.points import DOCUMENTS, documents_collection
from toolscript.services.documents.search import DocumentSearch
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS
from toolscript.services.knowledge.search import KnowledgeSearch
from toolscript.services.tools.call import CallTool
from toolscript.services.tools.hierarchical_search import HierarchicalSearch
from toolscript.services.tools.hybrid_search import ToolSearch
from toolscript.services.tools.listing import ListTools
from toolscript.services.tools.token_costs import TokenCosts
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.services.knowledge.ingest import IngestKnowledge
    from toolscript.services.knowledge.transfer import ImportKnowledge

__all__ = ["App", "Model", "local_token", "open_app", "open_library"]

# How old the catalogue in memory may be where other processes write to the index or the store too.
SNAPSHOT_MAX_AGE_SECONDS = 2.0

log = logging.getLogger(__name__)


class Closable(Protocol):
    """Something that has to be closed in the end."""

    async def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """What the settings name: everything that has to be closed again."""

    settings: Settings
    model: Model
    index: VectorIndex
    item_store: ItemStore
    skill_store: SkillStore
    documents: DocumentStore
    knowledge: KnowledgeReader
    knowledge_store: KnowledgeStore | None
    """None where knowledge is served: a server only reads it."""
    language_model: LanguageModel | None
    reranker: Reranker | None
    observability: Observability
    others_write: bool
    """Whether other processes may write to the index or the store too."""


@dataclass(frozen=True, kw_only=True)
class App(Adapters):
    """Every use case, ready to be called."""

    tool_search: ToolSearch
    document_search: DocumentSearch
    knowledge_search: KnowledgeSearch
    knowledge_rates: Rates
    sync: Sync
    ingest_documents: IngestDocuments
    ingest_knowledge: IngestKnowledge | None
    import_knowledge: ImportKnowledge | None
    gateway: Gateway
    call_tool: CallTool
    list_tools: ListTools
    hierarchical_search: HierarchicalSearch
    skills: Skills
    propose_skills: ProposeSkills
    resync: Resync
    snapshots: CatalogueSnapshots
    token_costs: TokenCosts
    verifier: TokenVerifier
    plans: Plans
    local_key: str
    """Signs the tokens of this machine's own commands."""

    async def count_indexed_tools(self) -> int:
        """The number of tools, prompts and resources in the index."""
        return await self.index.count(TOOLS)

    async def check_ready(self) -> None:
        """Raises Unavailable when the store or the index does not respond."""
        await self.item_store.ping()
        await self.index.count(TOOLS)


@asynccontextmanager
async def open_app(settings: Settings, *, fresh_index: bool = False, serving: bool = False) -> AsyncIterator[App]:
    """Opens everything that the settings name, and closes it in the end.

    With `fresh_index` the collections are dropped first, so that another model may fill them. `serving` opens what only
    a server needs. Raises Invalid or Unavailable, naming what cannot be opened.
    """
    check_environment(settings)
    async with AsyncExitStack() as stack:
        adapters = await _open_adapters(settings, stack, fresh_index=fresh_index, serving=serving)
        skills = load_skills(settings.skills)
        await adapters.skill_store.seed_skills(compute_skills_digest(skills), skills)
        yield _build_app(adapters, stack)


async def _open_adapters(settings: Settings, stack: AsyncExitStack, *, fresh_index: bool, serving: bool) -> Adapters:
    language_model, reranker = open_language_model(settings), await open_reranker(settings)
    _close_at_exit(stack, language_model, reranker)
    observability = open_observability(settings, stack, serving=serving)
    if not settings.index or not settings.store:
        with suppress(OSError):  # the adapter that needs the folder says what is wrong with it
            settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    index = open_index(settings)
    _close_at_exit(stack, index)
    is_shared = settings.index.startswith(("http", "postgres"))
    stale = (TOOLS, SKILLS) if settings.search_no_cache and not is_shared else ()
    for name in (TOOLS, SKILLS, DOCUMENTS, CHUNKS, EXTRACTIONS) if fresh_index else stale:
        await index.drop(name)
    existing = await index.describe(TOOLS)
    model = await open_model(settings, existing.model if existing else None)
    _close_at_exit(stack, model.embedder)
    database = await asyncio.to_thread(Database, store_url(settings))
    _close_at_exit(stack, database)
    knowledge = await open_reader(settings, database)
    knowledge_store = None if serving else open_store(settings, database)
    _close_at_exit(stack, knowledge, knowledge_store)
    await _open_collections(index, model.embedder, shared=is_shared)
    return Adapters(
        settings=settings,
        model=model,
        index=index,
        item_store=SqlItems(database),
        skill_store=SqlSkills(database),
        documents=SqlDocuments(database),
        knowledge=knowledge,
        knowledge_store=knowledge_store,
        language_model=language_model,
        reranker=reranker,
        observability=observability,
        others_write=is_shared or settings.store.startswith("postgres"),
    )


def _close_at_exit(stack: AsyncExitStack, *opened: Closable | None) -> None:
    for each in opened:
        if each is not None:
            stack.push_async_callback(each.close)


def _build_app(adapters: Adapters, stack: AsyncExitStack) -> App:
    settings, index, embedder = adapters.settings, adapters.index, adapters.model.embedder
    item_store, skill_store = adapters.item_store, adapters.skill_store
    retriever = Retriever(embedder, index)
    snapshots = _build_snapshots(adapters, retriever)
    sync = _build_sync(adapters, snapshots)
    gateway = Gateway(Servers(), sync, Timeouts(connect=settings.connect_timeout, call=settings.call_timeout))
    tool_search = ToolSearch(
        retriever, snapshots, alpha=settings.search_alpha, is_incomplete=lambda: gateway.is_incomplete
    )
    local_key = secrets.token_urlsafe(32)
    verifier = Verifier(settings, local_key)
    _close_at_exit(stack, snapshots, sync, gateway, verifier)
    plans = Plans(load_plans(settings.plans))
    ingest_knowledge, import_knowledge = _build_knowledge_writers(adapters)
    return App(
        **vars(adapters),
        tool_search=tool_search,
        document_search=_build_document_search(adapters, retriever, plans),
        knowledge_search=_build_knowledge_search(adapters, retriever),
        knowledge_rates=Rates(settings.knowledge_rate),
        sync=sync,
        ingest_documents=IngestDocuments(adapters.documents, index, embedder),
        ingest_knowledge=ingest_knowledge,
        import_knowledge=import_knowledge,
        gateway=gateway,
        call_tool=CallTool(item_store, gateway, tool_search),
        list_tools=ListTools(item_store),
        hierarchical_search=HierarchicalSearch(retriever, snapshots, is_incomplete=lambda: gateway.is_incomplete),
        skills=Skills(item_store, skill_store, sync),
        propose_skills=ProposeSkills(item_store, skill_store, index, embedder, adapters.language_model),
        resync=Resync(gateway, sync, item_store, skill_store),
        snapshots=snapshots,
        token_costs=TokenCosts(item_store, snapshots),
        verifier=verifier,
        plans=plans,
        local_key=local_key,
    )


def _build_snapshots(adapters: Adapters, retriever: Retriever) -> CatalogueSnapshots:
    return CatalogueSnapshots(
        adapters.item_store,
        adapters.index,
        retriever.similarity,
        capabilities=load_capabilities(adapters.settings.search_capabilities),
        max_age=SNAPSHOT_MAX_AGE_SECONDS if adapters.others_write else None,
    )


def _build_sync(adapters: Adapters, snapshots: CatalogueSnapshots) -> Sync:
    settings = adapters.settings
    embedder, language_model = adapters.model.embedder, adapters.language_model
    return Sync(
        adapters.item_store,
        adapters.skill_store,
        adapters.index,
        embedder,
        cache=None if settings.search_no_cache else EmbeddingFiles(settings.data / "cache" / "embeddings"),
        classifier=EmbeddingClassifier(embedder) if embedder else None,
        refiner=LlmClassifier(language_model) if language_model else None,
        on_change=snapshots.advance,
    )


def _build_knowledge_writers(adapters: Adapters) -> tuple[IngestKnowledge | None, ImportKnowledge | None]:
    store, index, embedder = adapters.knowledge_store, adapters.index, adapters.model.embedder
    if store is None:
        return None, None
    from toolscript.adapters.books.reader import FileBooks
    from toolscript.services.knowledge.extraction import Extractor
    from toolscript.services.knowledge.ingest import IngestKnowledge
    from toolscript.services.knowledge.transfer import ImportKnowledge

    extractor = Extractor(adapters.language_model) if adapters.language_model else None
    ingest = IngestKnowledge(store, index, embedder, FileBooks(), extractor)
    return ingest, ImportKnowledge(store, index, embedder)


def _build_document_search(adapters: Adapters, retriever: Retriever, plans: Plans) -> DocumentSearch:
    return DocumentSearch(
        retriever,
        adapters.index,
        adapters.documents,
        plans,
        PageTokens((adapters.settings.page_secret or secrets.token_urlsafe(32)).encode()),
        adapters.observability.events,
        reranker=adapters.reranker,
        span=adapters.observability.span,
    )


def _build_knowledge_search(adapters: Adapters, retriever: Retriever) -> KnowledgeSearch:
    observability = adapters.observability
    return KnowledgeSearch(retriever, adapters.index, adapters.knowledge, observability.events, span=observability.span)


async def _open_collections(index: VectorIndex, embedder: Embedder | None, *, shared: bool) -> None:
    """Opens the collections. Tools and skills that another model indexed are dropped, and the next sync indexes them
    again. Documents are kept, and so is everything on a shared server: there opening raises Invalid."""
    model, dimensions = (embedder.model, embedder.dimensions) if embedder else ("none", 1)
    for build in (tools_collection, skills_collection, documents_collection):
        collection = build(model, dimensions)
        existing = await index.describe(collection.name)
        if existing and embedder and existing.model != model:
            may_drop = not shared and (existing.name != DOCUMENTS or await _is_empty(index, existing))
            if existing.model == "none" or may_drop:
                log.info("index_of_another_model_dropped", extra={"collection": existing.name, "model": existing.model})
                await index.drop(collection.name)
        await index.open(collection if embedder or not existing else existing)


async def _is_empty(index: VectorIndex, existing: Collection) -> bool:
    await index.open(existing)
    return await index.count(existing.name) == 0
