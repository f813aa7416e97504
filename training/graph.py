"""Writes an encoder as an ONNX graph, from its weights alone: BERT and MPNet, with weights of 32 or 8 bits.

Written by hand rather than traced: the same weights give the same bytes with every version of PyTorch, and none is
needed. The output is the last hidden state; pooling is the reader's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from training.weights import Config, Weights

OPSET, IR_VERSION = 20, 10
MASKED = -1e9
MAX_POSITION_BUCKETS, MAX_DISTANCE = 32, 128  # of MPNet's relative positions


def build_graph(config: Config, weights: Weights, *, quantise: bool) -> onnx.ModelProto:
    """The encoder as a model with the inputs `input_ids` and `attention_mask`. With `quantise` tables and matrices have
    8 bits, with a scale for each row of a table and each column of a matrix; 7 bits of them are used, because older x86
    processors overflow with 8."""
    return _GraphBuilder(config, weights, quantise=quantise).build()


class _GraphBuilder:
    """Collects nodes and constants. Every method returns the name of what it added."""

    def __init__(self, config: Config, weights: Weights, *, quantise: bool) -> None:
        self._config, self._weights, self._quantise = config, weights, quantise
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._is_mpnet = config["model_type"] == "mpnet"

    def build(self) -> onnx.ModelProto:
        state = self._embed()
        masked = self._mask()
        for number in range(self._config["num_hidden_layers"]):
            state = self._layer(state, masked, f"encoder.layer.{number}")
        self._nodes.append(helper.make_node("Identity", [state], ["last_hidden_state"]))
        sizes = ["batch", "tokens"]
        graph = helper.make_graph(
            self._nodes,
            "encoder",
            [helper.make_tensor_value_info(n, TensorProto.INT64, sizes) for n in ("input_ids", "attention_mask")],
            [
                helper.make_tensor_value_info(
                    "last_hidden_state", TensorProto.FLOAT, [*sizes, self._config["hidden_size"]]
                )
            ],
            list(self._constants.values()),
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="toolscript")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model

    def _add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def _numbers(self, *values: int) -> str:
        return self._constant("numbers_" + "_".join(map(str, values)), np.array(values, np.int64))

    def _floats(self, name: str, value: NDArray[Any] | float) -> str:
        return self._constant(name, np.asarray(value, np.float32))

    def _embed(self) -> str:
        words = self._look_up("embeddings.word_embeddings.weight", "input_ids")
        positions = self._weights["embeddings.position_embeddings.weight"]
        first = 2 if self._is_mpnet else 0  # MPNet counts from the number after that of padding
        added = positions[first:]
        if not self._is_mpnet:
            added = added + self._weights["embeddings.token_type_embeddings.weight"][0]
        length = self._add("Shape", "input_ids", start=1, end=2)
        row = self._add("Slice", self._floats("positions", added), self._numbers(0), length, self._numbers(0))
        return self._normalise(self._add("Add", words, row), "embeddings.LayerNorm")

    def _look_up(self, name: str, ids: str) -> str:
        table = self._weights[name]
        if not self._quantise:
            return self._add("Gather", self._floats(name, table), ids)
        scale = np.abs(table).max(axis=1, keepdims=True).clip(1e-12) / 127
        rows = self._add("Gather", self._constant(f"{name}.int8", np.rint(table / scale).astype(np.int8)), ids)
        scales = self._add("Gather", self._floats(f"{name}.scale", scale), ids)
        return self._add("Mul", self._add("Cast", rows, to=TensorProto.FLOAT), scales)

    def _mask(self) -> str:
        """What to add to the attention: nothing for tokens, much below zero for padding."""
        mask = self._add("Cast", "attention_mask", to=TensorProto.FLOAT)
        padding = self._add("Sub", self._floats("one", 1.0), mask)
        added = self._add("Mul", padding, self._floats("masked", MASKED))
        added = self._add("Unsqueeze", added, self._numbers(1, 2))
        return self._add("Add", added, self._relative_positions()) if self._is_mpnet else added

    def _relative_positions(self) -> str:
        """MPNet's attention by distance: a row of the table for each distance between two tokens."""
        reach = self._config["max_position_embeddings"] - 2
        buckets = bucket_distances(np.arange(-reach + 1, reach))
        table = self._weights["encoder.relative_attention_bias.weight"][buckets]
        count = self._add("Squeeze", self._add("Shape", "input_ids", start=1, end=2), self._numbers(0))
        places = self._add("Range", self._number(0), count, self._number(1))
        columns, rows = (self._add("Unsqueeze", places, self._numbers(axis)) for axis in (0, 1))
        distance = self._add("Add", self._add("Sub", columns, rows), self._number(reach - 1))
        found = self._add("Gather", self._floats("distances", table), distance)
        return self._add("Unsqueeze", self._add("Transpose", found, perm=[2, 0, 1]), self._numbers(0))

    def _number(self, value: int) -> str:
        return self._constant(f"number_{value}", np.array(value, np.int64))

    def _layer(self, state: str, masked: str, prefix: str) -> str:
        attention, output = ("attention.attn", "attention.attn.o") if self._is_mpnet else ("attention.self", None)
        own = ("q", "k", "v") if self._is_mpnet else ("query", "key", "value")
        found = self._attend(state, masked, [f"{prefix}.{attention}.{name}" for name in own])
        found = self._linear(found, [f"{prefix}.{output or 'attention.output.dense'}"])
        norm = "attention.LayerNorm" if self._is_mpnet else "attention.output.LayerNorm"
        state = self._normalise(self._add("Add", found, state), f"{prefix}.{norm}")
        inner = self._add("Gelu", self._linear(state, [f"{prefix}.intermediate.dense"]))
        inner = self._linear(inner, [f"{prefix}.output.dense"])
        return self._normalise(self._add("Add", inner, state), f"{prefix}.output.LayerNorm")

    def _attend(self, state: str, masked: str, names: list[str]) -> str:
        heads = self._config["num_attention_heads"]
        size = self._config["hidden_size"] // heads
        joined = self._linear(state, names)
        parts = self._nodes_outputs("Split", joined, 3, axis=2, num_outputs=3)
        shape = self._numbers(0, 0, heads, size)
        query, key, value = (
            self._add("Transpose", self._add("Reshape", part, shape), perm=perm)
            for part, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        scores = self._add("Mul", self._add("MatMul", query, key), self._floats("scale", size**-0.5))
        shares = self._add("Softmax", self._add("Add", scores, masked), axis=-1)
        found = self._add("Transpose", self._add("MatMul", shares, value), perm=[0, 2, 1, 3])
        return self._add("Reshape", found, self._numbers(0, 0, heads * size))

    def _nodes_outputs(self, operator: str, value: str, count: int, **attributes: Any) -> list[str]:
        names = [f"{operator}_{len(self._nodes)}_{n}" for n in range(count)]
        self._nodes.append(helper.make_node(operator, [value], names, **attributes))
        return names

    def _linear(self, value: str, names: list[str]) -> str:
        """The linear maps of these names, side by side."""
        matrix = np.concatenate([self._weights[f"{name}.weight"] for name in names]).T
        bias = np.concatenate([self._weights[f"{name}.bias"] for name in names])
        name = names[0]
        if not self._quantise:
            found = self._add("MatMul", value, self._floats(f"{name}.weight", matrix))
            return self._add("Add", found, self._floats(f"{name}.bias", bias))
        return self._linear_int8(value, name, matrix, bias)

    def _linear_int8(self, value: str, name: str, matrix: NDArray[Any], bias: NDArray[Any]) -> str:
        scale = np.abs(matrix).max(axis=0).clip(1e-12) / 63
        whole = np.clip(np.rint(matrix / scale), -64, 63).astype(np.int8)
        parts = self._nodes_outputs("DynamicQuantizeLinear", value, 3)
        product = self._add("MatMulInteger", parts[0], self._constant(f"{name}.int8", whole), parts[2])
        factor = self._add("Mul", parts[1], self._floats(f"{name}.scale", scale))
        found = self._add("Mul", self._add("Cast", product, to=TensorProto.FLOAT), factor)
        return self._add("Add", found, self._floats(f"{name}.bias", bias))

    def _normalise(self, value: str, name: str) -> str:
        gain, shift = (self._floats(f"{name}.{part}", self._weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return self._add("LayerNormalization", value, gain, shift, epsilon=float(self._config["layer_norm_eps"]))


def bucket_distances(distances: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of the row for each distance (key minus query): one each for near ones, then ever wider steps."""
    half = MAX_POSITION_BUCKETS // 2
    exact = half // 2
    size = np.abs(distances)
    growth = np.log(np.maximum(size, 1) / exact) / np.log(MAX_DISTANCE / exact) * (half - exact)
    wide = np.minimum(exact + growth.astype(np.int64), half - 1)
    return np.where(distances > 0, half, 0) + np.where(size < exact, size, wide)
