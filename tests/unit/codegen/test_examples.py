"""The example line that calls a tool: it has the required arguments, and compiles."""

from __future__ import annotations

import pytest

from toolscript.codegen.examples import format_typescript_call
from toolscript.domain.catalog import Item

pytestmark = pytest.mark.req("S-06")


@pytest.mark.parametrize(
    ("properties", "required", "given"),
    [
        ({"path": {"type": "string"}, "head": {"type": "integer"}}, ["path"], '{ path: "…" }'),
        ({"path": {"type": "string"}}, [], ""),
        ({"mode": {"enum": ["fast", "slow"]}, "n": {"const": 3}}, ["mode", "n"], '{ mode: "fast", n: 3 }'),
        ({"a-b": {"type": "array"}, "on": {"type": "boolean"}}, ["a-b", "on"], '{ "a-b": [], on: true }'),
        (
            {"o": {"type": "object"}, "x": {"type": "null"}, "f": {"type": "number"}},
            ["o", "x", "f"],
            "{ o: {}, x: null, f: 1 }",
        ),
        ({"either": {"type": ["integer", "string"]}, "any": {}}, ["either", "any"], "{ either: 1, any: {} }"),
    ],
)
def test_a_call_has_the_required_arguments(properties: dict[str, object], required: list[str], given: str) -> None:
    schema = {"type": "object", "properties": properties, "required": required}
    item = Item("my-server", "do_it", input_schema=schema)
    assert format_typescript_call(item) == f"const result = await tools.myServer.do_it({given});"


def test_a_name_that_is_not_an_identifier_is_quoted() -> None:
    assert format_typescript_call(Item("s", "get-env")) == 'const result = await tools.s["get-env"]();'
