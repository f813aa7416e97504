"""A tool is found by its name in every spelling and with typos; unrelated text finds none."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.domain.catalog import Item
from toolscript.retrieval.text.fuzzy import KEPT, Names
from toolscript.services.catalogue.demo import load_demo_items

ITEMS = load_demo_items()
DEMO = Names((item.id, item.name) for item in ITEMS)
LONG_ENOUGH = [item for item in ITEMS if sum(c.isalnum() for c in item.name) >= 5]
READ = "filesystem__read_file"


@st.composite
def find_mistyped(draw: st.DrawFn) -> tuple[str, str]:
    """The id of a tool and its name with one letter dropped, doubled, replaced or swapped with the next."""
    item = draw(st.sampled_from(LONG_ENOUGH))
    at = draw(st.integers(0, len(item.name) - 2))
    head, here, following, tail = item.name[:at], item.name[at], item.name[at + 1], item.name[at + 2 :]
    letter = draw(st.sampled_from(string.ascii_lowercase))
    middle = draw(
        st.sampled_from(
            [following, here + letter + following, letter + following, following + here, here * 2 + following]
        )
    )
    return item.id, head + middle + tail


@pytest.mark.req("S-02")
@pytest.mark.parametrize(
    "query",
    [
        "read_file",
        "readFile",
        "read-file",
        "READ_FILE",
        "read file",
        "readfile",
        "filesystem__read_file",
        "filesystem.read_file",
        "call read_file on the log",
        "what does `readFile` do?",
        'use "read-file", please',
        "read_file(path)",
        "does read_file?",
        "run filesystem/read_file.",
        "read_file: how?",
    ],
)
def test_a_name_or_id_is_exact_in_every_way_of_writing_it(query: str) -> None:
    assert DEMO.match(query).exact == {READ}


@pytest.mark.req("S-02")
@pytest.mark.parametrize("query", ["please read file x", "read", "file", "read the file", "reada_file", "thread_file"])
def test_plain_words_and_other_identifiers_are_not_exact(query: str) -> None:
    assert DEMO.match(query).exact == frozenset()


@pytest.mark.req("S-02")
@settings(max_examples=scale_examples(60), deadline=None)
@given(st.sampled_from(ITEMS), st.sampled_from(["{}", "run {} now", "({})", "`{}`!"]))
def test_every_tool_of_the_catalogue_is_exact_by_its_name_and_its_id(item: Item, around: str) -> None:
    for requests in (item.name, item.id):
        found = DEMO.match(around.format(requests))
        assert item.id in found.exact
        assert found.close[item.id] == pytest.approx(1.0)


@pytest.mark.req("S-02")
def test_two_tools_of_one_name_are_both_exact_and_an_id_distinguishes_them() -> None:
    names = Names([("a__search", "search"), ("b__search", "search"), ("c__other", "other")])
    assert names.match("search").exact == {"a__search", "b__search"}
    assert names.match("b__search").exact == {"b__search"}


@pytest.mark.req("S-02")
def test_a_name_that_is_a_plain_word_is_exact_only_as_the_whole_query() -> None:
    names = Names([("web__search", "search")])
    assert names.match(" Search! ").exact == {"web__search"}
    assert names.match("search for a cat").exact == frozenset()
    assert names.match("call web__search for a cat").exact == {"web__search"}


@pytest.mark.req("S-02")
def test_two_names_in_one_query_are_both_exact() -> None:
    assert DEMO.match("read_file or write_file").exact == {READ, "filesystem__write_file"}


@pytest.mark.req("S-02")
@settings(max_examples=scale_examples(200), deadline=None)
@given(find_mistyped(), st.sampled_from(["{}", "{}?"]))
def test_one_typo_still_finds_the_tool(typo: tuple[str, str], around: str) -> None:
    item_id, written = typo
    assert DEMO.match(around.format(written)).close.get(item_id, 0) > 0


@pytest.mark.req("S-02")
def test_a_mistyped_identifier_is_found_inside_a_sentence_and_the_nearest_name_first() -> None:
    found = DEMO.match("please call reda_file for me")
    assert found.exact == frozenset()
    assert next(iter(found.close)) == READ
    assert list(found.close.values()) == sorted(found.close.values(), reverse=True)


@pytest.mark.req("S-02")
def test_a_nearer_spelling_scores_higher_and_only_the_name_itself_scores_one() -> None:
    scores = [DEMO.match(q).close[READ] for q in ("read_file", "read_fil", "red_fil")]
    assert scores[0] == pytest.approx(1.0)
    assert 1 > scores[1] > scores[2] > 0


@pytest.mark.req("S-02")
@pytest.mark.parametrize("query", ["quantum banana telescope", "what is the meaning of life", "x", "прочитать", "读取"])
def test_unrelated_text_is_close_to_nothing(query: str) -> None:
    found = DEMO.match(query)
    assert (found.exact, found.close) == (frozenset(), {})


@pytest.mark.req("S-02")
@pytest.mark.parametrize("query", ["", "   ", "?!", "___"])
def test_a_query_without_words_finds_nothing(query: str) -> None:
    found = DEMO.match(query)
    assert (found.exact, found.close) == (frozenset(), {})


@pytest.mark.req("S-02")
def test_an_empty_catalogue_matches_nothing() -> None:
    for names in (Names([]), Names([("", "")])):
        found = names.match("read_file")
        assert (found.exact, found.close) == (frozenset(), {})


@pytest.mark.req("S-02")
def test_only_the_closest_names_are_kept() -> None:
    crowd = [(f"s{n}__fetch_page_{n:03d}", f"fetch_page_{n:03d}") for n in range(100)]
    found = Names([*crowd, ("t__fetch_page", "fetch_page")]).match("fetch_pag")
    assert len(found.close) == KEPT
    assert next(iter(found.close)) == "t__fetch_page"


@pytest.mark.req("S-02")
@settings(max_examples=scale_examples(100), deadline=None)
@given(st.text(max_size=60))
def test_scores_are_between_zero_and_one_for_any_text(query: str) -> None:
    found = DEMO.match(query)
    assert all(0 <= score <= 1 for score in found.close.values())
    assert found.exact <= found.close.keys()
