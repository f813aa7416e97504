"""Confidences follow from their evidence and stay between 0 and 1; only an exact name gives 1. A reason names exactly
what changed the score."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.domain.search import Candidate, SimilarityRange
from toolscript.retrieval.capabilities import Subjects, load_capabilities
from toolscript.retrieval.confidence import (
    INFERRED_ALONE,
    MIN_SHARE,
    NEAR_EQUAL,
    UNNAMED,
    Confidences,
    Evidence,
    QueryTopics,
    explain,
)
from toolscript.retrieval.learned_ranking import LEARNED
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
    {Subjects(kinds=frozenset({"shell"})): ["shell"]},
)


def legs(dense: dict[str, float], lexical: dict[str, float]) -> Legs:
    def ranking(scores: dict[str, float]) -> list[Candidate]:
        return [Candidate(i, s) for i, s in sorted(scores.items(), key=lambda pair: -pair[1])]

    return Legs(ranking(dense), ranking(lexical))


def confidences(found: Legs, about: QueryTopics = NOTHING, alpha: float = 0.7) -> Confidences:
    return Confidences(found, 10.0, MODEL, alpha, about, 100)


def by_id(found: Confidences) -> dict[str, float]:
    return dict(found.sort())


@pytest.mark.req("S-01")
@settings(max_examples=scale_examples(100), deadline=None)
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
@pytest.mark.parametrize("alpha", [0.0, 0.4, 0.7, 1.0])
def test_scores_are_the_weighted_sum_of_both_sides_each_relative_to_its_best(alpha: float) -> None:
    learned = replace(LEARNED, keyword=1.0, beneath=0.0)
    found = Confidences(
        legs({"a": 0.5, "b": 0.3}, {"b": 8.0, "c": 2.0}), 10.0, MODEL, alpha, NOTHING, 100, learned
    ).scores
    assert found == pytest.approx({"a": alpha, "b": alpha * 0.5 + (1 - alpha), "c": (1 - alpha) * 0.25})


@pytest.mark.req("S-01")
def test_words_are_as_loud_as_was_learned() -> None:
    found = {
        loudness: Confidences(
            legs({"a": 0.5}, {"b": 8.0}), 10.0, MODEL, 0.5, NOTHING, 100, replace(LEARNED, keyword=loudness)
        ).scores
        for loudness in (1.0, 0.5)
    }
    assert found[1.0] == pytest.approx({"a": 0.5, "b": 0.5})
    assert found[0.5] == pytest.approx({"a": 2 / 3, "b": 1 / 3})


@pytest.mark.req("S-01")
def test_the_first_hit_is_as_sure_as_the_curve_says_and_later_ones_as_their_scores_are_lower() -> None:
    found = confidences(legs({"a": 0.45, "b": 0.44, "c": 0.30}, {}), alpha=1.0)
    assert by_id(found)["a"] == round(LEARNED.hybrid.estimate(found.signals), 4)
    share = found.scores["b"] / found.scores["a"]
    assert by_id(found)["b"] == pytest.approx(by_id(found)["a"] * share, abs=1e-4)
    assert by_id(found)["a"] > by_id(found)["b"] > by_id(found)["c"]


@pytest.mark.req("S-01")
def test_a_search_by_words_alone_has_a_curve_of_its_own() -> None:
    both = legs({"a": 0.45}, {"b": 4.0})
    assert by_id(confidences(both, alpha=0.0))["b"] == round(
        LEARNED.words.estimate(confidences(both, alpha=0.0).signals), 4
    )


@pytest.mark.req("S-01")
def test_a_close_race_makes_the_first_hit_less_sure() -> None:
    close, clear = (confidences(legs({"a": 0.45, "b": second}, {})) for second in (0.449, 0.2))
    assert by_id(close)["a"] < by_id(clear)["a"]


@pytest.mark.req("Q-08")
@settings(max_examples=scale_examples(100), deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(-1, 1), max_size=6),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 50), max_size=6),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(-1, 1), max_size=6),
)
def test_use_changes_no_confidence_and_moves_only_among_near_equals(
    dense: dict[str, float], lexical: dict[str, float], use: dict[str, float]
) -> None:
    found = legs(dense, lexical)
    plain, used = (Confidences(found, 10.0, MODEL, 0.7, NOTHING, 100, use=each) for each in ({}, use))
    assert used.sort() == plain.sort()
    assert used.signals == plain.signals
    assert plain.moves == {}
    assert all(-NEAR_EQUAL <= move <= NEAR_EQUAL for move in used.moves.values())


@pytest.mark.req("Q-08")
def test_a_tool_that_was_used_for_similar_requests_says_so() -> None:
    near = legs({"used": 0.40, "other": 0.41, "wrong": 0.39}, {})
    found = Confidences(near, 10.0, MODEL, 0.7, NOTHING, 100, use={"used": 0.44, "wrong": 0.36})
    assert found.moves["wrong"] < 0 < found.moves["used"]
    assert explain(found.evidence("used", ())) == f"{SEMANTIC} + used for similar requests"
    assert explain(found.evidence("other", ())) == SEMANTIC
    assert explain(found.evidence("wrong", ())) == f"{SEMANTIC} + wrong for similar requests"


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
        (Evidence(semantic=0.8, keyword=0.2, words=1.0, shared_words=("file",)), f"{SEMANTIC} + {KEYWORD} (file)"),
        (Evidence(semantic=0.8, keyword=0.05, words=0.25, shared_words=("file",)), SEMANTIC),
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


@pytest.mark.req("S-01", "Q-04")
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
@settings(max_examples=scale_examples(100), deadline=None)
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
