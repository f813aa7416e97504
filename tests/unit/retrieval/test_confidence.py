"""Confidences follow from their evidence and stay between 0 and 1; only an exact name gives 1. A reason names exactly
what changed the score."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscript.domain.search import Candidate, SimilarityRange
from toolscript.retrieval.calibration import certainty
from toolscript.retrieval.capabilities import Subjects, load_capabilities
from toolscript.retrieval.confidence import (
    INFERRED_ALONE,
    MIN_SHARE,
    UNNAMED,
    Confidences,
    Evidence,
    QueryTopics,
    explain,
)
from toolscript.retrieval.retriever import Legs
from toolscript.retrieval.text.fuzzy import NameMatches

SEMANTIC, KEYWORD, FUZZY = "Semantic similarity", "Keyword match", "Fuzzy match"

shares = st.one_of(st.just(0.0), st.floats(0.001, 1))

MODEL = SimilarityRange(0.1, 0.5)
NOTHING = QueryTopics(frozenset(), {}, load_capabilities())
GIT = QueryTopics(
    frozenset({"git"}),
    {
        "own": Subjects(frozenset({"git"})),
        "shell": Subjects(kinds=frozenset({"shell"})),
        "mail": Subjects(frozenset({"email"})),
    },
    load_capabilities(),
)


def legs(dense: dict[str, float], lexical: dict[str, float]) -> Legs:
    def ranking(scores: dict[str, float]) -> list[Candidate]:
        return [Candidate(i, s) for i, s in sorted(scores.items(), key=lambda pair: -pair[1])]

    return Legs(ranking(dense), ranking(lexical))


def confidences(found: Legs, about: QueryTopics = NOTHING, alpha: float = 0.7) -> Confidences:
    return Confidences(found, 10.0, MODEL, alpha, about)


def by_id(found: Confidences) -> dict[str, float]:
    return dict(found.sort())


@pytest.mark.req("S-01")
@settings(max_examples=100, deadline=None)
@given(st.floats(0, 5), st.floats(0, 5))
def test_more_evidence_is_never_less_certain(one: float, other: float) -> None:
    lesser, larger = sorted([one, other])
    assert 0 <= certainty(lesser) <= certainty(larger) < 1
    assert certainty(-1) == certainty(0) == 0


@pytest.mark.req("S-01")
@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(-1, 1), max_size=6),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 50), max_size=6),
    st.floats(0, 1),
)
def test_confidences_are_between_zero_and_one_and_in_order(
    dense: dict[str, float], lexical: dict[str, float], alpha: float
) -> None:
    found = confidences(legs(dense, lexical), alpha=alpha).sort()
    values = [value for _, value in found]
    assert values == sorted(values, reverse=True)
    assert all(0 <= value <= UNNAMED for value in values)
    assert {i for i, _ in found} == dense.keys() | lexical.keys()


@pytest.mark.req("S-01")
def test_each_side_counts_by_its_weight() -> None:
    both = confidences(legs({"a": 0.4, "b": 0.3}, {"a": 6.0, "b": 6.0}))
    words_only = confidences(legs({"a": 0.4}, {"a": 6.0, "b": 6.0}))
    assert both.evidence("b", ()).semantic > 0
    assert by_id(words_only)["b"] == pytest.approx(by_id(both)["b"] - both.evidence("b", ()).semantic, abs=1e-4)


@pytest.mark.req("S-02")
def test_an_exact_name_comes_first_and_its_original_spelling_before_others() -> None:
    found = confidences(legs({"best": 0.9, "called": 0.0}, {"best": 50.0}), GIT)
    found.raise_named(NameMatches(frozenset({"called", "rewritten"}), {"called": 1.0, "rewritten": 0.99}))
    assert [i for i, _ in found.sort()] == ["called", "rewritten", "best"]
    assert found.evidence("called", ()).exact
    assert not found.evidence("best", ()).exact


@pytest.mark.req("S-02")
def test_among_equal_names_the_better_match_comes_first() -> None:
    found = confidences(legs({"a": 0.2, "z": 0.6}, {}))
    found.raise_named(NameMatches(frozenset("az"), {"a": 1.0, "z": 1.0}))
    assert found.sort() == [("z", 1.0), ("a", 1.0)]


@pytest.mark.req("S-03")
def test_a_capability_counts_more_where_nothing_else_was_found() -> None:
    alone = confidences(legs({"shell": 0.12, "mail": 0.11}, {}), GIT)
    before = by_id(alone)["shell"]
    alone.raise_capable()
    assert by_id(alone)["shell"] == INFERRED_ALONE
    response = alone.evidence("shell", ())
    assert response.capability == "shell → git"
    assert response.inferred == pytest.approx(INFERRED_ALONE - before, abs=1e-4)
    assert alone.evidence("mail", ()).capability == ""


@pytest.mark.req("S-03")
@pytest.mark.parametrize("nearness", [0.15, 0.3, 0.6])
def test_a_capability_gains_a_little_and_stays_behind_tools_of_the_domain(nearness: float) -> None:
    found = confidences(legs({"own": nearness, "shell": nearness - 0.02, "mail": 0.1}, {}), GIT)
    before = by_id(found)
    found.raise_capable()
    after = by_id(found)
    assert after["own"] == before["own"] > after["shell"] >= before["shell"]
    assert bool(found.evidence("shell", ()).capability) == (after["shell"] > before["shell"])


@pytest.mark.req("S-03")
def test_a_tool_of_the_querys_domain_gains_and_its_reason_names_the_domain() -> None:
    plain = by_id(
        confidences(legs({"own": 0.3, "mail": 0.3}, {}), QueryTopics(frozenset(), GIT.subjects, GIT.capabilities))
    )
    found = confidences(legs({"own": 0.3, "mail": 0.3}, {}), GIT)
    assert by_id(found)["own"] > by_id(found)["mail"]
    assert plain["own"] == plain["mail"]
    assert (found.evidence("own", ()).domain, found.evidence("mail", ()).domain) == ("git", "")


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
