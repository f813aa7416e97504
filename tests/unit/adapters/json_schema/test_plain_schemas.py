"""Arguments that are plainly valid are accepted without the worker, and only where the worker would accept them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.adapters.json_schema.plain_schemas import MAX_DEPTH, MAX_STEPS, TYPES, accept
from toolscript.adapters.json_schema.worker import Checks

pytestmark = pytest.mark.req("G-05")

OPTIONAL = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None}
SEARCH: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for."},
        "order": {"type": "string", "enum": ["newest", "oldest"]},
        "limit": OPTIONAL,
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object", "properties": {"open": {"type": "boolean"}}, "additionalProperties": True},
    },
    "required": ["query"],
    "additionalProperties": False,
}

names = st.sampled_from(["a", "b", "c"])
scalars = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, 1.5]), names, st.just(""))
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
types = st.sampled_from([*TYPES, "unknown"])


def make_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    rules: dict[str, st.SearchStrategy[Any]] = {
        "type": types | st.lists(types, min_size=1, max_size=2),
        "properties": st.dictionaries(names, inner, max_size=3),
        "required": st.lists(names, max_size=2),
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(st.sampled_from(["a", "."]), inner, max_size=1),
        "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "not": inner,
        "enum": st.lists(scalars, min_size=1, max_size=3),
        "const": scalars,
        "minimum": st.integers(-2, 2),
        "maximum": st.sampled_from([0, 1.5]),
        "minLength": st.integers(0, 2),
        "uniqueItems": st.booleans(),
        "description": st.just("Anything."),
        "$schema": st.sampled_from(
            ["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#"]
        ),
    }
    return st.fixed_dictionaries({}, optional=rules)


schemas = st.recursive(st.booleans(), make_schemas, max_leaves=8)


@settings(max_examples=scale_examples(300), deadline=None)
@given(schema=make_schemas(schemas), value=st.dictionaries(names, values, max_size=3))
def test_what_is_accepted_is_valid(schema: dict[str, Any], value: Any) -> None:
    if accept(schema, value):
        reply = Checks().answer({"digest": "", "schema": schema, "arguments": value, "references": False})
        assert "message" not in reply, reply


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "x"},
        {"query": "x", "order": "newest", "limit": 3, "tags": ["a", "b"], "where": {"open": True, "more": 1}},
        {"query": "", "limit": None, "tags": []},
    ],
)
def test_arguments_of_usual_schemas_are_accepted(arguments: dict[str, Any]) -> None:
    assert accept(SEARCH, arguments)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"query": 1}, {"query": "x", "limit": 0}, {"query": "x", "limit": True}, {"query": "x", "other": 1}],
)
def test_invalid_arguments_are_left_to_the_worker_which_says_what_is_wrong(arguments: dict[str, Any]) -> None:
    assert not accept(SEARCH, arguments)


def test_many_values_and_deep_schemas_are_left_to_the_worker() -> None:
    assert accept({"items": {"type": "integer"}}, [1] * (MAX_STEPS - 1))
    assert not accept({"items": {"type": "integer"}}, [1] * MAX_STEPS)
    deep: Any = True
    for _ in range(MAX_DEPTH):
        deep = {"properties": {"a": deep}}
    value: Any = json.loads('{"a":' * 300 + "1" + "}" * 300)
    assert not accept(deep, value)
    assert not accept(json.loads('{"anyOf": [' * 300 + "true" + "]}" * 300), value)
