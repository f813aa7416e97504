"""Opens the engines that the settings name: one match per port, each vendor's package imported in its case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from toolscript.adapters.agent_skills.folders import AgentSkillFolders
from toolscript.adapters.memory import MemoryIndex
from toolscript.app.extras import IMPORTING_MCP, require_extra
from toolscript.domain.agent_skills import SERVER_NAME as AGENT_SKILLS
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.profiles import Profile
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.ports.access import RateBuckets
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.logins import AccessTokens
from toolscript.ports.models import LanguageModel, Reranker
from toolscript.ports.servers import OnLog, ToolServer, ToolServers, ignore_log
from toolscript.services.catalogue.sync import Sync
from toolscript.services.servers.gateway import Gateway
from toolscript.services.support.call_admission import CallAdmission
from toolscript.services.tools.demo_gateway import DemoGateway
from toolscript.settings import Settings


class Servers:
    """Connects to MCP servers and APIs. Imports the MCP package with the first connection, in a thread: the import
    takes a second, and a gateway answers searches meanwhile."""

    def __init__(self, max_answer_bytes: int, tokens: AccessTokens | None = None, data: Path | None = None) -> None:
        """`tokens` are the tokens of logins; `data` is the folder for the homes of sandboxes."""
        self._max_answer_bytes = max_answer_bytes
        self._tokens = tokens
        self._data = data
        self._get_workflows: Callable[[], ToolServer] | None = None

    def add_workflows(self, get_server: Callable[[], ToolServer]) -> None:
        """Adds the server of workflows, which is part of this process. It calls tools, so it is built after them."""
        self._get_workflows = get_server

    @asynccontextmanager
    async def connect(
        self, spec: ServerSpec, *, within: float, on_log: OnLog = ignore_log
    ) -> AsyncIterator[ToolServer]:
        if spec.transport is Transport.INTERNAL and spec.name == AGENT_SKILLS:
            yield AgentSkillFolders(spec.args)
            return
        if spec.transport is Transport.INTERNAL and self._get_workflows:
            yield self._get_workflows()
            return
        servers = await asyncio.to_thread(self._import, spec.transport)
        async with servers.connect(spec, within=within, on_log=on_log) as server:
            yield server

    def _import(self, transport: Transport) -> ToolServers:
        with IMPORTING_MCP, require_extra("server", "connecting to MCP servers"):
            if transport is Transport.OPENAPI:
                from toolscript.adapters.openapi.client import OpenApiServers

                return OpenApiServers(self._max_answer_bytes, self._tokens)
            from toolscript.adapters.mcp.client import McpServers
        return McpServers(self._max_answer_bytes, self._tokens, self._data)


def open_servers(settings: Settings, tokens: AccessTokens | None = None) -> Servers:
    """What connects to the servers. `tokens` are the tokens of logins."""
    return Servers(settings.call_max_mib * 2**20, tokens, settings.data)


def open_admission(
    settings: Settings, buckets: RateBuckets, find_profile: Callable[[str], Profile | None]
) -> CallAdmission:
    """What limits calls: `buckets` count their rates, and profiles limit them, too."""
    return CallAdmission(
        buckets,
        find_profile=find_profile,
        failures=settings.breaker_failures,
        pause_seconds=settings.breaker_seconds,
    )


def open_gateway(
    settings: Settings,
    servers: ToolServers,
    sync: Sync | None = None,
    admission: CallAdmission | None = None,
    *,
    demo: bool = False,
) -> Gateway:
    """The gateway. Without a `sync` it connects to servers and leaves the catalogue alone. The demo's gateway has no
    servers."""
    limits = replace(current_limits(), connect=settings.connect_timeout, call=settings.call_timeout)
    return (DemoGateway if demo else Gateway)(servers, sync, limits, admission)


def open_index(settings: Settings) -> VectorIndex:
    """Opens the index that TOOLSCRIPT_INDEX names. Raises Invalid."""
    match settings.index.partition(":")[0]:
        case "":
            from toolscript.adapters.qdrant.edge import QdrantEdgeIndex

            return QdrantEdgeIndex(settings.data / "index")
        case "http" | "https":
            with require_extra("qdrant", "TOOLSCRIPT_INDEX"):
                from toolscript.adapters.qdrant.server import QdrantServerIndex
            return QdrantServerIndex.at(settings.index, settings.index_key)
        case "postgresql" | "postgres":
            with require_extra("postgres", "TOOLSCRIPT_INDEX"):
                from toolscript.adapters.pgvector.index import PgVectorIndex
            return PgVectorIndex(settings.index)
        case "memory":
            return MemoryIndex()
        case scheme:
            raise Invalid(
                f"TOOLSCRIPT_INDEX scheme {scheme!r} is not supported: leave it empty, or give http(s)://HOST:6333, "
                "postgresql://USER@HOST/NAME or memory:",
                details={"field": "TOOLSCRIPT_INDEX", "allowed": ["", "http", "https", "postgresql", "memory"]},
            )


def open_language_model(settings: Settings) -> LanguageModel | None:
    """Opens the language model that TOOLSCRIPT_LLM_URL names, if any. Raises Invalid."""
    if not settings.llm_url:
        return None
    with require_extra("llm", "TOOLSCRIPT_LLM_URL"):
        from toolscript.adapters.openai_api.chat import OpenAiChat
    return OpenAiChat(
        settings.llm_url,
        settings.llm_key,
        settings.llm_model,
        timeout_seconds=settings.llm_timeout,
        at_once=settings.llm_at_once,
    )


async def open_reranker(settings: Settings) -> Reranker | None:
    """Opens the reranker that TOOLSCRIPT_RERANKER names, if any. Raises Invalid or Unavailable."""
    if not settings.reranker:
        return None
    if settings.reranker.startswith(("http://", "https://")):
        from toolscript.adapters.models.http_reranker import HttpReranker

        return HttpReranker(settings.reranker, settings.reranker_key, settings.reranker_model)
    try:
        return await asyncio.to_thread(_open_local_reranker, settings, settings.reranker)
    except (Invalid, Unavailable) as error:
        message = f"TOOLSCRIPT_RERANKER={settings.reranker} cannot be used: {error.message}"
        raise type(error)(message, details={**error.details, "field": "TOOLSCRIPT_RERANKER"}) from error


def _open_local_reranker(settings: Settings, name: str) -> Reranker:
    from toolscript.adapters.onnx.reranker import OnnxReranker, find_reranker

    folder = find_reranker(name, settings.data / "models", settings.hub_url, settings.hub_token)
    return OnnxReranker(folder, device=settings.search_device)
