"""Paths into JSON, the shape of JSON, and chunks of JSON that know their paths."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.domain.errors import NotFound
from toolscript.retrieval.text.json_chunks import chunk_json
from toolscript.retrieval.text.json_paths import describe_shape, format_path, parse_path, resolve_path

pytestmark = pytest.mark.req("G-18")

ROOT = {
    "items": [{"id": number, "name": f"n{number}", "a.b": {"x/y": [1]}, "": 7} for number in range(30)],
    "text": json.dumps({"inner": ["deep"]}),
    "total": 30,
}
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=30)
VALUES = st.recursive(
    SCALARS, lambda each: st.lists(each, max_size=6) | st.dictionaries(st.text(max_size=6), each, max_size=6)
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("total", 30),
        ("items.3.name", "n3"),
        ("items[3].name", "n3"),
        ("$.items[3]['name']", "n3"),
        ("/items/3/name", "n3"),
        ("/items/3/a.b/x~1y/0", 1),
        ("/items/3/", 7),
        ("items.2:4.0.id", 2),
        ("items[28:].1.id", 29),
        ("text.inner.0", "deep"),
        ("", ROOT),
    ],
)
def test_a_path_leads_to_a_value(path: str, value: Any) -> None:
    assert resolve_path(ROOT, parse_path(path)) == value


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("itmes", "no 'itmes' at the top: there are items, text, total"),
        ("items.30", "no '30' at items: the array there has the elements 0 to 29"),
        ("items.first", "no 'first' at items: the array there has the elements 0 to 29"),
        ("items.0.nme", "no 'nme' at items.0: there are id, name, a.b, "),
        ("total.x", "no 'x' at total: there is a number, which has no parts"),
    ],
)
def test_a_path_that_leads_nowhere_names_what_exists(path: str, message: str) -> None:
    with pytest.raises(NotFound) as caught:
        resolve_path(ROOT, parse_path(path))
    assert caught.value.message == message


def test_of_many_keys_the_first_twenty_are_named() -> None:
    with pytest.raises(NotFound, match="k19 and 980 more"):
        resolve_path({f"k{n}": n for n in range(1000)}, ("x",))


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(VALUES, st.integers(8, 80))
def test_every_chunk_is_found_at_its_path(value: Any, max_bytes: int) -> None:
    for chunk in chunk_json(value, max_bytes):
        found = resolve_path(value, parse_path(format_path(chunk.path)))
        text = json.dumps(found, ensure_ascii=False)
        assert chunk.text in text or (isinstance(found, str) and found[chunk.start :].startswith(chunk.text))


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(VALUES)
def test_the_chunks_have_every_string_and_number(value: Any) -> None:
    chunks = [chunk.text for chunk in chunk_json(value, 40)]

    def check(each: Any) -> None:
        match each:
            case dict() | list():
                for child in each.values() if isinstance(each, dict) else each:
                    check(child)
            case str() if each.isalnum() and len(each) < 4:
                assert any(each in text for text in chunks)
            case int() if not isinstance(each, bool) and abs(each) < 1000:
                assert any(str(each) in text for text in chunks)

    check(value)


def test_small_elements_share_a_chunk_and_large_ones_have_their_own() -> None:
    root = {"numbers": list(range(300)), "people": [{"name": "x" * 400} for _ in range(3)], "essay": "word " * 400}
    paths = [format_path(chunk.path) for chunk in chunk_json(root, 1000)]
    assert paths[0] == "numbers.0:222"
    assert paths[2:5] == ["people.0", "people.1", "people.2"]
    assert set(paths[5:]) == {"essay"}


def test_deep_json_is_cut_as_text_at_some_depth() -> None:
    value: Any = "x" * 5000
    for _ in range(100):
        value = {"a": value}
    chunks = list(chunk_json(value, 1000))
    assert max(len(chunk.path) for chunk in chunks) == 12
    assert sum(len(chunk.text) for chunk in chunks) >= 5000


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (ROOT["items"], '[30 of {"id": number, "name": string, "a.b": {"x/y": [1 of number]}, "": number}]'),
        ({"a": None, "b": True, "c": [], "d": {}}, '{"a": null, "b": boolean, "c": [], "d": {}}'),
        ({"text": "x" * 500}, '{"text": string of 500 characters}'),
        ({f"k{n}": {"x": [[1]]} for n in range(1000)}, "{1000 keys}"),
    ],
)
def test_the_shape_names_keys_lengths_and_types_as_deep_as_there_is_room(value: Any, shape: str) -> None:
    assert describe_shape(value, 120) == shape
