"""Which embedding model is used: the one that was asked for, or what can be had instead."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass

from toolscript.adapters.batching_embedder import GatheredEmbedder, GatheringEmbedder
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.onnx.model_folders import PACKAGED, ModelFolder, download, find_locally
from toolscript.app.extras import missing_extra
from toolscript.domain.errors import ToolscriptError, Unavailable
from toolscript.domain.search import Similarity
from toolscript.ports.models import Embedder
from toolscript.retrieval.calibration import measured
from toolscript.retrieval.text.item_text import item_text
from toolscript.services.catalogue.demo import demo_items, demo_pairs
from toolscript.settings import DEFAULT_MODEL, Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Model:
    """The embedder in use, and why it is not the one that was asked for, if it is not."""

    embedder: Embedder | None
    instead_because: str | None = None


async def open_model(settings: Settings, indexed_with: str | None, *, serving: bool = False) -> Model:
    """The model that was asked for; else the one in the package; else none, and words alone must do. A server's may
    get a process of its own."""
    hashed = re.fullmatch(r"hashed-([1-9]\d{0,3})", settings.search_model)
    if hashed:
        return Model(HashedEmbedder(int(hashed[1])))
    if settings.embeddings_url:
        return Model(await _gathered(await _remote(settings)))
    folder, because = await asyncio.to_thread(_find_model, settings, indexed_with)
    if folder is None:
        return Model(None, because)
    inner = await asyncio.to_thread(_load, folder, settings.search_device, apart=serving)
    return Model(await _gathered(inner), because)


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


def _load(folder: ModelFolder, device: str, *, apart: bool) -> GatheringEmbedder:
    from toolscript.adapters.onnx.embedder import OnnxEmbedder

    return OnnxEmbedder(folder, device=device, apart=apart)


async def _remote(settings: Settings) -> GatheringEmbedder:
    try:
        from toolscript.adapters.openai_api.embedder import OpenAiEmbedder
    except ImportError as error:
        raise missing_extra("llm", "TOOLSCRIPT_EMBEDDINGS_URL") from error
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
