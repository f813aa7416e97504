"""JSON Schemas become shapes, and no schema that a server sends makes the reader fail."""

from __future__ import annotations

from typing import Any

import pytest

from toolscript.codegen.schemas import MAX_DEPTH, MAX_SHAPES, MAX_VALUES, read_arguments, read_schema
from toolscript.codegen.shapes import (
    ANY_OBJECT,
    NEVER,
    NULL,
    UNKNOWN,
    Field,
    Kind,
    ListOf,
    Literal,
    Primitive,
    Record,
    Reference,
    Shape,
    TupleOf,
    Union,
    count_shapes,
    intersect,
    unite,
)

STRING, NUMBER, INTEGER = Primitive(Kind.STRING), Primitive(Kind.NUMBER), Primitive(Kind.INTEGER)


def text(value: str) -> Literal:
    return Literal(Kind.STRING, value)


def record(extra: Shape | None = None, **fields: Shape) -> Record:
    return Record(tuple(Field(name, shape) for name, shape in fields.items()), extra)


@pytest.mark.req("G-06")
@pytest.mark.parametrize(
    ("schema", "shape"),
    [
        ({"type": "string", "format": "uri"}, STRING),
        ({"type": ["string", "null"]}, Union((STRING, NULL))),
        ({"type": "string", "nullable": True}, Union((STRING, NULL))),
        ({"type": "array", "items": {"type": "integer"}}, ListOf(INTEGER)),
        ({"type": "array"}, ListOf(UNKNOWN)),
        ({"items": {"type": "string"}}, ListOf(STRING)),
        ({"prefixItems": [{"type": "string"}, {"type": "number"}]}, TupleOf((STRING, NUMBER), 2)),
        ({"items": [{"type": "string"}], "additionalItems": {"type": "number"}}, TupleOf((STRING,), 1, NUMBER)),
        ({"prefixItems": [{}, {}], "minItems": 1, "items": False}, TupleOf((UNKNOWN, UNKNOWN), 1)),
        ({"enum": ["a", "b", None]}, Union((text("a"), text("b"), NULL))),
        ({"enum": [True, 1]}, Union((Literal(Kind.BOOLEAN, True), Literal(Kind.INTEGER, 1)))),
        ({"const": "only"}, text("only")),
        ({"type": "string", "enum": [1]}, Literal(Kind.INTEGER, 1)),
        ({"type": ["string", "null"], "enum": ["a"]}, text("a")),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, Union((STRING, NULL))),
        ({"anyOf": [{"const": "a"}, {"type": "string"}]}, STRING),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, NUMBER),
        ({"anyOf": [{"type": "string"}, {}]}, UNKNOWN),
        ({"anyOf": []}, UNKNOWN),
        ({"allOf": [{"type": ["number", "string"]}, {"type": "number", "maximum": 9}]}, NUMBER),
        ({"allOf": [{"type": "string"}, {"type": "number"}]}, UNKNOWN),
        ({"type": "object"}, ANY_OBJECT),
        ({"additionalProperties": {"type": "string"}}, Record(extra=STRING)),
        ({"type": "object", "additionalProperties": False}, Record(extra=NEVER)),
        ({"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}, Record(extra=STRING)),
        ({"properties": {"a": True, "b": False}}, record(a=UNKNOWN, b=NEVER)),
        ({"type": "object", "properties": {}, "required": ["a"]}, Record((Field("a", UNKNOWN, required=True),))),
        (True, UNKNOWN),
        (False, NEVER),
        (None, UNKNOWN),
        ("string", UNKNOWN),
        ({"type": "file"}, UNKNOWN),
        ({"type": 3, "properties": "no", "required": True, "enum": "no", "anyOf": {}}, UNKNOWN),
        ({"$ref": "https://example.org/schema.json"}, UNKNOWN),
        ({"$ref": "#/$defs/Nowhere"}, UNKNOWN),
        ({"$ref": "#"}, UNKNOWN),
        ({"$ref": "#/$defs/0", "$defs": [{"type": "string"}]}, STRING),
        ({"$ref": "#/$defs/1", "$defs": [{"type": "string"}]}, UNKNOWN),
        ({"enum": [{"a": 1}, [1]]}, Union((ANY_OBJECT, ListOf(UNKNOWN)))),
        ({"const": object()}, UNKNOWN),
    ],
)
def test_a_schema_has_a_shape(schema: Any, shape: Shape) -> None:
    assert read_schema(schema).root == shape


