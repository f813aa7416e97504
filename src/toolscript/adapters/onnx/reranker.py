"""Reranks with a cross-encoder in ONNX Runtime: query and passage form one text with two segments.

Passages are sorted by length and scored in batches where that is safe. A dynamically quantised model scores one passage
at a time: in a batch, a score would depend on the other passages. See docs/decisions/0004.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolscript.adapters.onnx.embedder import (
    BATCH,
    MAX_THREADS,
    is_dynamically_quantised,
    open_session,
    read_tokenizer,
)
from toolscript.adapters.onnx.model_folders import (
    ONNX_FILES,
    ModelCard,
    ModelFolder,
    download,
    find_locally,
    find_model_card,
)
from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed

MAX_WINDOW = 512
PADDING = ("[PAD]", "<pad>", "<|padding|>")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
MAX_CLASSES = 2


class _PairTokens(NamedTuple):
    """Query and passage as token ids, and the segment of each token."""

    ids: Sequence[int]
    segments: Sequence[int]


def find_reranker(name: str, cache_dir: Path, hub_url: str, token: str | None = None) -> ModelFolder:
    """The model in a folder, in the cache, or from the hub. A folder needs only tokenizer.json and the model.

    Raises Invalid for a folder without a model, and Unavailable when the hub does not answer.
    """
    for place in (Path(name).expanduser(), cache_dir / name.replace("/", "--")):
        if find_model_card(name) is None and place.is_dir():
            return _folder(place)
    return find_locally(name, cache_dir) or download(name, cache_dir, hub_url, token)


class OnnxReranker:
    """A reranker over a model folder. Loads at once; scores in worker threads, never on the event loop."""

    def __init__(self, folder: ModelFolder, *, device: str = "auto") -> None:
        """Raises Invalid for a model that is not a cross-encoder, Unavailable for `gpu` without a GPU."""
        threads = min(os.cpu_count() or 1, MAX_THREADS)
        self._name = folder.card.name
        self._batch = 1 if is_dynamically_quantised(folder.onnx) else BATCH
        workers = 1 if self._batch > 1 else threads
        self._session = open_session(folder.onnx, device, threads if workers == 1 else 1)
        self._inputs = {each.name: each.type for each in self._session.get_inputs()}
        self._output = _logits([each.name for each in self._session.get_outputs()])
        self._pairs = _PairTokenizer(folder)
        self._workers = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="rerank")
        self._limit = asyncio.Semaphore(workers)
        try:
            self._check()
        except BaseException:
            self._workers.shutdown()
            raise

    @property
    def model(self) -> str:
        return self._name

    async def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """How well each passage answers the query, from 0 to 1, in order."""
        if not passages:
            return []
        rows = await self._run(self._pairs.tokenize, query, passages)
        by_length = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))
        batches = [by_length[start : start + self._batch] for start in range(0, len(rows), self._batch)]
        done = await asyncio.gather(*(self._run(self._forward, [rows[i] for i in chosen]) for chosen in batches))
        scores = np.empty(len(rows))
        for chosen, found in zip(batches, done, strict=True):
            scores[chosen] = found
        if not np.isfinite(scores).all():
            raise UpstreamFailed(
                f"reranker {self._name} gave scores that are not numbers", details={"model": self._name}
            )
        return [float(score) for score in scores]

    async def close(self) -> None:
        self._workers.shutdown(wait=True, cancel_futures=True)

    async def _run(self, work: Any, *given: Any) -> Any:
        # Submits only what can run now: a later call must not wait until all of a long call is done.
        async with self._limit:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._workers, work, *given)
            except Exception as error:
                raise Unavailable(f"reranker {self._name} failed: {error}", details={"model": self._name}) from error

    def _forward(self, rows: Sequence[_PairTokens]) -> NDArray[np.float64]:
        """Scores from 0 to 1 for rows of token ids."""
        ids = np.full((len(rows), max(len(row.ids) for row in rows)), self._pairs.padding, np.int64)
        mask, segments = np.zeros_like(ids), np.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row.ids)] = row.ids
            mask[number, : len(row.ids)] = 1
            segments[number, : len(row.ids)] = row.segments
        feeds = dict(zip(INPUTS, (ids, mask, segments), strict=True))
        inputs = {
            name: feeds[name].astype(np.int32) if kind == "tensor(int32)" else feeds[name]
            for name, kind in self._inputs.items()
        }
        logits = np.asarray(self._session.run([self._output], inputs)[0], np.float64).reshape(len(rows), -1)
        if logits.shape[1] > MAX_CLASSES:
            raise ValueError(f"it gives {logits.shape[1]} numbers for a passage, not one or two")
        # With two classes the second means relevant: the softmax of two is the sigmoid of their difference.
        logit = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        with np.errstate(invalid="ignore"):
            return np.exp(-np.logaddexp(0.0, -logit))

    def _check(self) -> None:
        try:
            if unknown := self._inputs.keys() - INPUTS:
                raise ValueError(f"it has unknown inputs: {', '.join(sorted(unknown))}")  # noqa: TRY301
            self._forward(self._pairs.tokenize("a query", ["a passage", "another one, longer"]))
        except Exception as error:
            raise Invalid(
                f"model {self._name} is not a cross-encoder: {error}", details={"model": self._name}
            ) from error


class _PairTokenizer:
    """Tokenizes pairs of query and passage; cuts the passage where the two are too long."""

    def __init__(self, folder: ModelFolder) -> None:
        self._queries, self._pairs = (read_tokenizer(folder.tokenizer) for _ in range(2))
        # The query gets half of the window, the passage the rest.
        self._max_query = folder.card.window // 2
        self._queries.no_padding()
        self._queries.enable_truncation(self._max_query)
        self._pairs.no_padding()
        self._pairs.enable_truncation(folder.card.window, strategy="only_second")
        ids = (self._pairs.token_to_id(token) for token in PADDING)
        self.padding = next((token_id for token_id in ids if token_id is not None), 0)

    def tokenize(self, query: str, passages: Sequence[str]) -> list[_PairTokens]:
        short = self._shorten(_replace_surrogates(query))
        pairs = [(short, _replace_surrogates(passage)) for passage in passages]
        return [_PairTokens(each.ids, each.type_ids) for each in self._pairs.encode_batch(pairs)]

    def _shorten(self, query: str) -> str:
        ends = [end for _, end in self._queries.encode(query, add_special_tokens=False).offsets]
        return query if len(ends) < self._max_query else query[: ends[-1]]


def _replace_surrogates(text: str) -> str:
    """Replaces lone surrogates, which tokenizers refuse."""
    return text.encode("utf-8", "replace").decode()


def _logits(outputs: Sequence[str]) -> str:
    return "logits" if "logits" in outputs else outputs[0]


def _folder(place: Path) -> ModelFolder:
    """A folder with a model and a tokenizer, without any other file. Raises Invalid."""
    named = [place / file for file in ONNX_FILES if (place / file).is_file()]
    others = [*sorted(place.glob("onnx/model*.onnx")), *sorted(place.glob("model*.onnx"))]
    onnx = next(iter([*named, *others]), None)
    tokenizer = place / "tokenizer.json"
    if onnx is None or not tokenizer.is_file():
        raise Invalid(
            f"{place} has no usable reranker: it needs tokenizer.json and a model, such as onnx/model.onnx or "
            "model.onnx",
            details={"field": "TOOLSCRIPT_RERANKER", "folder": str(place)},
        )
    card = ModelCard(
        name=place.name,
        aliases=(place.name,),
        repository="",
        dimensions=1,
        pooling="none",
        prefix="",
        window=_window(place),
        files=ONNX_FILES,
        similarity=None,
    )
    return ModelFolder(card, onnx, tokenizer)


def _window(place: Path) -> int:
    """The number of tokens that the model reads, from config.json where it says so."""
    try:
        window = int(json.loads((place / "config.json").read_text(encoding="utf-8"))["max_position_embeddings"])
        return min(window, MAX_WINDOW) if window > 0 else MAX_WINDOW
    except (OSError, ValueError, LookupError, TypeError):
        return MAX_WINDOW
