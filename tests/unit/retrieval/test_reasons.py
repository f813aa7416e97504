"""A reason names exactly what changed the score."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscript.retrieval.reasons import MIN_SHARE, Evidence, explain

SEMANTIC, KEYWORD, FUZZY = "Semantic similarity", "Keyword match", "Fuzzy match"

shares = st.one_of(st.just(0.0), st.floats(0.001, 1))


@pytest.mark.req("S-01")
@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (Evidence(semantic=0.5), SEMANTIC),
        (Evidence(keyword=0.5), KEYWORD),
        (Evidence(keyword=0.5, shared_words=("read", "file")), "Keyword match (read, file)"),
        (Evidence(fuzzy=0.3), FUZZY),
        (Evidence(semantic=0.4, keyword=0.3, shared_words=("file",)), "Semantic similarity + Keyword match (file)"),
        (Evidence(semantic=0.3, keyword=0.4, shared_words=("file",)), "Keyword match (file) + Semantic similarity"),
        (Evidence(semantic=0.2, fuzzy=0.3), "Fuzzy match + Semantic similarity"),
        (Evidence(semantic=0.2, keyword=0.2, fuzzy=0.2), f"{SEMANTIC} + {KEYWORD} + {FUZZY}"),
        (Evidence(semantic=0.5, domain="file operations"), "Semantic similarity (file operations)"),
        (Evidence(fuzzy=0.9, domain="file operations"), "Fuzzy match + domain boost"),
        (Evidence(inferred=0.3, capability="shell → git"), "Capability inference (shell → git)"),
        (
            Evidence(semantic=0.4, inferred=0.05, capability="shell → git"),
            "Semantic similarity + Capability inference (shell → git)",
        ),
    ],
)
def test_a_reason_names_what_contributed_the_strongest_first(evidence: Evidence, expected: str) -> None:
    assert explain(evidence) == expected


@pytest.mark.req("S-01")
def test_an_exact_name_is_the_only_reason_given() -> None:
    assert explain(Evidence(semantic=0.6, keyword=0.3, exact=True, shared_words=("file",))) == "Exact name"
    assert explain(Evidence(exact=True)) == "Exact name"


@pytest.mark.req("S-01")
def test_words_that_contributed_nothing_are_not_named() -> None:
    assert explain(Evidence(semantic=0.5, shared_words=("file",))) == SEMANTIC


@pytest.mark.req("S-01")
def test_without_any_contribution_a_match_is_called_weak() -> None:
    assert explain(Evidence()) == explain(Evidence(shared_words=("file",))) == "Weak match"


@pytest.mark.req("S-01")
def test_a_part_is_named_from_a_quarter_of_the_score() -> None:
    assert MIN_SHARE == 0.25
    assert explain(Evidence(semantic=0.75, keyword=0.25)) == f"{SEMANTIC} + {KEYWORD}"
    assert explain(Evidence(semantic=0.76, keyword=0.24)) == SEMANTIC


@pytest.mark.req("S-01")
@settings(max_examples=100, deadline=None)
@given(shares, shares, shares)
def test_exactly_the_parts_with_a_large_enough_share_are_named(semantic: float, keyword: float, fuzzy: float) -> None:
    parts = {SEMANTIC: semantic, KEYWORD: keyword, FUZZY: fuzzy}
    response = explain(Evidence(semantic, keyword, fuzzy))
    informative = {name for name, share in parts.items() if share > 0 and share >= 0.25 * (semantic + keyword + fuzzy)}
    if not informative:
        assert response == "Weak match"
        return
    named = response.split(" + ")
    assert set(named) == informative
    assert [parts[n] for n in named] == sorted((parts[n] for n in named), reverse=True)
