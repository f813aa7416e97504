"""The composition root: settings in, a working application out. The only place that knows every adapter."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from toolscript.adapters.embedding_files import EmbeddingFiles
from toolscript.adapters.gathered import GatheredEmbedder, GatheringEmbedder
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.model_folders import PACKAGED, ModelFolder, download, find_locally
from toolscript.adapters.sql_catalog import SqlCatalog
from toolscript.adapters.sql_database import Database
from toolscript.adapters.sql_documents import SqlDocuments
from toolscript.domain.catalog import Skill, digest_of
from toolscript.domain.errors import Invalid, ToolscriptError, Unavailable
from toolscript.domain.search import Collection
from toolscript.domain.servers import ServerSpec
from toolscript.ports import CatalogStore, DocumentStore, Embedder, LanguageModel, Similarity, ToolServer, VectorIndex
from toolscript.retrieval.calibration import measured
from toolscript.retrieval.capabilities import load_capabilities
from toolscript.retrieval.retriever import Retriever
from toolscript.retrieval.texts import item_text
from toolscript.services.answer_cache import AnswerCache
from toolscript.services.call_tool import CallTool
from toolscript.services.classify import EmbeddingClassifier
from toolscript.services.classify_llm import LlmClassifier
from toolscript.services.demo import demo_items, demo_pairs
from toolscript.services.document_search import DocumentSearch
from toolscript.services.gateway import Gateway, Limits
from toolscript.services.hierarchical_search import Ask, Found, HierarchicalSearch, Schemas
from toolscript.services.ingest_documents import DOCUMENTS, IngestDocuments, documents_collection
from toolscript.services.list_tools import ListTools
from toolscript.services.propose import Propose
from toolscript.services.resync import Resync
from toolscript.services.skill_finder import SkillFinder
from toolscript.services.skill_points import SKILLS, skills_collection
from toolscript.services.skills import Skills
from toolscript.services.skills_file import load_skills
from toolscript.services.sync import Sync
from toolscript.services.token_costs import TokenCosts
from toolscript.services.tool_points import TOOLS, tools_collection
from toolscript.services.tool_search import ToolSearch
from toolscript.settings import DEFAULT_MODEL, Settings

# How old what is kept of an index or a store may be where other processes write to it too.
OTHERS_MAY_WRITE_SECONDS = 2.0
# Skills change seldom, and looking at all of them takes a while.
SKILLS_LOOKED_AT_SECONDS = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Model:
    """The embedder in use, and why it is not the one that was asked for, if it is not."""

    embedder: Embedder | None
    instead_because: str | None = None


@dataclass(frozen=True, slots=True)
class App:
    """Every use case, wired."""

    settings: Settings
    model: Model
    index: VectorIndex
    catalog: CatalogStore
    documents: DocumentStore
    tool_search: ToolSearch
    document_search: DocumentSearch
    sync: Sync
    ingest_documents: IngestDocuments
    gateway: Gateway
    call_tool: CallTool
    list_tools: ListTools
    hierarchical_search: HierarchicalSearch
    skills: Skills
    propose: Propose
    resync: Resync
    token_costs: TokenCosts

    async def indexed_tools(self) -> int:
        """How many tools, prompts and resources searches look at."""
        return await self.index.count(TOOLS)

    async def ready(self) -> None:
        """Raises Unavailable when store or index do not answer."""
        await self.catalog.ping()
        await self.index.count(TOOLS)


@asynccontextmanager
async def open_app(settings: Settings, *, fresh_index: bool = False) -> AsyncIterator[App]:
    """Opens everything that the settings name and closes it in the end.

    With `fresh_index` the collections are dropped first, so that another model may fill them. Raises Invalid or
    Unavailable, naming what cannot be opened.
    """
    async with AsyncExitStack() as stack:
        outside = await _open_outside(settings, stack, fresh_index=fresh_index)
        await outside.catalog.seed_skills(*_seed(settings))
        yield _wired(settings, outside, stack)


@dataclass(frozen=True, slots=True)
class _Outside:
    """What the settings name: everything that is opened, and closed again."""

    model: Model
    index: VectorIndex
    catalog: CatalogStore
    documents: DocumentStore
    language_model: LanguageModel | None
    others_write: bool
    """Whether other processes may write to the index or the store, too."""


async def _open_outside(settings: Settings, stack: AsyncExitStack, *, fresh_index: bool) -> _Outside:
    language_model = _language_model(settings)
    if language_model:
        stack.push_async_callback(language_model.close)
    index = _index(settings)
    stack.push_async_callback(index.close)
    is_shared = settings.index.startswith(("http", "postgres"))
    anew = (TOOLS, SKILLS) if settings.search_no_cache and not is_shared else ()
    for name in (TOOLS, SKILLS, DOCUMENTS) if fresh_index else anew:
        await index.drop(name)
    held = await index.describe(TOOLS)
    model = await _model(settings, held.model if held else None)
    if model.embedder:
        stack.push_async_callback(model.embedder.close)
    database = await asyncio.to_thread(Database, settings.store or f"sqlite:///{settings.data / 'toolscript.db'}")
    catalog, documents = SqlCatalog(database), SqlDocuments(database)
    stack.push_async_callback(catalog.close)
    await _open_collections(index, model.embedder, shared=is_shared)
    others_write = is_shared or settings.store.startswith("postgres")
    return _Outside(model, index, catalog, documents, language_model, others_write)


def _wired(settings: Settings, outside: _Outside, stack: AsyncExitStack) -> App:
    index, catalog, documents, embedder = outside.index, outside.catalog, outside.documents, outside.model.embedder
    retriever = Retriever(embedder, index)
    capabilities = load_capabilities(settings.search_capabilities)
    tool_search = ToolSearch(retriever, catalog, alpha=settings.search_alpha, capabilities=capabilities)
    oldest = OTHERS_MAY_WRITE_SECONDS if outside.others_write else None
    finder = SkillFinder(index, retriever.similarity, oldest=oldest and SKILLS_LOOKED_AT_SECONDS)
    stack.push_async_callback(finder.close)
    answers, schemas = AnswerCache[Ask, Found](oldest=oldest), AnswerCache[str, Schemas](oldest=oldest, room=8192)
    sizes = AnswerCache[None, int](oldest=oldest)

    def written() -> None:
        for each in (answers, schemas, sizes):
            each.changed()

    sync = Sync(
        catalog,
        index,
        embedder,
        cache=None if settings.search_no_cache else EmbeddingFiles(settings.data / "cache" / "embeddings"),
        classifier=EmbeddingClassifier(embedder) if embedder else None,
        refiner=LlmClassifier(outside.language_model) if outside.language_model else None,
        on_change=tool_search.catalogue_changed,
        on_written=written,
        on_indexed=finder.changed,
    )
    stack.push_async_callback(sync.close)
    gateway = Gateway(_Servers(), sync, Limits(connect=settings.connect_timeout, call=settings.call_timeout))
    stack.push_async_callback(gateway.close)
    return App(
        settings=settings,
        model=outside.model,
        index=index,
        catalog=catalog,
        documents=documents,
        tool_search=tool_search,
        document_search=DocumentSearch(retriever, documents),
        sync=sync,
        ingest_documents=IngestDocuments(documents, index, embedder),
        gateway=gateway,
        call_tool=CallTool(catalog, gateway, tool_search),
        list_tools=ListTools(catalog),
        hierarchical_search=HierarchicalSearch(retriever, finder, catalog, answers, schemas),
        skills=Skills(catalog, sync),
        propose=Propose(catalog, index, embedder, outside.language_model),
        resync=Resync(gateway, sync, catalog),
        token_costs=TokenCosts(catalog, sizes),
    )


class _Servers:
    """MCP servers; what it takes to speak with them is loaded when the first one is."""

    def connect(self, spec: ServerSpec, *, within: float) -> AbstractAsyncContextManager[ToolServer]:
        try:
            from toolscript.adapters.mcp_client import McpServers
        except ImportError as error:
            if (error.name or "").startswith("toolscript"):
                raise
            raise _missing_extra("server", "connecting to MCP servers") from error
        return McpServers().connect(spec, within=within)


def _index(settings: Settings) -> VectorIndex:
    match settings.index.partition(":")[0]:
        case "":
            from toolscript.adapters.qdrant_edge import QdrantEdgeIndex

            return QdrantEdgeIndex(settings.data / "index")
        case "http" | "https":
            try:
                from toolscript.adapters.qdrant_server import QdrantServerIndex
            except ImportError as error:
                raise _missing_extra("qdrant", "TOOLSCRIPT_INDEX") from error
            return QdrantServerIndex.at(settings.index, settings.index_key)
        case "postgresql" | "postgres":
            try:
                from toolscript.adapters.pgvector import PgVectorIndex
            except ImportError as error:
                raise _missing_extra("postgres", "TOOLSCRIPT_INDEX") from error
            return PgVectorIndex(settings.index)
        case "memory":
            return MemoryIndex()
        case scheme:
            raise Invalid(
                f"TOOLSCRIPT_INDEX scheme {scheme!r} is not usable: leave it empty, or give http(s)://HOST:6333, "
                "postgresql://USER@HOST/NAME or memory:",
                details={"field": "TOOLSCRIPT_INDEX", "allowed": ["", "http", "https", "postgresql", "memory"]},
            )


async def _model(settings: Settings, indexed_with: str | None) -> Model:
    """The model that was asked for; else the one in the package; else none, and words alone must do."""
    hashed = re.fullmatch(r"hashed-([1-9]\d{0,3})", settings.search_model)
    if hashed:
        return Model(HashedEmbedder(int(hashed[1])))
    if settings.embeddings_url:
        return Model(await _gathered(await _remote(settings)))
    folder, because = await asyncio.to_thread(_find_model, settings, indexed_with)
    if folder is None:
        return Model(None, because)
    return Model(await _gathered(await asyncio.to_thread(_load, folder, settings.search_device)), because)


def _find_model(settings: Settings, indexed_with: str | None) -> tuple[ModelFolder | None, str | None]:
    cache = settings.data / "models"
    folder = find_locally(settings.search_model, cache)
    if folder:
        return folder, None
    if indexed_with == PACKAGED and settings.search_model == DEFAULT_MODEL:
        because = (
            f"{settings.search_model} is not on this machine and the index was built with {PACKAGED}; "
            "`toolscript index rebuild` asks the hub again"
        )
    else:
        try:
            return download(settings.search_model, cache, settings.hub_url, settings.hub_token), None
        except Unavailable as error:
            because = error.message
            log.warning("model_fallback", extra={"wanted": settings.search_model, "used": PACKAGED, "reason": because})
    try:
        return find_locally(PACKAGED, cache), because
    except ToolscriptError as error:
        log.warning("no_model", extra={"reason": error.message, "consequence": "search by words only"})
        return None, f"{because}; {error.message}"


def _load(folder: ModelFolder, device: str) -> GatheringEmbedder:
    from toolscript.adapters.onnx import OnnxEmbedder

    return OnnxEmbedder(folder, device=device)


async def _remote(settings: Settings) -> GatheringEmbedder:
    try:
        from toolscript.adapters.openai import OpenAiEmbedder
    except ImportError as error:
        raise _missing_extra("llm", "TOOLSCRIPT_EMBEDDINGS_URL") from error
    return await OpenAiEmbedder.at(settings.embeddings_url or "", settings.embeddings_key, settings.search_model)


async def _gathered(inner: GatheringEmbedder) -> Embedder:
    similarity = inner.similarity or await _calibrate(inner)
    return GatheredEmbedder(inner, similarity=similarity)


async def _calibrate(embedder: GatheringEmbedder) -> Similarity:
    """Measures a model that the registry does not know on the demo catalogue's questions and answers."""
    by_id = {item.id: item_text(item) for item in demo_items()}
    pairs = [(query, by_id[tool]) for query, tool in demo_pairs()]
    queries = await embedder.embed_queries([q for q, _ in pairs])
    answers = await embedder.embed_documents([a for _, a in pairs])
    return measured(queries, answers)


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
    return digest_of(skills), skills


def _language_model(settings: Settings) -> LanguageModel | None:
    if not settings.llm_url:
        return None
    try:
        from toolscript.adapters.openai_chat import OpenAiChat
    except ImportError as error:
        raise _missing_extra("llm", "TOOLSCRIPT_LLM_URL") from error
    return OpenAiChat.at(
        settings.llm_url,
        settings.llm_key,
        settings.llm_model,
        timeout_seconds=settings.llm_timeout,
        at_once=settings.llm_at_once,
    )


def _missing_extra(extra: str, setting: str) -> Invalid:
    return Invalid(
        f"{setting} needs an extra that is not installed: pip install 'toolscript[{extra}]'",
        details={"field": setting, "extra": extra},
    )
