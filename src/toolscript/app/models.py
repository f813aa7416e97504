"""Opens the embedding models: the configured models, or packaged models as a fallback."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass, replace
from pathlib import Path

from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.models.batching_embedder import BatchingEmbedder, MultiQueryEmbedder
from toolscript.adapters.onnx.model_folders import (
    PACKAGED,
    PACKAGED_FOR_TOOLS,
    ModelFolder,
    check_digests,
    download,
    find_locally,
    find_model_card,
)
from toolscript.app.extras import require_extra
from toolscript.domain.errors import ToolscriptError, Unavailable
from toolscript.domain.search import SimilarityRange
from toolscript.ports.models import Embedder
from toolscript.retrieval.calibration import measure_similarity
from toolscript.retrieval.text.item_text import build_item_text
from toolscript.services.catalogue.demo import load_demo_items, load_demo_pairs
from toolscript.settings import DEFAULT_MODEL, Settings

_HASHED = r"hashed-([1-9]\d{0,3})"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Model:
    """The embedder in use, and why it is not the configured one, if it is not."""

    embedder: Embedder | None
    fallback_reason: str | None = None
    is_for_tools: bool = False
    """Whether it is trained for tools, so that other texts need another one."""


async def open_model(settings: Settings) -> Model:
    """Opens the model of tools: the configured one; else a packaged one; else none, and search is by words only."""
    return await _open_model(settings, PACKAGED_FOR_TOOLS)


async def open_text_model(settings: Settings, tools: Model, indexed_with: str | None) -> Model:
    """Opens the model for documents and knowledge. Defaults to the model for tools, unless the settings name another
    model or the model was trained for tools. Then the model that `indexed_with` names is used, so that nothing has to
    be embedded again, or the packaged model; it is loaded with the first text. If that model is broken, documents and
    knowledge are searched by words only."""
    name = settings.text_model
    if not name and tools.is_for_tools:
        name = indexed_with if indexed_with and find_model_card(indexed_with) else PACKAGED
    if not name or name == settings.search_model:
        return tools
    try:
        return await _open_model(replace(settings, search_model=name), PACKAGED, lazy=True)
    except ToolscriptError as error:
        if settings.text_model:
            raise
        log.warning("no_model", extra={"reason": error.message, "consequence": "documents are searched by words only"})
        return Model(None, error.message)


async def check_models(settings: Settings) -> list[str]:
    """Loads the models for tools and for texts, embeds a text with each, and returns what they are. Downloads nothing.
    Raises Invalid or Unavailable."""
    text_model = settings.text_model or (PACKAGED if settings.search_model == DEFAULT_MODEL else "")
    names = dict.fromkeys(filter(None, [settings.search_model, text_model]))
    return [await _check_model(replace(settings, search_model=name)) for name in names]


async def _check_model(settings: Settings) -> str:
    name = settings.search_model
    is_local = not settings.embeddings_url and not re.fullmatch(_HASHED, name)
    folder = await asyncio.to_thread(find_locally, name, settings.data / "models") if is_local else None
    if is_local and folder is None:
        raise Unavailable(
            f"the model {name} is not on this machine: the next gateway downloads it from {settings.hub_url}",
            details={"model": name},
        )
    if folder:
        await asyncio.to_thread(check_digests, folder)
    embedder = (await _open_model(settings, PACKAGED)).embedder
    assert embedder  # noqa: S101  (it is found, or not local)
    try:
        await embedder.embed_query("a text")
    finally:
        await embedder.close()
    return f"{embedder.model}, {embedder.dimensions} dimensions" + (
        f", {settings.embeddings_url}" if not is_local else ""
    )


async def _open_model(settings: Settings, packaged: str, *, lazy: bool = False) -> Model:
    hashed = re.fullmatch(_HASHED, settings.search_model)
    if hashed:
        return Model(HashedEmbedder(int(hashed[1])))
    if settings.embeddings_url:
        with require_extra("llm", "TOOLSCRIPT_EMBEDDINGS_URL"):
            from toolscript.adapters.openai_api.embedder import OpenAiEmbedder
        remote = await OpenAiEmbedder.at(settings.embeddings_url, settings.embeddings_key, settings.search_model)
        return Model(await _batch_queries(remote))
    folder, fallback_reason = await asyncio.to_thread(_find_model, settings, packaged)
    if folder is None:
        return Model(None, fallback_reason)
    inner = await asyncio.to_thread(_load, folder, settings.search_device, lazy=lazy)
    return Model(await _batch_queries(inner), fallback_reason, folder.card.trained_for == "tools")


def _find_model(settings: Settings, packaged: str) -> tuple[ModelFolder | None, str | None]:
    """The model's folder and, if it is not the configured one, why. Raises Invalid for an unusable model, but not for
    the default one: nobody chose it."""
    cache = settings.data / "models"
    if settings.search_model == DEFAULT_MODEL:
        return _find_packaged(DEFAULT_MODEL, cache)
    folder = find_locally(settings.search_model, cache)
    if folder:
        return folder, None
    try:
        return download(settings.search_model, cache, settings.hub_url, settings.hub_token), None
    except Unavailable as error:
        reason = error.message
    log.warning("model_fallback", extra={"wanted": settings.search_model, "used": packaged, "reason": reason})
    return _find_packaged(packaged, cache, reason)


def _find_packaged(name: str, cache: Path, reason: str | None = None) -> tuple[ModelFolder | None, str | None]:
    try:
        return find_locally(name, cache), reason
    except ToolscriptError as error:
        log.warning("no_model", extra={"reason": error.message, "consequence": "search by words only"})
        return None, f"{reason}; {error.message}" if reason else error.message


def _load(folder: ModelFolder, device: str, *, lazy: bool) -> MultiQueryEmbedder:
    from toolscript.adapters.onnx.embedder import OnnxEmbedder

    return OnnxEmbedder(folder, device=device, lazy=lazy)


async def _batch_queries(inner: MultiQueryEmbedder) -> Embedder:
    similarity = inner.similarity or await _calibrate(inner)
    return BatchingEmbedder(inner, similarity=similarity)


async def _calibrate(embedder: MultiQueryEmbedder) -> SimilarityRange:
    """Measures a model without a registry entry on the queries and tools of the demo catalogue."""
    by_id = {item.id: build_item_text(item) for item in load_demo_items()}
    pairs = [(query, by_id[tool]) for query, tool in load_demo_pairs()]
    queries = await embedder.embed_queries([q for q, _ in pairs])
    answers = await embedder.embed_documents([a for _, a in pairs])
    return measure_similarity(queries, answers)
