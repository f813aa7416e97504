"""Names and text of strangers, made fit for source files; and which items a filter names."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscript.codegen.names import Names, bare, camel, names_of, pascal, snake
from toolscript.codegen.texts import comment_lines, python_string, script_key, script_string
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.selection import select_items

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
def test_names_are_cased_as_each_language_has_them(text: str, in_pascal: str, in_camel: str, in_snake: str) -> None:
    assert (pascal(text), camel(text), snake(text)) == (in_pascal, in_camel, in_snake)


@pytest.mark.parametrize(
    ("text", "name"),
    [("read_file", "read_file"), ("getEnv", "getEnv"), ("get-env", "get_env"), ("__init__", "init"), ("1st", "_1st")],
)
def test_a_name_that_is_an_identifier_stays_as_it_is(text: str, name: str) -> None:
    assert bare(text) == name


@given(st.text())
def test_whatever_a_thing_is_called_its_name_is_an_identifier(text: str) -> None:
    assert all(name.isidentifier() for name in (pascal(text), pascal(text, text), camel(text), snake(text), bare(text)))


def test_a_name_is_given_once() -> None:
    names = Names(["taken"])
    assert [names.give(wish) for wish in ("taken", "free", "free", "free2")] == ["taken2", "free", "free2", "free22"]
    assert names.give("X", "Params", "Result") == "X"
    assert names.give("XParams") == "XParams2"
    assert names.give("X", "Params", "Result") == "X2"


def test_who_already_has_a_name_keeps_it() -> None:
    assert names_of(["a-b", "a_b", "a.b"], bare, taken=["c"]) == {"a_b": "a_b", "a-b": "a_b2", "a.b": "a_b3"}


@given(st.text(alphabet=st.characters()))
def test_strings_come_back_from_their_literals(text: str) -> None:
    assert json.loads(script_string(text)) == text
    assert ast.literal_eval(python_string(text)) == text
    assert script_string(text).isprintable()
    assert python_string(text).isprintable()


def test_keys_are_quoted_where_they_must_be() -> None:
    assert [script_key(k) for k in ("a_b", "$x", "a-b", "1", "", "é")] == ["a_b", "$x", '"a-b"', '"1"', '""', '"é"']


@given(st.text(alphabet=st.characters()))
def test_comments_hold_nothing_that_cannot_be_seen(text: str) -> None:
    assert all(line.isprintable() and line == line.rstrip() for line in comment_lines(text))


def test_every_line_break_is_one() -> None:
    assert comment_lines("\n a\u2028b\rc\x0bd\x85\n\u202ee\ud800 \n\n") == [" a", "b", "c", "d", "", "e"]


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
def test_a_filter_names_servers_and_tools(wanted: str | None, ids: list[str]) -> None:
    assert [item.id for item in select_items([*ITEMS, *ITEMS], wanted)] == sorted(ids)
