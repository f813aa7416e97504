"""Measures an encoder alone, by meaning only: R@5 and NDCG@10 on evaluation sets and on the validation servers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from training.weights import TOKENIZER

Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Vectors]
Score = tuple[float, float]
VALIDATION = "validation servers"
MAX_TOKENS = 256
TOP = 10


def measure(embed: Embed, data: Mapping[str, Any], *, validate: bool) -> dict[str, Score]:
    """R@5 and NDCG@10 by set; with `validate` also of the queries of the validation servers, among all tools."""
    sets = dict(data["sets"])
    if validate:
        sets[VALIDATION] = _build_validation_set(data)
    return {name: measure_set(embed, content) for name, content in sets.items()}


def measure_set(embed: Embed, content: Mapping[str, Any]) -> Score:
    """The means over the queries of a set."""
    keys, queries = list(content["texts"]), content["queries"]
    cosines = embed([query["text"] for query in queries]) @ embed(list(content["texts"].values())).T
    found = np.argsort(-cosines, axis=1, kind="stable")[:, :TOP]
    scores = [
        _score([keys[n] for n in row], query["grades"], query["groups"])
        for row, query in zip(found, queries, strict=True)
    ]
    return sum(r for r, _ in scores) / len(scores), sum(n for _, n in scores) / len(scores)


def format_scores(scores: Mapping[str, Score], data: Mapping[str, Any]) -> str:
    """One line: the mean over the sets of tools, then every set, in points."""
    tools = [score for name, score in scores.items() if name in data["sets"] and data["sets"][name]["kind"] == "tools"]
    lines = {"mean of tools": (_mean(tools, 0), _mean(tools, 1))} if tools else {}
    return " | ".join(f"{name} {100 * r:.1f}/{100 * n:.1f}" for name, (r, n) in (lines | dict(scores)).items())


def open_onnx(folder: Path, file: str = "model_quantized.onnx") -> Embed:
    """Embeds with an exported model as the product does: one text at a time."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    inputs = {each.name for each in session.get_inputs()}

    def embed_one(text: str) -> Vectors:
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        state = session.run(None, {name: feeds[name] for name in inputs})[0][0]
        mean = state.mean(axis=0)
        return np.asarray(mean / np.linalg.norm(mean), np.float32)

    def embed(texts: Sequence[str]) -> Vectors:
        with ThreadPoolExecutor() as pool:
            return np.stack(list(pool.map(embed_one, texts)))

    return embed


def _build_validation_set(data: Mapping[str, Any]) -> dict[str, Any]:
    tools, servers = data["tools"], frozenset(data["validation_servers"])
    texts = {str(number): tool["text"] for number, tool in enumerate(tools)}
    queries = [
        {"text": query, "grades": {str(number): 1}, "groups": [[str(number)]]}
        for number, query in data["queries"]
        if tools[number]["server"] in servers
    ]
    return {"kind": "tools", "texts": texts, "queries": queries}


def _score(ranked: Sequence[str], grades: Mapping[str, float], groups: Sequence[Sequence[str]]) -> Score:
    if not groups or set(grades.values()) != {1}:
        gains = [grades.get(key, 0.0) for key in ranked]
        hits = sum(key in grades for key in ranked[:5]) / min(5, len(grades))
        return hits, _discount(gains) / _discount(sorted(grades.values(), reverse=True)[:TOP])
    left, found = list(groups), []
    for key in ranked:
        group = next((group for group in left if key in group), None)
        found.append(float(group is not None))
        if group is not None:
            left.remove(group)
    return sum(found[:5]) / len(groups), _discount(found) / _discount([1.0] * min(TOP, len(groups)))


def _discount(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))


def _mean(scores: Sequence[Score], place: int) -> float:
    return sum(score[place] for score in scores) / len(scores)
