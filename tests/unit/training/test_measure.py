"""R@5 and NDCG@10 of an encoder alone."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from training.measure import VALIDATION, Vectors, format_scores, measure, measure_set

TOOLS = {name: name for name in "abcdefgh"}


def embed(texts: Sequence[str]) -> Vectors:
    """Letters that a text contains, later letters with less weight."""
    rows = [[text.count(letter) * 0.9**n for n, letter in enumerate(TOOLS)] for text in texts]
    return np.array(rows, np.float32)


def test_the_first_place_scores_one() -> None:
    query = {"text": "a", "grades": {"a": 1}, "groups": [["a"]]}
    assert measure_set(embed, {"texts": TOOLS, "queries": [query]}) == (1.0, 1.0)


def test_a_lower_place_scores_less_and_counts_within_the_first_five_only() -> None:
    second = {"text": "ab", "grades": {"b": 1}, "groups": [["b"]]}
    sixth = {"text": "abcdef", "grades": {"f": 1}, "groups": [["f"]]}
    recall, gain = measure_set(embed, {"texts": TOOLS, "queries": [second]})
    assert recall == 1.0
    assert gain == pytest.approx(1 / math.log2(3))
    assert measure_set(embed, {"texts": TOOLS, "queries": [sixth]})[0] == 0.0


def test_one_member_of_each_group_is_enough() -> None:
    query = {"text": "ac", "grades": {"a": 1, "b": 1, "c": 1}, "groups": [["a", "b"], ["c"]]}
    assert measure_set(embed, {"texts": TOOLS, "queries": [query]}) == (1.0, 1.0)


def test_graded_documents_count_by_their_grade() -> None:
    query = {"text": "ab", "grades": {"a": 1, "b": 3}, "groups": []}
    ideal = 3 + 1 / math.log2(3)
    _, gain = measure_set(embed, {"texts": TOOLS, "queries": [query]})
    assert gain == pytest.approx((1 + 3 / math.log2(3)) / ideal)


def test_validation_servers_are_measured_among_all_tools() -> None:
    tools = [{"server": name, "text": name} for name in TOOLS]
    data = {"sets": {}, "tools": tools, "queries": [[0, "a"], [1, "ab"]], "validation_servers": ["a"]}
    scores = measure(embed, data, validate=True)
    assert scores == {VALIDATION: (1.0, 1.0)}
    assert format_scores(scores, data) == "validation servers 100.0/100.0"
