"""Embeds texts with ONNX Runtime and the model's own tokenizer.

Texts are sorted by length and embedded in batches where that is safe. A dynamically quantised model scales its
activations over the whole batch, so a text's vector would depend on the other texts (by more than the quantisation
itself costs): such a model embeds one text at a time, which on a CPU is no slower. See docs/decisions/0004.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from toolscript.adapters.onnx.model_folders import ModelFolder
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.search import SimilarityRange, Vector

if TYPE_CHECKING:
    import onnxruntime
    from tokenizers import Tokenizer

BATCH = 32
MAX_THREADS = 4
# One thread more than cores: it computes while another thread waits for Python's lock.
SPARE_WORKERS = 1

log = logging.getLogger(__name__)


class OnnxEmbedder:
    """An embedder over a model folder. Loads the model at once; embeds in worker threads, never on the event loop.

    A single query uses every core. Documents and concurrent queries use a second session with its own threads, so
    that a long ingest never delays a query. Where texts are embedded one at a time, each uses one core there.
    """

    def __init__(self, folder: ModelFolder, *, device: str = "auto") -> None:
        """Raises Invalid for a model that is not an embedding model, Unavailable for `gpu` without a GPU."""
        self._folder = folder
        self._card = folder.card
        self._device = device
        self._threads = min(os.cpu_count() or 1, MAX_THREADS)
        self._batch = 1 if is_dynamically_quantised(folder.onnx) else BATCH
        self._running_queries = 0
        self._single = _ModelSession(folder, device, threads=self._threads, workers=1)
        self._check()

    @cached_property
    def _bulk(self) -> _ModelSession:
        if self._batch > 1:
            return _ModelSession(self._folder, self._device, threads=self._threads, workers=1)
        return _ModelSession(self._folder, self._device, threads=1, workers=self._threads, spare=SPARE_WORKERS)

    @property
    def model(self) -> str:
        return self._card.name

    @property
    def dimensions(self) -> int:
        return self._card.dimensions

    @property
    def similarity(self) -> SimilarityRange | None:
        return self._card.similarity

    @property
    def window(self) -> int:
        return self._card.window - self._counter.num_special_tokens_to_add(is_pair=False)

    def count_tokens(self, text: str) -> int:
        return len(self._counter.encode(text, add_special_tokens=False))

    @cached_property
    def _counter(self) -> Tokenizer:
        """A tokenizer without truncation and padding."""
        tokenizer = read_tokenizer(self._folder.tokenizer)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @property
    def query_batch_size(self) -> int:
        return self._batch

    @property
    def max_concurrent_calls(self) -> int:
        return 2 * (self._threads + SPARE_WORKERS) if self._batch == 1 else 1

    async def embed_query(self, text: str) -> Vector:
        return (await self._single.embed([self._card.prefix + text], batch=1))[0]

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per query. A single query uses every core unless another call is running."""
        is_alone = len(texts) == 1 and not self._running_queries
        self._running_queries += 1
        try:
            if is_alone:
                return [await self.embed_query(texts[0])]
            return await self._bulk.embed([self._card.prefix + t for t in texts], batch=self._batch)
        finally:
            self._running_queries -= 1

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        return await self._bulk.embed(texts, batch=self._batch)

    async def close(self) -> None:
        self._single.close()
        if "_bulk" in self.__dict__:
            self._bulk.close()

    def _check(self) -> None:
        try:
            width = self._single.forward([[0]]).shape[1]
        except Exception as error:
            raise Invalid(
                f"model {self.model} is not an embedding model: {error}", details={"model": self.model}
            ) from error
        if width != self.dimensions:
            raise Invalid(
                f"model {self.model} gives {width} dimensions, but its configuration declares {self.dimensions}",
                details={"model": self.model, "dimensions": width},
            )


