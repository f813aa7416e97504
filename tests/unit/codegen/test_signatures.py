"""Signatures: parameters and result of a tool in one line of bounded length."""

from __future__ import annotations

from typing import Any

import pytest

from toolscript.codegen.signatures import MAX_LENGTH, format_signature
from toolscript.domain.catalog import Item


def line(schema: Any, result: Any = None, name: str = "t") -> str:
    return format_signature(Item("s", name, input_schema=schema, output_schema=result))


@pytest.mark.req("G-08")
def test_required_parameters_come_first() -> None:
    schema = {
        "properties": {
            "head": {"type": "integer"},
            "mode": {"enum": ["fast", "slow"]},
            "path": {"type": "string"},
        },
        "required": ["path"],
    }
    result = {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]}
    assert line(schema, result, "read_file") == (
        'read_file(path: string, head?: number, mode?: "fast"|"slow") -> {content: string}'
    )


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, "t()"),
        ({"type": "object"}, "t()"),
        ({"properties": {"a-b": {"type": ["string", "null"]}}}, 't("a-b"?: string|null)'),
        ({"properties": {"a": {"type": "array", "items": {"enum": [1, "x"]}}}}, 't(a?: (1|"x")[])'),
        ({"properties": {"a": {"items": {"type": "string"}}}}, "t(a?: string[])"),
        ({"properties": {"a": {"prefixItems": [{"type": "string"}, {}]}}}, "t(a?: [string, unknown])"),
        ({"properties": {"a": {"type": "object"}, "b": True, "c": False}}, "t(a?: object, b?: unknown, c?: never)"),
        ({"properties": {"a": {"additionalProperties": {"type": "boolean"}}}}, "t(a?: {[key]: boolean})"),
        ({"properties": {"a": {"const": True}, "b": {"const": 0.5}}}, "t(a?: true, b?: 0.5)"),
        (
            {"properties": {"a": {"properties": {"b": {}, "c": {}}, "required": ["c"]}}},
            "t(a?: {c: unknown, b?: unknown})",
        ),
        ({"properties": {"me": {"$ref": "#"}}}, "t(me?: object)"),
    ],
)
def test_types_are_written_as_in_typescript(schema: Any, expected: str) -> None:
    assert line(schema) == expected


def test_definitions_are_expanded_until_they_repeat() -> None:
    node = {"properties": {"next": {"$ref": "#/$defs/Node"}}}
    signature = line({"properties": {"a": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}})
    assert signature == "t(a?: {next?: {…}})"


def test_a_parameter_is_required_if_every_alternative_requires_it() -> None:
    alternatives = [{"properties": {"a": {}, "b": {}}, "required": r} for r in (["a", "b"], ["a"])]
    assert line({"anyOf": alternatives}) == "t(a: unknown, b?: unknown)"


def test_the_result_is_shortened_before_the_arguments() -> None:
    schema = {"properties": {f"parameter_{i}": {"enum": ["fast", "slow"]} for i in range(7)}}
    result = {"properties": {f"answer_{i}": {"type": "string"} for i in range(12)}}
    signature = line(schema, result)
    assert 'parameter_6?: "fast"|"slow")' in signature
    assert signature.endswith(", …}")


def test_a_long_union_and_a_long_value_are_abbreviated() -> None:
    signature = line({"properties": {"a": {"enum": [f"value_{i}" for i in range(200)]}, "b": {"const": "x" * 500}}})
    assert '"value_11"|…' in signature
    assert f'"{"x" * 31}…"' in signature


@pytest.mark.parametrize("required", [[], [f"parameter_{i}" for i in range(500)]])
def test_parameters_that_do_not_fit_are_left_out_from_the_end(required: list[str]) -> None:
    signature = line({"properties": {f"parameter_{i}": {"type": "string"} for i in range(500)}, "required": required})
    assert len(signature) <= MAX_LENGTH
    assert signature.endswith(", …)")
    assert "parameter_0" in signature


def test_a_signature_is_one_printable_line() -> None:
    signature = line({"properties": {"a\nb\u2028": {"enum": ["\r\n"]}}}, name="t\nt\u202e" + "x" * 1000)
    assert signature.isprintable()
    assert len(signature) <= MAX_LENGTH


def test_a_huge_schema_is_not_walked_completely() -> None:
    tree = {"properties": {f"p{i}": {"$ref": "#/$defs/Tree"} for i in range(1000)}}
    assert len(line({"$ref": "#/$defs/Tree", "$defs": {"Tree": tree}})) <= MAX_LENGTH
