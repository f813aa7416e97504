"""Rerankers to be tested with: a real cross-encoder, small enough to be made on the spot, and a service on loopback.

Both count the words that a query and a passage share, so that everybody can tell what the right scores are.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from tests.doubles import HttpDouble

_TOLD = """
the a of to and in is for with on cat dog fish bird feeds walks eats reads tree river city moon sun rain snow
bread water fire stone glass paper letter number green blue red old new small large
"""
WORDS = _TOLD.split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def overlap(query: str, passage: str) -> int:
    """How many pairs of equal known words there are, one of the query and one of the passage."""
    known = [word for word in passage.lower().split() if word in WORDS]
    return sum(known.count(word) for word in query.lower().split() if word in WORDS)


def share(query: str, passage: str) -> float:
    """The score that both give: no shared word is 0.12, two are 0.5, more are more."""
    return 1 / (1 + math.exp(2 - overlap(query, passage)))


def cross_encoder(
    folder: Path, *, classes: int = 1, segments: bool = True, window: int | None = None, file: str = "onnx/model.onnx"
) -> Path:
    """A folder with a cross-encoder and its tokenizer: its logits are the overlap less two."""
    (folder / file).parent.mkdir(parents=True)
    onnx.save(_overlap_model(classes, segments=segments), str(folder / file))
    words = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    if window:
        (folder / "config.json").write_text(json.dumps({"max_position_embeddings": window, "hidden_size": 8}))
    return folder


def _overlap_model(classes: int, *, segments: bool) -> Any:
    """Compares every token with every other one, and counts the equal ones that stand in different segments. A model
    that takes no segments tells them apart by the first separator."""
    nodes = [
        helper.make_node("Greater", ["input_ids", "last_special"], ["is_word"]),
        helper.make_node("Cast", ["is_word"], ["word"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["segment_ids"], ["second"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["word", "mask"], ["counted"]),
        helper.make_node("Mul", ["counted", "second"], ["of_passage"]),
        helper.make_node("Sub", ["counted", "of_passage"], ["of_query"]),
        helper.make_node("Unsqueeze", ["input_ids", "two"], ["down"]),
        helper.make_node("Unsqueeze", ["input_ids", "one"], ["across"]),
        helper.make_node("Equal", ["down", "across"], ["equal"]),
        helper.make_node("Cast", ["equal"], ["same"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["of_passage", "two"], ["passage_column"]),
        helper.make_node("Unsqueeze", ["of_query", "one"], ["query_row"]),
        helper.make_node("MatMul", ["query_row", "same"], ["hits"]),
        helper.make_node("MatMul", ["hits", "passage_column"], ["found"]),
        helper.make_node("Squeeze", ["found", "two"], ["total"]),
        helper.make_node("Sub", ["total", "expected"], ["logit"]),
    ]
    if segments:
        nodes.insert(0, helper.make_node("Identity", ["token_type_ids"], ["segment_ids"]))
    else:
        nodes[:0] = [
            helper.make_node("Equal", ["input_ids", "last_special"], ["is_separator"]),
            helper.make_node("Cast", ["is_separator"], ["separator"], to=TensorProto.FLOAT),
            helper.make_node("CumSum", ["separator", "axis"], ["seen"]),
            helper.make_node("Min", ["seen", "at_most"], ["segment_ids"]),
        ]
    if classes == 1:
        nodes.append(helper.make_node("Identity", ["logit"], ["logits"]))
    else:
        # The difference of the first two is what counts.
        nodes.append(helper.make_node("Neg", ["zero_logit"], ["first"]))
        nodes.insert(-1, helper.make_node("Mul", ["logit", "zero"], ["zero_logit"]))
        nodes.append(helper.make_node("Concat", ["first", "logit", *["logit"] * (classes - 2)], ["logits"], axis=1))
    numbers = [
        helper.make_tensor("last_special", TensorProto.INT64, [1], [3]),
        helper.make_tensor("one", TensorProto.INT64, [1], [1]),
        helper.make_tensor("two", TensorProto.INT64, [1], [2]),
        helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
        helper.make_tensor("at_most", TensorProto.FLOAT, [1], [1.0]),
        helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0]),
        helper.make_tensor("expected", TensorProto.FLOAT, [1], [2.0]),
    ]
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if segments else [])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])
    graph = helper.make_graph(nodes, "overlap", inputs, [output], initializer=numbers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


class RerankApi(HttpDouble):
    """A rerank service. With `takes_texts` it is strict in the way of Text Embeddings Inference."""

    MOST_TEXTS = 32

    def __init__(self, *, takes_texts: bool = False) -> None:
        super().__init__()
        self._takes_texts = takes_texts
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.first: list[tuple[int, dict[str, str]]] = []
        """Statuses and headers to answer with before anything else."""
        self.change: Callable[[list[dict[str, Any]]], Any] = lambda rows: rows
        self.say_instead: bytes | None = None
        self.hold = threading.Event()
        self.hold.set()

    def __exit__(self, *raised: object) -> None:
        self.hold.set()
        super().__exit__(*raised)

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.keys.append(request.headers.get("Authorization"))
        asked = json.loads(body)
        self.asked.append(asked)
        self.hold.wait(30)
        try:
            if self.first:
                status, headers = self.first.pop(0)
                self.send(request, status, b'{"message": "not now"}', headers)
            elif self.say_instead is not None:
                self.send(request, 200, self.say_instead)
            else:
                self._score(request, asked)
        except OSError:
            request.close_connection = True  # whoever asked has gone

    def _score(self, request: BaseHTTPRequestHandler, asked: dict[str, Any]) -> None:
        name, number = ("texts", "score") if self._takes_texts else ("documents", "relevance_score")
        if name not in asked:
            told = f"Failed to deserialize the JSON body into the target type: missing field `{name}` at line 1"
            self.send(request, 422, told.encode(), {"Content-Type": "text/plain"})
            return
        passages = asked[name]
        if self._takes_texts and len(passages) > self.MOST_TEXTS:
            self.send(request, 422, b'{"error": "batch size > maximum allowed batch size 32"}')
            return
        rows = [{"index": i, number: share(asked["query"], passage)} for i, passage in enumerate(passages)]
        best_first = self.change(sorted(rows, key=lambda row: -float(row[number])))
        told_rows = best_first if self._takes_texts else {"model": asked.get("model"), "results": best_first}
        self.send(request, 200, json.dumps(told_rows).encode())
