"""Schemas that are made to take endless time, memory or text: each is read and written within a bound."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.fixtures.examples import choose
from toolscript.codegen import schemas
from toolscript.codegen.python import generate_python
from toolscript.codegen.signatures import format_signature
from toolscript.codegen.typescript import generate_typescript
from toolscript.domain.catalog import Item, ItemType

# Each takes less than a second on a quiet machine, and without a budget minutes or gigabytes.
MAX_SECONDS = 20.0
MAX_CHARACTERS = 10_000_000


def make_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def refer(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def refer_often(definition: dict[str, Any]) -> dict[str, Any]:
    """A schema that has the definition in many places, combined with something else, so that it is written out."""
    other = make_object(other={"type": "string"})
    properties = {f"p{number}": {"allOf": [refer("d"), other]} for number in range(2000)}
    return make_object(**properties) | {"$defs": {"d": definition}}


DOUBLING = {f"a{n}": {"allOf": [refer(f"a{n + 1}"), refer(f"a{n + 1}")]} for n in range(28)} | {"a28": {}}
NODE = {"oneOf": [make_object(kind={"const": n}, left=refer("node"), right=refer("node")) for n in range(4)]}
HOSTILE = {
    "doubling references": make_object(x=refer("a0")) | {"$defs": DOUBLING},
    "recursive oneOf": make_object(x=refer("node")) | {"$defs": {"node": NODE}},
    "many properties": make_object(**{f"p{n}": {"type": "string"} for n in range(5000)})
    | {"required": [f"p{n}" for n in range(5000)]},
    "many restrictions": make_object(**{f"p{n}": {} for n in range(2000)}) | {"allOf": [{}] * 100_000},
    "repeated type": make_object(**{f"p{n}": {} for n in range(2000)}) | {"type": ["object"] * 10_000},
    "long required": refer_often({"type": "object", "required": [f"n{n}" for n in range(20_000)]}),
    "long enum": refer_often({"enum": [f"n{n}" for n in range(20_000)]}),
    "long pointer": refer_often({"$ref": "#/" + "properties/" * 20_000}),
    "long description": refer_often(make_object(a={"description": "long " * 50_000})),
    "long name": make_object(**{"N" * 200_000: make_object(**{f"a{n}": make_object(b={}) for n in range(4000)})}),
    "names that become one": make_object(**{"a" + "-" * n: make_object(b={}) for n in range(600)}),
    "patterns": {"type": "object", "patternProperties": {"^(a+)+$": {}, "(x+x+)+y": {}}},
}


@pytest.mark.slow
@pytest.mark.req("G-06", "G-07", "X-03")
@pytest.mark.parametrize(
    "kind",
    choose(
        HOSTILE,
        *("doubling references", "recursive oneOf", "many properties", "many restrictions", "long required"),
        *("long pointer", "names that become one"),
    ),
)
def test_a_hostile_schema_is_bounded(kind: str) -> None:
    schema = HOSTILE[kind]
    item = Item(server="s", name="t", type=ItemType.TOOL, description="", input_schema=schema, output_schema=schema)
    began = time.thread_time()
    texts = [format_signature(item), generate_typescript([item]), generate_python([item])]
    assert time.thread_time() - began < MAX_SECONDS
    assert sum(map(len, texts)) < MAX_CHARACTERS


@pytest.mark.req("G-06")
def test_what_is_left_out_stays_allowed() -> None:
    schema = make_object(**{f"p{n}": {"type": "string"} for n in range(20_000)}) | {"additionalProperties": False}
    item = Item(server="s", name="t", type=ItemType.TOOL, description="", input_schema=schema)
    assert "[key: string]: unknown" in generate_typescript([item])


def test_references_to_nothing_use_up_the_budget_too(monkeypatch: pytest.MonkeyPatch) -> None:
    read_path, pointers = schemas._path, []

    def count_pointers(pointer: str) -> schemas.Path | None:
        pointers.append(pointer)
        return read_path(pointer)

    monkeypatch.setattr(schemas, "_path", count_pointers)
    nowhere = {"$ref": "#" + "/%41" * 120}
    schema = make_object(**{f"p{n}": nowhere for n in range(4000)})
    format_signature(Item(server="s", name="t", description="", input_schema=schema))
    assert 0 < len(pointers) < 400
