"""Compares the parser with `json` for values, and with a writer that records its own lines for positions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.configuration.jsonc import MAX_DEPTH, JsoncError, JsoncNode, parse_jsonc

Place = tuple[str | int, ...]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)
BREAKS = st.sampled_from(["\n", "\r\n", "\r"])
COMMENTS = ['// } " , ', "/* [ */", "/* \n * \r\n */", "/***/", "/*/ // */"]
quick = settings(max_examples=scale_examples(150), deadline=None)


def to_plain(node: JsoncNode) -> Any:
    if isinstance(node.value, dict):
        return {name: to_plain(member) for name, member in node.value.items()}
    if isinstance(node.value, list):
        return [to_plain(element) for element in node.value]
    return node.value


def represent(value: Any) -> str:
    """Distinguishes 1, 1.0 and True, which are equal in Python."""
    return repr(value)


def collect_lines(node: JsoncNode, place: Place = ()) -> dict[Place, int]:
    found = {place: node.line}
    for name, each in node.value.items() if isinstance(node.value, dict) else ():
        found |= collect_lines(each, (*place, name))
    for number, each in enumerate(node.value) if isinstance(node.value, list) else ():
        found |= collect_lines(each, (*place, number))
    return found


class Writer:
    """Writes JSON with blanks, comments and trailing commas in every allowed place, and records all lines."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.text = ""
        self.lines: dict[Place, int] = {(): 1}

    def blank(self) -> None:
        for _ in range(self._draw(st.integers(0, 2))):
            comment = self._draw(st.sampled_from(["", *COMMENTS]))
            self.text += comment + self._draw(
                BREAKS if comment.startswith("//") else st.sampled_from([" ", "\t", "\n"])
            )

    def line(self) -> int:
        return len(self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))

    def value(self, value: Any, place: Place = ()) -> None:
        self.blank()
        if place and isinstance(place[-1], int):
            self.lines[place] = self.line()
        if isinstance(value, dict):
            self._between("{}", [(name, each, (*place, name)) for name, each in value.items()])
        elif isinstance(value, list):
            self._between("[]", [(None, each, (*place, number)) for number, each in enumerate(value)])
        else:
            self.text += json.dumps(value, ensure_ascii=self._draw(st.booleans()))
        self.blank()

    def _between(self, brackets: str, parts: list[tuple[str | None, Any, Place]]) -> None:
        self.text += brackets[0]
        for number, (name, each, place) in enumerate(parts):
            if name is not None:
                self.blank()
                self.lines[place] = self.line()
                self.text += json.dumps(name)
                self.blank()
                self.text += ":"
            self.value(each, place)
            if number < len(parts) - 1 or self._draw(st.booleans()):
                self.text += ","
        self.blank()
        self.text += brackets[1]


@st.composite
def documents(draw: st.DrawFn) -> tuple[Any, Writer]:
    value = draw(VALUES)
    writer = Writer(draw)
    writer.value(value)
    return value, writer


