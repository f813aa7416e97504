"""Runs models in ONNX Runtime, in worker threads and in batches: what the embedder and the reranker share.

Inputs are sorted by length and run in batches where that is safe. A dynamically quantised model scales its activations
over the whole batch, so that a result would depend on the other inputs (by more than the quantisation itself costs):
such a model runs one input at a time, no slower on a CPU. See docs/decisions/0004.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolscript.domain.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from toolscript.adapters.onnx.runtime import onnxruntime

BATCH = 32
# A GPU needs large batches: up to so many inputs, and so many tokens with padding, which take 0.5 GB with MiniLM.
GPU_BATCH, GPU_TOKENS = 1024, 32_768
# While the GPU computes one batch, others are tokenized and averaged.
GPU_WORKERS = 4
THREADS = min(os.cpu_count() or 1, 4)
# One thread more than cores: it computes while another thread waits for Python's lock.
SPARE_WORKERS = 1
# With 2 cores and an ingest on both, a search takes 1.5 times as long as without; with the same priority, 4 times.
BACKGROUND_NICENESS = 15
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# Of a reranker, and of an embedding model that averages its tokens itself.
OUTPUTS = ("logits", "sentence_embedding")
CPU = "CPUExecutionProvider"
GPU_PROVIDERS = (
    "CUDAExecutionProvider",
    "ROCMExecutionProvider",
    "MIGraphXExecutionProvider",
    "CoreMLExecutionProvider",
    "DmlExecutionProvider",
)

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)


class OnnxSession:
    """A loaded model with its own worker threads. `batch` is the number of inputs that it runs together."""

    def __init__(self, onnx: Path, device: str, *, single: bool = False, background: bool = False) -> None:
        """With `single`, one input uses every core; otherwise inputs that cannot be batched use one core each. In the
        `background`, other threads come first. Raises Unavailable."""
        is_quantized = b"DynamicQuantizeLinear" in onnx.read_bytes()
        is_parallel = is_quantized and not single
        # A GPU has no kernels for it: half as fast as 16 cores of a CPU.
        is_better_on_cpu = is_quantized and device == "auto"
        self._session = _load(onnx, "cpu" if is_better_on_cpu else device, 1 if is_parallel else THREADS)
        self.is_on_gpu = self._session.get_providers()[0] != CPU
        self.batch = 1 if is_quantized else GPU_BATCH if self.is_on_gpu else BATCH
        self._workers = THREADS if is_parallel else GPU_WORKERS if self.is_on_gpu else 1
        self._inputs = {each.name: each.type for each in self._session.get_inputs()}
        outputs = [each.name for each in self._session.get_outputs()]
        self._output = next((name for name in OUTPUTS if name in outputs), outputs[0])
        self._pool = ThreadPoolExecutor(
            self._workers + SPARE_WORKERS * is_parallel,
            thread_name_prefix="onnx",
            initializer=_lower_priority if background else None,
        )

    async def run(self, work: Callable[..., R], *arguments: Any) -> R:
        """Runs the work in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    async def run_batches(
        self, work: Callable[[Sequence[T]], Sequence[R]], items: Sequence[T], length: Callable[[T], int]
    ) -> list[R]:
        """The results of the work for each item, in order; batches are made of items of similar length (in tokens, an
        estimate is enough)."""
        if 0 < len(items) <= min(self.batch, BATCH):
            return list(await self.run(work, items))
        batches = cut_batches([*map(length, items)], self.batch, GPU_TOKENS if self.is_on_gpu else None)
        # Submits only what can run now: a later call must not wait until all of a long call is done.
        room = asyncio.Semaphore(self._workers)

        async def run(chosen: Sequence[int]) -> Sequence[R]:
            async with room:
                return await self.run(work, [items[i] for i in chosen])

        done = await asyncio.gather(*map(run, batches))
        results = dict(zip(chain.from_iterable(batches), chain.from_iterable(done), strict=True))
        return [results[i] for i in range(len(items))]

    def forward(
        self, rows: Sequence[Sequence[int]], segments: Sequence[Sequence[int]] = (), padding: int = 0
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The model's output for rows of token ids, and the attention mask. Raises ValueError for unknown inputs."""
        if unknown := self._inputs.keys() - INPUTS:
            raise ValueError(f"it has unknown inputs: {', '.join(sorted(unknown))}")
        ids = np.full((len(rows), max(map(len, rows))), padding, np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
            types[number, : len(row)] = segments[number] if segments else 0
        feeds = dict(zip(INPUTS, (ids, mask, types), strict=True))
        inputs = {
            name: feeds[name].astype(np.int32) if kind == "tensor(int32)" else feeds[name]
            for name, kind in self._inputs.items()
        }
        return self._session.run([self._output], inputs)[0], mask

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def cut_batches(lengths: Sequence[int], max_items: int, max_tokens: int | None) -> list[list[int]]:
    """The numbers of the items in batches, short items first, with at most so many tokens each when all are padded to
    the longest; a longer item is a batch by itself."""
    batches: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        count = len(batches[-1]) + 1 if batches else 0
        if not batches or count > max_items or (max_tokens is not None and count * lengths[number] > max_tokens):
            batches.append([])
        batches[-1].append(number)
    return batches


def _lower_priority() -> None:
    """Lets other threads go first, on systems where threads have priorities of their own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND_NICENESS)


def read_tokenizer(file: Path, window: int | None = None, strategy: str = "longest_first") -> Tokenizer:
    """Reads a tokenizer.json file; the tokenizer cuts texts to the window, if there is one. Raises Invalid."""
    from tokenizers import Tokenizer  # the import takes half a second: only where a model is used

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library has no exception class of its own
        raise Invalid(f"{file} is not a tokenizer: {error}", details={"file": str(file)}) from error
    tokenizer.no_padding()
    if window is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(window, strategy=strategy)
    return tokenizer


def choose_providers(device: str, available: Sequence[str]) -> list[str]:
    """The providers to try, in order. Raises Unavailable for `gpu` without a GPU provider."""
    gpus = [p for p in GPU_PROVIDERS if p in available and device != "cpu"]
    if device == "gpu" and not gpus:
        raise _gpu_error(available)
    return [*gpus, CPU]


def _load(onnx: Path, device: str, threads: int) -> onnxruntime.InferenceSession:
    """Loads a model, on a GPU where `device` allows one. Raises Unavailable."""
    from toolscript.adapters.onnx.runtime import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that spin while they wait occupy the core that the rest of a search needs: docs/decisions/0004.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    chosen = choose_providers(device, ort.get_available_providers())
    try:
        session = ort.InferenceSession(str(onnx), options, providers=chosen)
    except Exception as error:
        if device == "gpu" or chosen == [CPU]:
            raise Unavailable(f"{onnx.name} could not be loaded: {error}", details={"file": str(onnx)}) from error
        log.debug("gpu_disabled", extra={"reason": str(error)})
        return ort.InferenceSession(str(onnx), options, providers=[CPU])
    used = session.get_providers()
    if device == "gpu" and used[0] == CPU:
        raise _gpu_error(used)
    log.debug("gpu_enabled" if used[0] != CPU else "gpu_disabled", extra={"providers": used})
    return session


def _gpu_error(available: Sequence[str]) -> Unavailable:
    return Unavailable(
        f"TOOLSCRIPT_SEARCH_DEVICE=gpu: ONNX Runtime has no GPU here (available: {', '.join(available)}); "
        "install toolscript[gpu], or set auto or cpu",
        details={"device": "gpu", "providers": list(available)},
    )
