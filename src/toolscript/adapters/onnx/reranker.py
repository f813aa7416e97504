"""Reranks with a cross-encoder in ONNX Runtime: query and passage form one text with two segments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from toolscript.adapters.onnx.model_folders import (
    ONNX_FILES,
    ModelCard,
    ModelFolder,
    download,
    find_locally,
    find_model_card,
)
from toolscript.adapters.onnx.session import OnnxSession, read_tokenizer
from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed

if TYPE_CHECKING:
    from tokenizers import Encoding

MAX_WINDOW = 512
PADDING = ("[PAD]", "<pad>", "<|padding|>")
MAX_CLASSES = 2


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
        self.model = folder.card.name
        # The query gets half of the window, the passage the rest.
        self._max_query = folder.card.window // 2
        self._queries = read_tokenizer(folder.tokenizer, self._max_query)
        self._pairs = read_tokenizer(folder.tokenizer, folder.card.window, "only_second")
        ids = (self._pairs.token_to_id(token) for token in PADDING)
        self._padding = next((token_id for token_id in ids if token_id is not None), 0)
        self._session = OnnxSession(folder.onnx, device)
        try:
            self._score(self._tokenize("a query", ["a passage", "another one, longer"]))
        except Exception as error:
            self._session.close()
            raise Invalid(
                f"model {self.model} is not a cross-encoder: {error}", details={"model": self.model}
            ) from error

    async def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """How well each passage answers the query, from 0 to 1, in order."""
        if not passages:
            return []
        try:
            pairs = await self._session.run(self._tokenize, query, passages)
            scores = await self._session.run_batches(self._score, pairs, len)
        except Exception as error:
            raise Unavailable(f"reranker {self.model} failed: {error}", details={"model": self.model}) from error
        if not np.isfinite(scores).all():
            raise UpstreamFailed(
                f"reranker {self.model} gave scores that are not numbers", details={"model": self.model}
            )
        return scores

    async def close(self) -> None:
        self._session.close()

    def _tokenize(self, query: str, passages: Sequence[str]) -> list[Encoding]:
        """Pairs of query and passage; the passage is cut where the two are too long."""
        query, *others = (text.encode("utf-8", "replace").decode() for text in (query, *passages))
        ends = [end for _, end in self._queries.encode(query, add_special_tokens=False).offsets]
        short = query if len(ends) < self._max_query else query[: ends[-1]]
        return self._pairs.encode_batch([(short, passage) for passage in others])

    def _score(self, pairs: Sequence[Encoding]) -> list[float]:
        """Scores from 0 to 1. Raises ValueError for a model that gives something else than one or two classes."""
        output, _ = self._session.forward([p.ids for p in pairs], [p.type_ids for p in pairs], self._padding)
        logits = np.asarray(output, np.float64).reshape(len(pairs), -1)
        if logits.shape[1] > MAX_CLASSES:
            raise ValueError(f"it gives {logits.shape[1]} numbers for a passage, not one or two")
        # With two classes the second means relevant: the softmax of two is the sigmoid of their difference.
        logit = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        with np.errstate(invalid="ignore"):
            return [float(score) for score in np.exp(-np.logaddexp(0.0, -logit))]


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
    return ModelFolder(ModelCard((place.name,), dimensions=1, pooling="none", window=_window(place)), onnx, tokenizer)


def _window(place: Path) -> int:
    """The number of tokens that the model reads, from config.json if that has it."""
    try:
        window = int(json.loads((place / "config.json").read_text(encoding="utf-8"))["max_position_embeddings"])
        return min(window, MAX_WINDOW) if window > 0 else MAX_WINDOW
    except (OSError, ValueError, LookupError, TypeError):
        return MAX_WINDOW
