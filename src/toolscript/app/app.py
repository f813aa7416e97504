"""The composition root: builds the application that the settings describe. The only module that knows every adapter."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from toolscript.adapters.json_schema.checker import WorkerChecker
from toolscript.adapters.sql.access.rate_buckets import PostgresBuckets
from toolscript.adapters.sql.catalogue_version import SqlCatalogueVersion
from toolscript.adapters.sql.database import Database
from toolscript.adapters.storage.private_files import make_private_folder, restrict_tree
from toolscript.app.access import AccessServices, check_environment, local_token
from toolscript.app.catalogue import CatalogueServices
from toolscript.app.catalogue_use import CatalogueUse, seed_skills
from toolscript.app.code import CodeMode
from toolscript.app.collections import ALL, drop_collections, find_text_model, open_collections
from toolscript.app.engines import open_index, open_language_model, open_reranker
from toolscript.app.knowledge import open_library, open_reader, open_store, store_url
from toolscript.app.logins import build_logins
from toolscript.app.models import Model, open_model, open_text_model
from toolscript.app.observability import Observability, open_observability
from toolscript.app.registry import RegistryCatalogue, open_registry
from toolscript.app.servers import ServerServices
from toolscript.app.stores import Stores, build_stores
from toolscript.app.texts import TextServices
from toolscript.app.tools import ToolServices
from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits
from toolscript.ports.access import RateBuckets
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder, LanguageModel, Reranker
from toolscript.ports.schemas import ArgumentChecker
from toolscript.ports.stores import (
    CatalogueVersion,
)
from toolscript.services.access.logins import Logins
from toolscript.services.access.rates import Buckets
from toolscript.services.catalogue.item_points import TOOLS, WITHOUT_PASSAGES
from toolscript.services.catalogue.skill_points import SKILLS
from toolscript.services.documents.points import DOCUMENTS
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS
from toolscript.services.support.index_sizes import count_points
from toolscript.settings import Settings

if TYPE_CHECKING:
    pass

__all__ = ["App", "Model", "local_token", "open_app", "open_library"]


log = logging.getLogger(__name__)


class Closable(Protocol):
    """Something that has to be closed in the end."""

    async def close(self) -> None: ...


@dataclass(kw_only=True, eq=False)
class App:
    """What the settings name, and every use case over it, by subject: the folders of `services`."""

    settings: Settings
    model: Model
    text_model: Model
    """Model for documents and knowledge. Defaults to `model`, unless `model` was trained for tools."""
    index: VectorIndex
    catalogue_index: VectorIndex
    """The index of tools and skills. It is `index`, unless this is the demo."""
    stores: Stores
    logins: Logins
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
        settings, stores, observability = self.settings, self.stores, self.observability
        embedder, language_model = self.model.embedder, self.language_model
        self.access = access = AccessServices(settings, stores, self.rate_buckets, observability.events)
        self.catalogue = catalogue = CatalogueServices(
            settings, stores, self.catalogue_index, embedder, language_model, self.catalogue_version, access
        )
        is_demo = self.catalogue_index is not self.index
        self.servers = servers = ServerServices(
            settings, stores, self.logins, self.rate_buckets, observability, access, catalogue, demo=is_demo
        )
        self.texts = texts = TextServices(
            settings,
            stores,
            self.index,
            self.text_model.embedder,
            language_model,
            self.reranker,
            observability,
            access,
            catalogue,
        )
        self.tools = tools = ToolServices(
            settings,
            stores,
            self.catalogue_index,
            self.argument_checker,
            observability,
            access,
            catalogue,
            servers,
            texts,
        )
        self.code = CodeMode(settings, stores, self.argument_checker, observability, catalogue, servers, tools)
        servers.connections.add_workflows(self.code.open_workflow_server)
        observability.watch_caches(self.model, self.text_model, tools.search, tools.hierarchical_search)

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
                await asyncio.gather(self.stores.items.ping(), self.catalogue_index.count(TOOLS))
        except TimeoutError:
            raise Unavailable(f"the store or the index does not answer within {seconds:g} seconds") from None


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
            app.servers.login_flows,
            app.catalogue.snapshots,
            app.catalogue.sync,
            app.servers.gateway,
            app.access.verifier,
            app.access.keys,
            app.tools.feedback,
            app.tools.native_changes,
            app.code,
        )
        await seed_skills(app.stores.skills, settings, catalogue)
        if app.catalogue_version:
            app.catalogue.snapshots.start_following(app.catalogue_version)
        if serving:
            await app.access.keys.load()
            gateway = app.servers.gateway
            app.logins.start_following(lambda name: gateway.reconnect(name.server, name.user, "its login has changed"))
            _close_at_exit(stack, app.texts.job_runner, app.tools.tool_map)
            app.tools.tool_map.start_following()
            await app.texts.job_runner.start(alone=not settings.index)
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
    database = await Database.open(store_url(settings))
    _close_at_exit(stack, database)
    knowledge, knowledge_writer = await open_reader(settings, database), open_store(settings, database)
    _close_at_exit(stack, knowledge, knowledge_writer)
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
        stores=build_stores(database, own[1], knowledge, knowledge_writer),
        logins=build_logins(settings, database),
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
    is_stale = settings.search_no_cache and not is_shared and catalogue != "leave"
    stale = (TOOLS, SKILLS) if is_stale else ()
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
    index, database = open_index(own), await Database.open(store_url(own))
    _close_at_exit(stack, index, database)
    await drop_collections(index, (TOOLS, SKILLS) if fresh_index else (), damaged=serving)
    await open_collections(index, embedder, embedder, shared=False, catalogue=catalogue)
    return index, database


def _close_at_exit(stack: AsyncExitStack, *opened: Closable | None) -> None:
    for each in opened:
        if each is not None:
            stack.push_async_callback(each.close)
