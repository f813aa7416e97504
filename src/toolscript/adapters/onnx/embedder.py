"""Embeds with ONNX Runtime and the model's own tokenizer.

Texts run sorted by length, in batches where that is safe. A dynamically quantised model scales its activations
over the whole batch, so there a text's vector would depend on its neighbours (by more than the quantisation
itself costs): such a model runs one text at a time, which on a CPU is no slower. See docs/decisions/0004.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from toolscript.adapters.onnx.model_folders import ModelFolder
from toolscript.adapters.onnx.worker_client import LONGEST, ModelApart
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.search import Similarity, Vector

if TYPE_CHECKING:
    import onnxruntime
    from tokenizers import Tokenizer

BATCH = 32
MOST_THREADS = 4
# Beside one for each core: while a worker waits for Python's lock, this one computes.
SPARE_WORKERS = 1
# So many queries come together before they get a process of their own: it takes half a second of work, and 105 MB.
TOGETHER_BEFORE = 32
LONGEST_APART = LONGEST // 4  # characters: each may be four bytes

log = logging.getLogger(__name__)


class OnnxEmbedder:
    """An embedder over a model folder. Loads at once; embeds in worker threads, never on the event loop.

    A lone query has every core to itself; documents, and queries that arrive together, go through a second lane,
    so that a long ingest never makes a query wait. Where texts run one at a time, each has a core there.
    """

    def __init__(self, folder: ModelFolder, *, device: str = "auto", apart: bool = False) -> None:
        """With `apart`, queries that keep coming together get a process of their own, where that gains anything.
        Raises Invalid for a model that is not an embedding model, Unavailable for `gpu` where there is none."""
        self._folder = folder
        self._card = folder.card
        self._device = device
        self._threads = min(os.cpu_count() or 1, MOST_THREADS)
        self._batch = 1 if is_dynamically_quantised(folder.onnx) else BATCH
        self._queries_under_way = 0
        self._together = 0
        self._starting: asyncio.Task[ModelApart | None] | None = None
        self._single = self._lane(threads=self._threads, workers=1)
        self._goes_apart = apart and self._batch == 1 and self._single.is_on_cpu
        self._check()

    @cached_property
    def _bulk(self) -> Lane:
        if self._batch > 1:
            return self._lane(threads=self._threads, workers=1)
        return self._lane(threads=1, workers=self._threads, spare=SPARE_WORKERS)

    def _lane(self, *, threads: int, workers: int, spare: int = 0) -> Lane:
        return Lane(
            self._folder.onnx,
            self._folder.tokenizer,
            pooling=self._card.pooling,
            window=self._card.window,
            device=self._device,
            threads=threads,
            workers=workers,
            spare=spare,
        )

    @property
    def model(self) -> str:
        return self._card.name

    @property
    def dimensions(self) -> int:
        return self._card.dimensions

    @property
    def similarity(self) -> Similarity | None:
        return self._card.similarity

    @property
    def window(self) -> int:
        return self._card.window - self._counting.num_special_tokens_to_add(is_pair=False)

    def count_tokens(self, text: str) -> int:
        return len(self._counting.encode(text, add_special_tokens=False))

    @cached_property
    def _counting(self) -> Tokenizer:
        """A tokenizer that cuts nothing off and adds nothing."""
        tokenizer = read_tokenizer(self._folder.tokenizer)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @property
    def together(self) -> int:
        return self._batch

    @property
    def at_once(self) -> int:
        return 2 * (self._threads + SPARE_WORKERS) if self._batch == 1 else 1

    async def embed_query(self, text: str) -> Vector:
        return (await self._single.embed([self._card.prefix + text], batch=1))[0]

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Queries that arrived together."""
        is_alone = len(texts) == 1 and not self._queries_under_way
        self._queries_under_way += 1
        try:
            if is_alone:
                return [await self.embed_query(texts[0])]
            prefixed = [self._card.prefix + t for t in texts]
            apart = self._apart() if len(texts) == 1 else None
            if apart is not None and len(prefixed[0]) <= LONGEST_APART:
                with suppress(Unavailable):  # then it has to be done here
                    return [await apart.embed(prefixed[0])]
            return await self._bulk.embed(prefixed, batch=self._batch)
        finally:
            self._queries_under_way -= 1

    def _apart(self) -> ModelApart | None:
        """The process of its own, where there is one and it is ready."""
        self._together += 1
        if self._goes_apart and self._starting is None and self._together > TOGETHER_BEFORE:
            self._starting = asyncio.create_task(ModelApart.started(self._folder, self._threads + SPARE_WORKERS))
        apart = self._starting.result() if self._starting and self._starting.done() else None
        return apart if apart and apart.is_ready else None

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        return await self._bulk.embed(texts, batch=self._batch)

    async def close(self) -> None:
        self._single.close()
        if "_bulk" in self.__dict__:
            self._bulk.close()
        apart = await self._starting if self._starting else None
        if apart is not None:
            await apart.close()

    def _check(self) -> None:
        try:
            width = self._single.forward([[0]]).shape[1]
        except Exception as error:
            raise Invalid(
                f"model {self.model} is not an embedding model: {error}", details={"model": self.model}
            ) from error
        if width != self.dimensions:
            raise Invalid(
                f"model {self.model} gives {width} dimensions where {self.dimensions} are declared",
                details={"model": self.model, "dimensions": width},
            )


