"""Identifiers and literals from untrusted text, and the items that a filter selects."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.codegen.names import (
    UniqueNames,
    assign_names,
    format_typescript_key,
    quote_python,
    quote_typescript,
    split_comment_lines,
    to_camel_case,
    to_identifier,
    to_pascal_case,
    to_snake_case,
)
from toolscript.domain.catalog import Item, ItemType, select_items

ITEMS = [
    Item("myserver", "echo"),
    Item("github", "list_issues"),
    Item("github", "review", type=ItemType.PROMPT),
    Item("otherserver", "read_file"),
    Item("myserver", "add"),
]


@pytest.mark.req("G-06")
@pytest.mark.parametrize(
    ("text", "in_pascal", "in_camel", "in_snake"),
    [
        ("desktop-commander", "DesktopCommander", "desktopCommander", "desktop_commander"),
        ("filesystem", "Filesystem", "filesystem", "filesystem"),
        ("GitHub", "GitHub", "gitHub", "git_hub"),
        ("AWS docs", "AWSDocs", "awsDocs", "aws_docs"),
        ("read_HTTPFile", "ReadHTTPFile", "readHTTPFile", "read_http_file"),
        ("7zip", "_7zip", "_7zip", "_7zip"),
        ("@scope/pkg.name", "ScopePkgName", "scopePkgName", "scope_pkg_name"),
        ("__proto__", "Proto", "proto", "proto"),
        ("日本", "日本", "日本", "日本"),
        ("ﬁle", "File", "file", "file"),
        ("!?", "Unnamed", "unnamed", "unnamed"),
        ("", "Unnamed", "unnamed", "unnamed"),
    ],
)
def test_names_follow_the_case_convention_of_each_language(
    text: str, in_pascal: str, in_camel: str, in_snake: str
) -> None:
    assert (to_pascal_case(text), to_camel_case(text), to_snake_case(text)) == (in_pascal, in_camel, in_snake)


@pytest.mark.parametrize(
    ("text", "name"),
    [("read_file", "read_file"), ("getEnv", "getEnv"), ("get-env", "get_env"), ("__init__", "init"), ("1st", "_1st")],
)
def test_a_name_that_is_an_identifier_stays_as_it_is(text: str, name: str) -> None:
    assert to_identifier(text) == name


@settings(max_examples=scale_examples(150), deadline=None)
@given(st.text())
def test_every_name_becomes_an_identifier(text: str) -> None:
    assert all(
        name.isidentifier()
        for name in (
            to_pascal_case(text),
            to_pascal_case(text, text),
            to_camel_case(text),
            to_snake_case(text),
            to_identifier(text),
        )
    )


def test_a_name_is_taken_only_once() -> None:
    names = UniqueNames(["taken"])
    assert [names.take(wish) for wish in ("taken", "free", "free", "free2")] == ["taken2", "free", "free2", "free22"]
    assert names.take("X", "Params", "Result") == "X"
    assert names.take("XParams") == "XParams2"
    assert names.take("X", "Params", "Result") == "X2"


def test_a_text_that_is_already_an_identifier_keeps_it() -> None:
    assert assign_names(["a-b", "a_b", "a.b"], to_identifier, taken=["c"]) == {
        "a_b": "a_b",
        "a-b": "a_b2",
        "a.b": "a_b3",
    }


@settings(max_examples=scale_examples(150), deadline=None)
@given(st.text(alphabet=st.characters()))
def test_a_string_literal_evaluates_to_its_string(text: str) -> None:
    assert json.loads(quote_typescript(text)) == text
    assert ast.literal_eval(quote_python(text)) == text
    assert quote_typescript(text).isprintable()
    assert quote_python(text).isprintable()


def test_keys_are_quoted_where_necessary() -> None:
    assert [format_typescript_key(k) for k in ("a_b", "$x", "a-b", "1", "", "é")] == [
        "a_b",
        "$x",
        '"a-b"',
        '"1"',
        '""',
        '"é"',
    ]


@given(st.text(alphabet=st.characters()))
def test_comments_contain_no_invisible_characters(text: str) -> None:
    assert all(line.isprintable() and line == line.rstrip() for line in split_comment_lines(text))


def test_every_kind_of_line_break_splits_a_comment() -> None:
    assert split_comment_lines("\n a\u2028b\rc\x0bd\x85\n\u202ee\ud800 \n\n") == [" a", "b", "c", "d", "", "e"]


@pytest.mark.req("G-06")
@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (None, [item.id for item in ITEMS]),
        ("  ", [item.id for item in ITEMS]),
        ("github", ["github__list_issues", "github__prompt:review"]),
        ("myserver__echo", ["myserver__echo"]),
        ("github__prompt:review", ["github__prompt:review"]),
        (
            "otherserver__read_file, github ,myserver__echo,myserver__echo,",
            ["github__list_issues", "github__prompt:review", "myserver__echo", "otherserver__read_file"],
        ),
        ("myserver,myserver__add", ["myserver__add", "myserver__echo"]),
        ("nobody", []),
        ("nobody__nothing,echo,MYSERVER", []),
    ],
)
def test_a_filter_selects_servers_and_tools(wanted: str | None, ids: list[str]) -> None:
    assert [item.id for item in select_items([*ITEMS, *ITEMS], wanted)] == sorted(ids)
