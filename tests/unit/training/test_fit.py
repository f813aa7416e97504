"""Fitted curves find the numbers that made the judgements, and figures come from catalogues left out."""

from __future__ import annotations

import random
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from toolscript.retrieval.learned_ranking import LEARNED, Curve, Signals, parse_learned_ranking
from training.fit import MAX_SILENT, Judged, cross_validate, fit_curve, fit_noise, write_ranking

TRUE = Curve(base=-3.0, similarity=8.0, coverage=2.0, size=-0.5, tie=-0.3, lead=10.0)


def judge(count: int, curve: Curve = TRUE, groups: int = 6) -> list[Judged]:
    """Requests whose judgements are drawn with the probabilities of the curve: if one is served, its first hit is right
    with the curve's estimate."""
    source = random.Random(5)
    found = []
    for number in range(count):
        group = number % groups
        signals = Signals(source.uniform(-0.1, 1), source.random(), source.uniform(0, 0.6), 1.0 + group / 2)
        is_served = source.random() < replace(curve, tie=100.0, lead=0.0).estimate(signals)
        is_first = source.random() < curve.estimate(signals)
        found.append(Judged(f"c{group}", f"c{group}", signals, is_served, is_served and is_first))
    return found


@pytest.mark.slow
def test_the_curve_that_made_the_judgements_is_found() -> None:
    """Nearly: both kinds of requests have weights of their own, whatever their numbers."""
    found = fit_curve(judge(12_000))
    assert found.similarity == pytest.approx(TRUE.similarity, rel=0.15)
    assert found.coverage == pytest.approx(TRUE.coverage, rel=0.3)
    assert found.lead == pytest.approx(TRUE.lead, rel=0.4)


@pytest.mark.slow
def test_confidences_of_catalogues_left_out_are_right_as_often_as_they_say() -> None:
    figures = cross_validate(judge(6_000), 0.35)
    assert figures["calibration error"] < 0.05
    assert figures["not served, left empty"] > figures["served, left empty"]


def test_a_signal_that_tells_nothing_counts_for_nothing() -> None:
    blind = [replace(j, signals=j.signals._replace(coverage=0.0)) for j in judge(3_000)]
    assert fit_curve(blind).coverage == 0.0


def test_the_file_that_is_written_can_be_loaded(tmp_path: Path) -> None:
    write_ranking(tmp_path / "ranking.toml", LEARNED, {"hybrid": TRUE, "words": TRUE}, 0.07)
    written = parse_learned_ranking(tomllib.loads((tmp_path / "ranking.toml").read_text(encoding="utf-8")))
    assert written == replace(LEARNED, hybrid=TRUE, words=TRUE, noise=0.07)


def test_nearly_all_requests_with_a_right_tool_are_above_the_bound_of_noise() -> None:
    judged = judge(4_000)
    bound = fit_noise(judged, TRUE)
    estimates = {kind: [TRUE.estimate(j.signals) for j in judged if j.is_served == kind] for kind in (True, False)}
    below = {kind: sum(value < bound for value in values) / len(values) for kind, values in estimates.items()}
    assert below[True] == pytest.approx(MAX_SILENT, abs=0.002)
    assert below[False] > 10 * below[True]
