"""Among near equals a tool is before prompts and resources, and what is deprecated behind its successor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscript.domain.catalog import ItemType
from toolscript.retrieval.near_equals import NearEquals, find_successor, is_deprecated

pytestmark = pytest.mark.req("S-01")

PROMPTS = NearEquals(types={"a__prompt:p": ItemType.PROMPT, "a__resource:r": ItemType.RESOURCE})


@pytest.mark.parametrize(
    ("title", "description"),
    [
        ("Read File (Deprecated)", "Read the complete contents of a file as text."),
        (None, "Read the complete contents of a file. DEPRECATED: Use read_text_file instead."),
        (None, "[Deprecated] Lists users."),
        (None, "**Deprecated.** Lists users."),
        (None, "Deprecated in favour of `list_members`."),
        (None, "Lists users. This tool is deprecated and will go."),
    ],
)
def test_what_says_that_it_is_deprecated_is(title: str | None, description: str) -> None:
    assert is_deprecated(title, description)


@pytest.mark.parametrize(
    "description",
    [
        "Lists deprecated feature flags.",
        "Deprecated flags are listed.",
        "Gets a page. `/rest/api/3/search` is deprecated!",
        "NOTE: This MCP server (x) is deprecated and no longer receives feature work.",
        "",
    ],
)
def test_what_only_mentions_deprecation_is_not(description: str) -> None:
    assert not is_deprecated(None, description)


@pytest.mark.parametrize(
    ("description", "successor"),
    [
        ("Use a path. DEPRECATED: Use read_text_file instead.", "s__read_text_file"),
        ("Deprecated in favor of `list`.", "s__list"),
        ("[Deprecated] Replaced by list.", "s__list"),
        ("[Deprecated] Gets a list.", None),
        ("Deprecated. Use something else.", None),
    ],
)
def test_the_successor_is_the_tool_that_the_description_names(description: str, successor: str | None) -> None:
    assert find_successor(description, {"read_text_file": "s__read_text_file", "list": "s__list"}) == successor


def test_a_tool_is_before_prompts_and_resources_of_like_confidence() -> None:
    ranked = [("a__prompt:p", 0.62), ("a__resource:r", 0.61), ("b__t", 0.59), ("c__t", 0.58), ("d__t", 0.5)]
    found = [i for i, _ in PROMPTS.order(ranked)]
    assert found == ["b__t", "a__prompt:p", "c__t", "a__resource:r", "d__t"]


def test_a_prompt_that_the_query_names_stays_first() -> None:
    ranked = [("a__prompt:p", 1.0), ("b__t", 0.985)]
    assert PROMPTS.order(ranked, {"a__prompt:p"}) == ranked
    both = [("a__prompt:p", 1.0), ("b__p", 1.0)]
    assert PROMPTS.order(both, {"a__prompt:p", "b__p"}) == both[::-1]


def test_a_deprecated_tool_is_behind_the_one_it_names_and_near_ones_of_its_server() -> None:
    known = NearEquals(deprecated={"s__old": "s__new", "s__older": None})
    assert known.order([("s__old", 0.6), ("t__other", 0.58), ("s__new", 0.4)]) == [
        ("s__new", 0.4),
        ("s__old", 0.6),
        ("t__other", 0.58),
    ]
    ranked = [("s__older", 0.6), ("t__other", 0.59), ("s__x", 0.58), ("s__y", 0.5)]
    assert [i for i, _ in known.order(ranked)] == ["t__other", "s__x", "s__older", "s__y"]
    assert known.order(ranked, {"s__older"}) == ranked
    assert known.order([("s__old", 0.6), ("t__other", 0.58)]) == [("s__old", 0.6), ("t__other", 0.58)]


@pytest.mark.req("Q-08")
def test_use_moves_a_tool_before_near_equals_and_never_before_one_that_the_query_names() -> None:
    ranked = [("s__called", 1.0), ("s__other", 0.6), ("s__used", 0.55), ("s__wrong", 0.54), ("s__far", 0.4)]
    found = NearEquals().order(ranked, {"s__called"}, {"s__used": 0.1, "s__wrong": -0.05, "s__far": 0.1})
    assert [i for i, _ in found] == ["s__called", "s__used", "s__other", "s__far", "s__wrong"]
    assert sorted(found) == sorted(ranked)
    sure = [("s__called", 1.0), ("s__used", 0.98)]
    assert NearEquals().order(sure, {"s__called"}, {"s__used": 0.1}) == sure


@given(
    st.lists(
        st.sampled_from(["a__prompt:p", "a__resource:r", "s__old", "s__new", "s__older", "t__x", "u__y"]), unique=True
    ),
    st.lists(st.floats(0, 1), min_size=7, max_size=7),
)
def test_nothing_is_lost_or_changed(ids: list[str], scores: list[float]) -> None:
    ranked = list(zip(ids, sorted(scores, reverse=True), strict=False))
    known = NearEquals(PROMPTS.types, {"s__old": "s__new", "s__new": "s__old", "s__older": None})
    assert sorted(known.order(ranked)) == sorted(ranked)
