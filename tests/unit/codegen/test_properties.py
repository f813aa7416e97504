"""Property tests: for any schemas and names, the generated text is valid and deterministic."""

from __future__ import annotations

import ast
import random
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.codegen.python import generate_python
from toolscript.codegen.signatures import MAX_LENGTH, format_signature
from toolscript.codegen.typescript import generate_typescript
from toolscript.domain.catalog import Item

pytestmark = pytest.mark.slow

KEYS = st.sampled_from(
    ["a", "b", "list", "class", "constructor", "__proto__", "x-y", "日本", "", "*/", "$ref"]
) | st.text(max_size=4)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters(), max_size=6)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=3), max_leaves=5)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "null", "object", "array", "file"])
POINTERS = st.sampled_from(["#", "#/$defs/A", "#/$defs/B", "#/properties/a", "#/nowhere", "https://example.org/x"])
TEXTS = st.sampled_from(["*/", '"""', "a\nb", "\u2028", "@ts-ignore", "\\", "\ud800"]) | st.text(max_size=8)


def _compound(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(schemas, max_size=3)
    named = st.dictionaries(KEYS, schemas, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, max_size=3) | SCALARS,
            "properties": named,
            "required": st.lists(KEYS, max_size=3) | st.booleans(),
            "additionalProperties": schemas,
            "patternProperties": named,
            "items": schemas | several,
            "prefixItems": several,
            "minItems": st.integers(-1, 3),
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "enum": st.lists(VALUES, max_size=4),
            "const": VALUES,
            "nullable": st.booleans(),
            "$ref": POINTERS,
            "$defs": st.fixed_dictionaries({"A": schemas, "B": schemas}),
            "description": TEXTS,
            "format": TEXTS,
            "default": VALUES,
        },
    )


SCHEMAS: st.SearchStrategy[Any] = st.recursive(st.booleans() | SCALARS | st.just({}), _compound, max_leaves=8)
NAMES = KEYS.filter(lambda name: "__" not in name)
ITEMS = st.lists(
    st.builds(Item, server=NAMES, name=KEYS, description=TEXTS, input_schema=SCHEMAS, output_schema=SCHEMAS), max_size=3
)
thorough = settings(max_examples=scale_examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])

_STRINGS_AND_COMMENTS = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`|/\*.*?\*/|//[^\n]*', re.DOTALL)


@pytest.mark.req("G-07")
@thorough
@given(ITEMS)
def test_the_python_module_parses_and_defines_every_tool_twice(items: list[Item]) -> None:
    tree = ast.parse(generate_python(items))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    methods = [f for f in functions if [a.arg for a in f.args.args] == ["self", "params"]]
    assert len(methods) == 2 * len({item.id for item in items})
    declared = [n.name for n in tree.body if isinstance(n, ast.ClassDef)]
    assert len(declared) == len(set(declared))


@pytest.mark.req("G-06")
@thorough
@given(ITEMS)
def test_the_typescript_module_is_balanced_and_declares_every_type_once(items: list[Item]) -> None:
    module = generate_typescript(items)
    module.encode()
    code = _STRINGS_AND_COMMENTS.sub("", module)
    assert not re.search(r'["`\u2028\u2029\r]', code)
    assert all(code.count(one) == code.count(other) for one, other in ("{}", "()", "[]"))
    declared = re.findall(r"^export (?:interface|type) (\S+)", code, re.MULTILINE)
    assert len(declared) == len(set(declared))
    assert len(re.findall(r"return await callTool\(", code)) == len({item.id for item in items})


@thorough
@given(ITEMS, st.randoms())
def test_the_same_items_give_the_same_text(items: list[Item], chance: random.Random) -> None:
    single = list({item.id: item for item in items}.values())
    shuffled = chance.sample(single, len(single))
    assert generate_typescript(single) == generate_typescript(shuffled)
    assert generate_python(single) == generate_python(shuffled)


@thorough
@given(ITEMS)
def test_a_signature_is_one_bounded_line(items: list[Item]) -> None:
    for item in items:
        line = format_signature(item)
        assert line.isprintable()
        assert len(line) <= MAX_LENGTH
