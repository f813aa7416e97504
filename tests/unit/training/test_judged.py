"""The judgements that the packaged confidences were fitted to: confidences mean their numbers in catalogues left out,
and the search still knows the same of a request."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from toolscript.retrieval.learned_ranking import LEARNED, Signals
from toolscript.services.tools.hybrid_search import DEFAULT_THRESHOLD
from training.fit import Judged, cross_validate
from training.judge import judge, read_catalogues, read_judged, write_judged

ROOM = Path("training")
CATALOGUE = "yfinance-mcp+mcp-server-time+mcp-server-calculator"

pytestmark = [pytest.mark.slow, pytest.mark.req("Q-03")]


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    return read_judged(ROOM / "judged.jsonl.gz")


def test_a_confidence_means_its_number_in_catalogues_that_were_not_used_in_fitting(judged: list[Judged]) -> None:
    # 0.031, 0.029, 0.88, 0.005 and 0.77 (docs/benchmarks.md). A request is 0.3 % of its catalogue, and a catalogue 6 %.
    figures = cross_validate(judged, DEFAULT_THRESHOLD)
    assert figures["calibration error"] <= 0.05
    assert figures["with requests that no tool serves"] <= 0.05
    assert figures["not served, left empty"] >= 0.86
    assert figures["served, without closest"] <= 0.007
    assert figures["small talk and noise, without closest"] >= 0.72


def test_the_packaged_curve_is_as_sure_as_the_judged_requests_are_right(judged: list[Judged]) -> None:
    served = sorted((LEARNED.hybrid.estimate(each.signals), each.is_right) for each in judged if each.is_served)
    bounds = [round(len(served) * part / 5) for part in range(6)]
    for start, end in pairwise(bounds):
        part = served[start:end]
        sure, right = (sum(column) / len(part) for column in zip(*part, strict=True))
        assert sure == pytest.approx(right, abs=0.08)


def test_the_search_knows_the_same_of_requests_as_when_they_were_judged(
    shared_data: Path, judged: list[Judged]
) -> None:
    known = read_catalogues([], ROOM / "requests", shared_data / "mcp_servers", [])
    now = judge([next(each for each in known if each.name == CATALOGUE)])["hybrid"]
    then = [each for each in judged if each.catalogue == CATALOGUE]
    assert [each.is_served for each in now] == [each.is_served for each in then]
    assert sum(a.is_right == b.is_right for a, b in zip(now, then, strict=True)) >= 0.9 * len(then)
    for name in Signals._fields:
        # Processors round differently, 8 bits wide: 0.01 at most where it was seen.
        changes = [abs(getattr(a.signals, name) - getattr(b.signals, name)) for a, b in zip(now, then, strict=True)]
        assert median(changes) < 0.02, name


def test_judgements_are_read_as_they_were_written(tmp_path: Path, judged: list[Judged]) -> None:
    write_judged(tmp_path / "judged.jsonl.gz", judged[:50])
    assert read_judged(tmp_path / "judged.jsonl.gz") == judged[:50]
