"""Edits of JSON with comments: what is not edited stays, and the result can be read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.configuration.jsonc import parse_jsonc
from toolscript.configuration.jsonc_edit import add_member, format_source, read_source, remove_member, set_values

COMMENTED = """{
  // about all of them
  "servers": {
    "a": { "command": "x" }, // a is good
    /* b is old */
    "b": {
      "command": "y" // yes
    },
  },
  "inputs": [],
}
"""
quick = settings(max_examples=scale_examples(150), deadline=None)
names = st.sampled_from("abcdefgh")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


def read(text: str) -> Any:
    return parse_jsonc(text).root.to_python()


def test_a_removed_member_takes_its_line_and_its_comma_along() -> None:
    assert remove_member('{\n  "a": 1,\n  "b": 2,\n  "c": 3\n}\n', ("b",)) == '{\n  "a": 1,\n  "c": 3\n}\n'


def test_the_last_member_leaves_no_comma_for_strict_readers() -> None:
    assert remove_member('{\n  "a": 1, // one\n  "b": 2\n}\n', ("b",)) == '{\n  "a": 1 // one\n}\n'


def test_comments_between_members_and_trailing_commas_stay() -> None:
    left = remove_member(remove_member(COMMENTED, ("servers", "b")), ("servers", "a"))
    assert read(left) == {"servers": {}, "inputs": []}
    for comment in ("// about all of them", "// a is good", "/* b is old */"):
        assert comment in left
    assert left.endswith('  "inputs": [],\n}\n')


def test_a_comment_before_the_comma_of_a_removed_member_stays() -> None:
    left = remove_member('{"a": 1 // one\n, "b": 2}', ("a",))
    assert "// one" in left
    assert read(left) == {"b": 2}


def test_a_new_member_follows_the_layout_of_the_file() -> None:
    entry = format_source({"command": "t", "args": ["mcp"]}, "\t")
    text = add_member('{\r\n\t"servers": {\r\n\t\t"a": {}\r\n\t}\r\n}\r\n', ("servers", "t"), entry)
    assert text == (
        '{\r\n\t"servers": {\r\n\t\t"a": {},\r\n\t\t"t": {\r\n\t\t\t"command": "t",\r\n\t\t\t"args": ["mcp"]\r\n'
        "\t\t}\r\n\t}\r\n}\r\n"
    )


def test_a_new_member_keeps_the_comment_at_the_end_of_the_last_one() -> None:
    text = add_member(COMMENTED, ("servers", "c"), '{"url": "https://example.com"}')
    assert '"command": "x" }, // a is good\n' in text
    assert '    "c": {"url": "https://example.com"},\n  },\n' in text
    text = add_member('{\n  "a": 1 // one\n}', ("b",), "2")
    assert text == '{\n  "a": 1, // one\n  "b": 2\n}'


def test_one_line_stays_one_line() -> None:
    assert add_member('{"a": {}}', ("a", "b"), '{\n  "c": 1\n}') == '{"a": {"b": { "c": 1 }}}'
    assert add_member("{}", ("mcpServers", "t"), "{}") == '{"mcpServers": { "t": {} }}'


def test_null_becomes_an_object() -> None:
    assert read(add_member('{"mcpServers": null}', ("mcpServers", "t"), "{}")) == {"mcpServers": {"t": {}}}


@pytest.mark.parametrize("character", ["\u2028", "\x85"])
def test_only_line_ends_of_json_are_line_ends(character: str) -> None:
    text = json.dumps({"a": {"args": [f"a{character}b"]}}, ensure_ascii=False, indent=2)
    node = parse_jsonc(text).root.find("a")
    assert node is not None
    assert read(add_member("{\n}\n", ("a",), read_source(text, node))) == read(text)


@quick
@given(st.dictionaries(names, values, max_size=5), names, st.sampled_from([None, 2]), st.sampled_from(["\n", "\r\n"]))
def test_removing_does_what_deleting_from_a_dictionary_does(
    content: dict[str, Any], name: str, indent: int | None, newline: str
) -> None:
    text = json.dumps(content, indent=indent).replace("\n", newline)
    left = remove_member(text, (name,))
    assert json.loads(left) == {k: v for k, v in content.items() if k != name}


@quick
@given(st.dictionaries(names, values, max_size=5), names, values, st.sampled_from([None, 2]))
def test_setting_does_what_assigning_to_a_dictionary_does(
    content: dict[str, Any], name: str, value: Any, indent: int | None
) -> None:
    text = json.dumps(content, indent=indent)
    assert json.loads(set_values(text, {(name,): json.dumps(value, indent=2)})) == {**content, name: value}
    below = {**content, name: {"new": value}}
    assert json.loads(add_member(json.dumps(below, indent=indent), (name, "more"), "1")) == {
        **content,
        name: {"new": value, "more": 1},
    }