@pytest.mark.req("G-01")
@quick
@given(value=VALUES, indent=st.none() | st.integers(0, 3), ascii_only=st.booleans())
def test_plain_json_is_parsed_like_the_json_module_does(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert represent(to_plain(parse_jsonc(text).root)) == represent(json.loads(text))


@pytest.mark.req("G-01")
@quick
@given(made=documents(), mark=st.sampled_from(["", "\ufeff"]))
def test_comments_and_commas_change_no_value_and_every_line_is_kept(made: tuple[Any, Writer], mark: str) -> None:
    value, writer = made
    parse = parse_jsonc(mark + writer.text)
    assert represent(to_plain(parse.root)) == represent(value)
    assert collect_lines(parse.root) == writer.lines
    assert parse.repeated == []


def by_json(text: str) -> str | None:
    """What `json` reads, without the NaN and Infinity that it adds to JSON; None where it refuses."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return represent(json.loads(text, parse_constant=refuse))
    except ValueError:
        return None


def by_us(text: str) -> str | JsoncError:
    try:
        return represent(to_plain(parse_jsonc(text).root))
    except JsoncError as error:
        return error


@pytest.mark.req("G-01", "X-03")
@settings(max_examples=scale_examples(400), deadline=None)
@given(
    text=st.lists(
        st.sampled_from([*'{}[]",:01.eE+-\\/* \n\r\t', "true", "null", "//", '"a"', '"a":', "\\u00e9", "\x00", "é"])
    ).map("".join)
)
def test_any_text_is_parsed_or_refused_with_its_position(text: str) -> None:
    ours, theirs = by_us(text), by_json(text)
    if theirs is not None:
        assert ours == theirs
    elif isinstance(ours, JsoncError):
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert 1 <= ours.line <= len(lines)
        assert 1 <= ours.column <= len(lines[ours.line - 1]) + 1


@pytest.mark.req("G-01", "X-03")
@pytest.mark.parametrize(
    ("text", "line", "column", "key", "message"),
    [
        ("", 1, 1, "", "expected a value, found the end of the file"),
        ("\n// nothing\n", 3, 1, "", "expected a value, found the end of the file"),
        ('{"a": 1} x', 1, 10, "", "expected the end of the file, found 'x'"),
        ('{"a": {"b": }}', 1, 13, "a", "expected a value, found '}'"),
        ('{"a": 1\n "b": 2}', 2, 2, "", 'expected "," or "}", found \'"\''),
        ('{"a": [1 2]}', 1, 10, "a", 'expected "," or "]", found \'2\''),
        ('{"a": [1, 2', 1, 12, "a", 'expected "," or "]", found the end of the file'),
        ("{a: 1}", 1, 2, "", "expected a key in double quotes or \"}\", found 'a'"),
        ("{'a': 1}", 1, 2, "", 'expected a key in double quotes or "}", found "\'"'),
        ('{,"a": 1}', 1, 2, "", "expected a key in double quotes or \"}\", found ','"),
        ('{"a"= 1}', 1, 5, "", "expected \":\", found '='"),
        ('{"a": NaN}', 1, 7, "", "expected a value, found 'N'"),
        ('{"a": 01}', 1, 8, "", 'expected "," or "}", found \'1\''),
        ('{"a": "b\n"}', 1, 7, "", "this string has no closing quote"),
        ('{"a": "b', 1, 7, "", "this string has no closing quote"),
        ('{"a": "b\tc"}', 1, 9, "", r"control character in a string: write it as \u0009"),
        (
            '{"path": "C:\\Users"}',
            1,
            13,
            "",
            r"invalid escape sequence: write a backslash as \\",
        ),
        ('{"a": "\\ud83d"}', 1, 7, "", "this string contains half a surrogate pair"),
        ('{"a": /* 1}', 1, 7, "", "this comment is not closed"),
        (f'{{"a": {"9" * 5000}}}', 1, 7, "", "this number is too long"),
    ],
)
def test_an_error_has_the_position_and_the_expected_token(
    text: str, line: int, column: int, key: str, message: str
) -> None:
    with pytest.raises(JsoncError) as caught:
        parse_jsonc(text)
    error = caught.value
    assert (error.line, error.column, error.key, error.message) == (line, column, key, message)
    assert str(error) == message


@pytest.mark.req("G-01", "X-03")
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deeply_nested_json_is_refused(opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    nested = opening * MAX_DEPTH + ("" if opening == "[" else "1") + closing * MAX_DEPTH
    assert parse_jsonc(nested).root.line == 1
    with pytest.raises(JsoncError, match=f"nested more than {MAX_DEPTH} deep") as caught:
        parse_jsonc(opening * 200_000)
    assert caught.value.column == len(opening) * MAX_DEPTH + 1


@pytest.mark.req("G-01")
def test_a_number_keeps_its_source_text() -> None:
    root = parse_jsonc("[3.10, 1e3, -0, true, null]").root
    assert isinstance(root.value, list)
    assert [element.literal for element in root.value] == ["3.10", "1e3", "-0", "true", "null"]


@pytest.mark.req("G-01")
def test_a_duplicate_key_is_reported_with_both_lines() -> None:
    parse = parse_jsonc('{"a": {"x": 1,\n"y": 2,\n"x": 3}}')
    assert [(first.key, first.line, line) for first, line in parse.repeated] == [("a.x", 1, 3)]


@pytest.mark.req("G-01")
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"mcpServers": {"git-hub_1": {"args": [0, 1]}}}', "mcpServers.git-hub_1.args[1]"),
        ('{"a b": {"é": 1}}', '["a b"].é'),
        ('{"a": {"x.y": 1}}', 'a["x.y"]'),
        ('{"a": {"\\n\\"": 1}}', 'a["\\n\\""]'),
        (json.dumps({"k" * 100: 1}), f'["{"k" * 64}…"]'),
    ],
)
def test_a_key_is_the_path_from_the_root(text: str, key: str) -> None:
    node = parse_jsonc(text).root
    while isinstance(node.value, dict | list) and node.value:
        node = list(node.value.values() if isinstance(node.value, dict) else node.value)[-1]
    assert node.key == key