def test_a_property_keeps_its_documentation() -> None:
    schema = {"properties": {"a": {"type": "string", "description": "An A.", "format": "uri", "default": ["x", 1]}}}
    assert read_schema(schema).root == Record(
        (Field("a", STRING, description="An A.", format="uri", default='["x", 1]'),)
    )


@pytest.mark.parametrize("default", [{"a": {"b": 1}}, "x" * 100, list(range(1000)), object(), 10**400])
def test_a_default_unfit_for_a_comment_is_left_out(default: object) -> None:
    root = read_schema({"properties": {"a": {"default": default}}}).root
    assert root == record(a=UNKNOWN)


def test_objects_in_all_of_are_merged() -> None:
    schema = {
        "properties": {"a": {"type": "string"}, "b": {}},
        "allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"b": {"type": "number"}}, "required": ["a"]}],
        "$defs": {"Base": {"properties": {"c": {"type": "integer"}}}},
    }
    fields = (Field("a", STRING, required=True), Field("b", NUMBER), Field("c", INTEGER))
    assert read_schema(schema).root == Record(fields)


def test_common_properties_are_in_each_alternative() -> None:
    kinds = [{"$ref": f"#/$defs/{kind}"} for kind in "AB"]
    definitions = {kind: {"properties": {"kind": {"const": kind}}} for kind in "AB"}
    schema = {"properties": {"id": {"type": "string"}}, "oneOf": kinds, "$defs": definitions}
    assert read_schema(schema).root == Union((record(id=STRING, kind=text("A")), record(id=STRING, kind=text("B"))))


def test_alternatives_with_only_required_do_not_repeat_the_object() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert read_schema(schema).root == record(a=STRING, b=UNKNOWN)


def test_an_object_with_too_many_alternatives_allows_other_properties() -> None:
    alternatives = [{"properties": {f"p{i}": {"type": "string"}}} for i in range(100)]
    schema = {"properties": {"id": {"type": "string"}}, "anyOf": alternatives}
    assert read_schema(schema).root == record(extra=UNKNOWN, id=STRING)


def test_a_large_enum_of_a_nullable_property_stays_an_enum() -> None:
    values = [f"v{i}" for i in range(MAX_VALUES - 1)]
    assert read_schema({"type": ["string", "null"], "enum": values}).root == Union(tuple(map(text, values)))


def test_a_huge_enum_becomes_its_type() -> None:
    assert read_schema({"enum": [f"v{i}" for i in range(MAX_VALUES + 1)]}).root == STRING


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, -(2**60), 1e300])
def test_a_number_that_languages_disagree_on_becomes_its_type(value: float) -> None:
    assert isinstance(read_schema({"enum": [value]}).root, Primitive)


def test_text_that_utf8_cannot_encode_is_neither_a_value_nor_a_name() -> None:
    assert read_schema({"const": "\ud800"}).root == STRING
    assert read_schema({"properties": {"\ud800": {}}, "required": ["\udfff"]}).root == ANY_OBJECT


def test_a_definition_is_read_once() -> None:
    node = {"properties": {"next": {"$ref": "#/$defs/Node"}, "root": {"$ref": "#"}}, "description": "A node."}
    reading = read_schema({"properties": {"first": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}})
    path = ("$defs", "Node")
    assert reading.root == record(first=Reference(path))
    assert list(reading.definitions) == [path]
    assert reading.definitions[path].shape == record(next=Reference(path), root=Reference(()))
    assert reading.definitions[path].description == "A node."


@pytest.mark.parametrize("pointer", ["#/definitions/a~1b", "#/definitions/a%2Fb"])
def test_pointers_are_unescaped(pointer: str) -> None:
    reading = read_schema({"items": {"$ref": pointer}, "definitions": {"a/b": {"type": "string"}}})
    assert reading.root == ListOf(Reference(("definitions", "a/b")))


