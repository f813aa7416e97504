"""Typos are corrected and nothing else is changed: a wrong correction costs more than a typo."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.retrieval.text.spelling import Spelling

CATALOGUE = (
    "commit changes search web mail weather forecast screenshot page merge pull request restart container read file"
)
SPELLING = Spelling(dict.fromkeys(CATALOGUE.split(), 1))


@pytest.mark.req("S-02")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("comit my chnages", "commit my changes"),
        ("serach the wbe", "search the web"),
        ("serach mial", "search mail"),
        ("wether forcast tomorow", "weather forecast tomorrow"),
        ("mrege pull reqest", "merge pull request"),
        ("restrat contianer", "restart container"),
        ("Serach for mail", "search for mail"),
        ("a screnshot, please!", "a screenshot, please!"),
    ],
)
def test_typos_in_plain_words_are_corrected(typed: str, meant: str) -> None:
    assert SPELLING.correct(typed) == meant


NAMED = Spelling(
    dict.fromkeys("read file list files create pull request send email".split(), 2),
    [["read", "file"], ["list", "files"], ["create", "pull", "request"], ["send", "email"]],
)


@pytest.mark.req("S-02")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("reed a fil", "read a file"),
        ("reed the fil please", "read the file please"),
        ("please crate a pul requst", "please create a pull request"),
        ("sent an emial", "send an email"),
    ],
)
def test_words_beside_a_typo_become_the_words_of_a_name(typed: str, meant: str) -> None:
    assert NAMED.correct(typed) == meant


@pytest.mark.req("S-02")
@pytest.mark.parametrize(
    "right", ["lost files", "reed instruments", "show the last files", "a real file", "ready fuel"]
)
def test_words_that_exist_are_not_changed_without_a_typo_beside_them(right: str) -> None:
    assert NAMED.correct(right) == right


@pytest.mark.req("S-02")
@pytest.mark.parametrize(
    "right",
    [
        "commit the changes and committed changing",  # forms of a word
        "username homepage northwind readable prioritize rebook",  # made of known words
        "ask Priya about the Falcon project",  # names
        "read_fil and mail/serach.txt or me@exmaple.org #serach --serach",  # identifiers, paths, addresses, options
        "aller au supermarché et acheter du fromage",  # another language
        "прочитать файл 读取文件",
        "numpy redis nginx kafka grafana kubernetes",  # words of the trade that no list has
        "",
        "  \t ?!",
    ],
)
def test_correct_words_names_and_other_languages_stay_unchanged(right: str) -> None:
    assert SPELLING.correct(right) == right


@pytest.mark.req("S-02")
def test_a_word_of_the_catalogue_is_preferred_to_a_more_common_one() -> None:
    assert SPELLING.correct("the wether") == "the weather"
    assert Spelling({"whether": 1}).correct("the wether") == "the whether"


@pytest.mark.req("S-02")
def test_words_of_the_catalogue_are_known() -> None:
    assert Spelling({}).correct("grafanna") == "grafanna"
    assert Spelling({"grafana": 2}).correct("grafanna") == "grafana"


@pytest.mark.req("S-02")
@settings(max_examples=scale_examples(100), deadline=None)
@given(st.text(max_size=60))
def test_any_text_can_be_corrected_and_a_corrected_text_stays(text: str) -> None:
    once = SPELLING.correct(text)
    assert SPELLING.correct(once) == once