class _ModelSession:
    """An ONNX Runtime session with its own worker threads."""

    def __init__(self, folder: ModelFolder, device: str, *, threads: int, workers: int, spare: int = 0) -> None:
        self._session = open_session(folder.onnx, device, threads)
        self._inputs = {i.name for i in self._session.get_inputs()}
        self._pooling = folder.card.pooling
        self._tokenizer = read_tokenizer(folder.tokenizer)
        self._tokenizer.enable_truncation(folder.card.window)
        self._tokenizer.no_padding()
        self._size = workers
        self._workers = ThreadPoolExecutor(max_workers=workers + spare, thread_name_prefix="embed")

    async def embed(self, texts: Sequence[str], batch: int) -> list[Vector]:
        """One vector per text, in order; batches are made of texts of similar length."""
        loop = asyncio.get_running_loop()
        if 0 < len(texts) <= batch:
            return list(await loop.run_in_executor(self._workers, self._embed_batch, texts))
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        batches = [by_length[start : start + batch] for start in range(0, len(by_length), batch)]
        # Submits only what can run now: a later call must not wait until all of a long call is done.
        room = asyncio.Semaphore(self._size)

        async def run(chosen: Sequence[int]) -> Vector:
            async with room:
                return await loop.run_in_executor(self._workers, self._embed_batch, [texts[i] for i in chosen])

        results = await asyncio.gather(*map(run, batches))
        vectors: list[Vector] = [np.empty(0, np.float32)] * len(texts)
        for chosen, rows in zip(batches, results, strict=True):
            for i, vector in zip(chosen, rows, strict=True):
                vectors[i] = vector
        return vectors

    def close(self) -> None:
        self._workers.shutdown(wait=True, cancel_futures=True)

    def _embed_batch(self, texts: Sequence[str]) -> Vector:
        return self.forward([e.ids for e in self._tokenizer.encode_batch(list(texts))])

    def forward(self, rows: Sequence[Sequence[int]]) -> Vector:
        """Unit vectors for rows of token ids."""
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, {k: v for k, v in feeds.items() if k in self._inputs})[0]
        if self._pooling == "cls":
            pooled = hidden[:, 0]
        else:
            masked = hidden if len(rows) == 1 else hidden * mask[:, :, None]
            pooled = masked.sum(axis=1, dtype=np.float64) / mask.sum(axis=1, keepdims=True)
        lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
        return np.asarray(pooled / np.maximum(lengths, 1e-12), dtype=np.float32)


def read_tokenizer(file: Path) -> Tokenizer:
    """Reads a tokenizer.json file. Raises Invalid."""
    from tokenizers import Tokenizer  # the import takes half a second: only where a model is used

    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library has no exception class of its own
        raise Invalid(f"{file} is not a tokenizer: {error}", details={"file": str(file)}) from error


def open_session(onnx: Path, device: str, threads: int) -> onnxruntime.InferenceSession:
    """Loads a model, on a GPU where `device` allows one. Raises Unavailable."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that spin while they wait occupy the core that the rest of a search needs: docs/decisions/0004.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    chosen = choose_providers(device, ort.get_available_providers())
    try:
        session = ort.InferenceSession(str(onnx), options, providers=chosen)
    except Exception as error:
        if device == "gpu" or chosen == ["CPUExecutionProvider"]:
            raise Unavailable(f"{onnx.name} could not be loaded: {error}", details={"file": str(onnx)}) from error
        log.debug("gpu_disabled", extra={"reason": str(error)})
        return ort.InferenceSession(str(onnx), options, providers=["CPUExecutionProvider"])
    used = session.get_providers()
    if device == "gpu" and used[0] == "CPUExecutionProvider":
        raise _gpu_error(used)
    log.debug("gpu_enabled" if used[0] != "CPUExecutionProvider" else "gpu_disabled", extra={"providers": used})
    return session


GPU_PROVIDERS = (
    "CUDAExecutionProvider",
    "ROCMExecutionProvider",
    "MIGraphXExecutionProvider",
    "CoreMLExecutionProvider",
    "DmlExecutionProvider",
)


def choose_providers(device: str, available: Sequence[str]) -> list[str]:
    """The providers to try, in order. Raises Unavailable for `gpu` without a GPU provider."""
    if device == "cpu":
        return ["CPUExecutionProvider"]
    gpus = [p for p in GPU_PROVIDERS if p in available]
    if device == "gpu" and not gpus:
        raise _gpu_error(available)
    return [*gpus, "CPUExecutionProvider"]


def _gpu_error(available: Sequence[str]) -> Unavailable:
    return Unavailable(
        f"TOOLSCRIPT_SEARCH_DEVICE=gpu: ONNX Runtime has no GPU here (available: {', '.join(available)}); "
        "install toolscript[gpu], or set auto or cpu",
        details={"device": "gpu", "providers": list(available)},
    )


def is_dynamically_quantised(onnx: Path) -> bool:
    """Whether the model scales its activations over the whole batch."""
    return b"DynamicQuantizeLinear" in onnx.read_bytes()