def test_definitions_that_only_refer_to_each_other_are_unknown() -> None:
    definitions = {
        "A": {"$ref": "#/$defs/B"},
        "B": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "string"}]},
        "C": {"type": "array", "items": {"$ref": "#/$defs/C"}},
    }
    schema = {"properties": {n: {"$ref": f"#/$defs/{n}"} for n in definitions}, "$defs": definitions}
    shapes = {path[-1]: definition.shape for path, definition in read_schema(schema).definitions.items()}
    assert shapes == {"A": UNKNOWN, "B": UNKNOWN, "C": ListOf(Reference(("$defs", "C")))}


def test_a_chain_of_references_is_followed_to_its_end() -> None:
    definitions = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(9)} | {"d9": {"type": "string"}}
    reading = read_schema({"items": {"$ref": "#/$defs/d0"}, "$defs": definitions})
    assert reading.definitions["$defs", "d0"].shape == Reference(("$defs", "d9"))
    assert reading.definitions["$defs", "d9"].shape == STRING


def _nest(times: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(times):
        schema = {"properties": {"a": schema}}
    return schema


def _multiply(levels: int) -> dict[str, Any]:
    """A small schema that would grow thirtyfold per level if it were written out."""
    if not levels:
        return {"type": "string"}
    alternatives: list[Any] = [{"properties": {f"k{i}": {}}} for i in range(30)]
    return {"properties": {"f": _multiply(levels - 1)}, "anyOf": alternatives}


def _laughing(levels: int) -> dict[str, Any]:
    """Every definition contains the previous one twice."""
    definitions: dict[str, Any] = {
        f"L{i}": {"allOf": [{"$ref": f"#/$defs/L{i - 1}"}] * 2 + [{"properties": {f"p{i}": {}}}]}
        for i in range(1, levels + 1)
    }
    return {"$ref": f"#/$defs/L{levels}", "$defs": {"L0": {"properties": {"a": {}}}, **definitions}}


@pytest.mark.parametrize("schema", [_nest(100_000), _multiply(15), _laughing(30)])
def test_an_endless_schema_is_cut(schema: dict[str, Any]) -> None:
    reading = read_schema(schema)
    assert count_shapes(reading.root) <= MAX_SHAPES + MAX_DEPTH


def test_a_long_chain_of_definitions_needs_no_deep_recursion() -> None:
    definitions = {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(10_000)}
    reading = read_schema({"items": {"$ref": "#/$defs/d0"}, "$defs": definitions})
    assert 0 < len(reading.definitions) <= MAX_SHAPES


@pytest.mark.parametrize("schema", [None, True, False, {"type": "string"}, {"type": "array"}, {"enum": ["a"]}, []])
def test_arguments_are_always_an_object(schema: object) -> None:
    assert read_arguments(schema).root == ANY_OBJECT


def test_only_the_object_alternatives_of_arguments_count() -> None:
    schema = {"anyOf": [{"properties": {"a": {}}}, {"type": "null"}, {"type": "string"}]}
    assert read_arguments(schema).root == record(a=UNKNOWN)


def test_an_intersection_is_the_narrower_shape() -> None:
    node = Reference(("$defs", "Node"))
    assert intersect(UNKNOWN, STRING) == STRING
    assert intersect(NUMBER, INTEGER) == INTEGER
    assert intersect(STRING, text("a")) == text("a")
    assert intersect(text("a"), text("b")) == NEVER
    assert intersect(STRING, ListOf(STRING)) == NEVER
    assert intersect(ListOf(NUMBER), ListOf(INTEGER)) == ListOf(INTEGER)
    assert intersect(ListOf(INTEGER), TupleOf((NUMBER, UNKNOWN), 2)) == TupleOf((INTEGER, INTEGER), 2)
    assert intersect(TupleOf((NUMBER,), 1), TupleOf((STRING,), 1)) == TupleOf((NUMBER,), 1)
    assert intersect(node, ANY_OBJECT) == node
    assert intersect(text("a"), node) == text("a")
    assert intersect(node, record(a=STRING)) == UNKNOWN
    assert unite([NEVER]) == NEVER