class Lane:
    """A session of its own with workers of its own."""

    def __init__(
        self,
        onnx: Path,
        tokenizer: Path,
        *,
        pooling: str,
        window: int,
        device: str,
        threads: int,
        workers: int,
        spare: int = 0,
    ) -> None:
        self._session = open_session(onnx, device, threads)
        self._inputs = {i.name for i in self._session.get_inputs()}
        self._pooling = pooling
        self._tokenizer = read_tokenizer(tokenizer)
        self._tokenizer.enable_truncation(window)
        self._tokenizer.no_padding()
        self._size = workers
        self._workers = ThreadPoolExecutor(max_workers=workers + spare, thread_name_prefix="embed")

    @property
    def is_on_cpu(self) -> bool:
        """Whether no GPU computes."""
        return bool(self._session.get_providers()[0] == "CPUExecutionProvider")

    async def embed(self, texts: Sequence[str], batch: int) -> list[Vector]:
        """One vector per text, in order; batches are made of texts of like length."""
        loop = asyncio.get_running_loop()
        if 0 < len(texts) <= batch:
            return list(await loop.run_in_executor(self._workers, self.embed_batch, texts))
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        batches = [by_length[start : start + batch] for start in range(0, len(by_length), batch)]
        # No more than can run: what comes after a long call need not wait for the whole of it.
        room = asyncio.Semaphore(self._size)

        async def run(chosen: Sequence[int]) -> Vector:
            async with room:
                return await loop.run_in_executor(self._workers, self.embed_batch, [texts[i] for i in chosen])

        done = await asyncio.gather(*map(run, batches))
        vectors: list[Vector] = [np.empty(0, np.float32)] * len(texts)
        for chosen, rows in zip(batches, done, strict=True):
            for i, vector in zip(chosen, rows, strict=True):
                vectors[i] = vector
        return vectors

    def close(self) -> None:
        self._workers.shutdown(wait=True, cancel_futures=True)

    def embed_batch(self, texts: Sequence[str]) -> Vector:
        """Unit vectors of texts, all in one go, here and now."""
        return self.forward([e.ids for e in self._tokenizer.encode_batch(list(texts))])

    def forward(self, rows: Sequence[Sequence[int]]) -> Vector:
        """Unit vectors for rows of token numbers."""
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
            said = hidden if len(rows) == 1 else hidden * mask[:, :, None]
            pooled = said.sum(axis=1, dtype=np.float64) / mask.sum(axis=1, keepdims=True)
        lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
        return np.asarray(pooled / np.maximum(lengths, 1e-12), dtype=np.float32)


def read_tokenizer(file: Path) -> Tokenizer:
    """The tokenizer of a file. Raises Invalid."""
    from tokenizers import Tokenizer  # imports take half a second: only where a model is used

    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises no class of its own
        raise Invalid(f"{file} is not a tokenizer: {error}", details={"file": str(file)}) from error


def open_session(onnx: Path, device: str, threads: int) -> onnxruntime.InferenceSession:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that spin while they wait take the core that the rest of a search runs on: docs/decisions/0004.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    chosen = _providers(device, ort.get_available_providers())
    try:
        session = ort.InferenceSession(str(onnx), options, providers=chosen)
    except Exception as error:
        if device == "gpu" or chosen == ["CPUExecutionProvider"]:
            raise Unavailable(f"{onnx.name} could not be loaded: {error}", details={"file": str(onnx)}) from error
        log.debug("gpu_disabled", extra={"reason": str(error)})
        return ort.InferenceSession(str(onnx), options, providers=["CPUExecutionProvider"])
    used = session.get_providers()
    if device == "gpu" and used[0] == "CPUExecutionProvider":
        raise _no_gpu(used)
    log.debug("gpu_enabled" if used[0] != "CPUExecutionProvider" else "gpu_disabled", extra={"providers": used})
    return session


GPU_PROVIDERS = (
    "CUDAExecutionProvider",
    "ROCMExecutionProvider",
    "MIGraphXExecutionProvider",
    "CoreMLExecutionProvider",
    "DmlExecutionProvider",
)


def _providers(device: str, available: Sequence[str]) -> list[str]:
    if device == "cpu":
        return ["CPUExecutionProvider"]
    gpus = [p for p in GPU_PROVIDERS if p in available]
    if device == "gpu" and not gpus:
        raise _no_gpu(available)
    return [*gpus, "CPUExecutionProvider"]


def _no_gpu(found: Sequence[str]) -> Unavailable:
    return Unavailable(
        f"TOOLSCRIPT_SEARCH_DEVICE=gpu, but ONNX Runtime has no GPU here (it has: {', '.join(found)}); "
        "install toolscript[gpu], or use auto or cpu",
        details={"device": "gpu", "providers": list(found)},
    )


def is_dynamically_quantised(onnx: Path) -> bool:
    return b"DynamicQuantizeLinear" in onnx.read_bytes()
