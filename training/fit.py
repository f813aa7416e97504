"""Fits the curves from what a search knows of its answer to the probability that the first hit is right.

Every catalogue has the same weight. The figures that are printed come from curves fitted without the catalogue that
they are measured on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolscript.retrieval.learned_ranking import Curve, LearnedRanking, Signals

Numbers = NDArray[np.float64]
# The weight of requests that no tool serves, beside those that one does.
UNSERVED = 0.6
# Keeps coefficients small where the data say nothing.
RIDGE = 1e-3
STEPS = 100
BUCKETS = 10
# The share of requests with a right tool whose answers may show no tool at all. In catalogues that are left out it is
# 0.005.
MAX_SILENT = 0.003
HEADER = (
    "# The numbers of tool search (docs/decisions/0019). `python -m training fit` writes all but `keyword` and\n"
    "# `beneath`.\n"
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A request in a catalogue: what the search knew, whether a tool serves it, and whether the first hit is right.
    Catalogues of one `group` are left out together when figures are computed."""

    catalogue: str
    group: str
    signals: Signals
    is_served: bool
    is_right: bool
    is_noise: bool = False
    """Whether it is small talk or noise, which no tool of any catalogue serves."""


def fit_curve(judged: Sequence[Judged]) -> Curve:
    """The curves that make the judgements the likeliest. The first is fitted where both kinds of requests are known."""
    both = {j.catalogue for j in judged if not j.is_served}
    known = [j for j in judged if j.catalogue in both]
    served = fit_logistic(
        np.array([[1.0, j.signals.similarity, j.signals.coverage, j.signals.size] for j in known]),
        np.array([float(j.is_served) for j in known]),
        _weigh(known, lambda j: (j.catalogue, j.is_served)) * [1.0 if j.is_served else UNSERVED for j in known],
    )
    answered = [j for j in judged if j.is_served]
    ceilings = np.array([_make_curve(served, (100.0, 0.0)).estimate(j.signals) for j in answered])
    first = fit_logistic(
        np.array([[1.0, j.signals.lead] for j in answered]),
        np.array([float(j.is_right) for j in answered]),
        _weigh(answered, lambda j: j.catalogue),
        ceilings,
    )
    return _make_curve(served, first)


def fit_noise(judged: Sequence[Judged], curve: Curve) -> float:
    """The confidence that the best hits of nearly all requests with a right tool reach. Most small talk does not."""
    estimates = [curve.estimate(j.signals) for j in judged if j.is_served]
    return round(float(np.quantile(estimates, MAX_SILENT)), 3)


def cross_validate(judged: Sequence[Judged], threshold: float) -> dict[str, float]:
    """The calibration error (of requests that a tool serves, and of all) and the shares of requests left empty, each by
    curves that never saw the catalogue."""
    estimates: list[tuple[Judged, float]] = []
    is_silent: list[bool] = []
    for group in sorted({j.group for j in judged}):
        others = [j for j in judged if j.group != group]
        curve = fit_curve(others)
        noise = fit_noise(others, curve)
        found = [(j, curve.estimate(j.signals)) for j in judged if j.group == group]
        estimates += found
        is_silent += [value < noise for _, value in found]
    silent = [(j, float(not silent)) for (j, _), silent in zip(estimates, is_silent, strict=True)]
    served = [(j, value) for j, value in estimates if j.is_served]
    rest = [(j, value) for j, value in estimates if not j.is_served]
    return {
        "calibration error": _measure_error(served),
        "with requests that no tool serves": _measure_error(estimates),
        "served, left empty": _measure_share(served, threshold),
        "not served, left empty": _measure_share(rest, threshold),
        "served, without closest": _measure_share([(j, value) for j, value in silent if j.is_served], 1),
        "small talk and noise, without closest": _measure_share([(j, value) for j, value in silent if j.is_noise], 1),
    }


def write_ranking(path: Path, old: LearnedRanking, curves: Mapping[str, Curve], noise: float) -> None:
    """Writes the file of learned numbers, with new curves and a new bound of noise."""
    tables: dict[str, Mapping[str, Any]] = {
        "score": {"keyword": old.keyword, "beneath": old.beneath, "noise": noise},
        **{name: asdict(curve) for name, curve in curves.items()},
    }
    parts = [
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in table.items()) for name, table in tables.items()
    ]
    path.write_text("\n".join([HEADER, *parts]), encoding="utf-8")


def _make_curve(served: Iterable[float], first: Iterable[float]) -> Curve:
    base, similarity, coverage, size, tie, lead = (round(float(value), 2) for value in (*served, *first))
    return Curve(base, similarity, coverage, size, tie, lead)


def fit_logistic(features: Numbers, wanted: Numbers, weights: Numbers, ceilings: Numbers | None = None) -> Numbers:
    """The coefficients of a logistic curve times `ceilings`, by Fisher scoring."""
    top = np.ones(len(wanted)) if ceilings is None else ceilings
    found = np.zeros(features.shape[1])
    ridge = RIDGE * np.diag([0.0, *np.ones(features.shape[1] - 1)])
    for _ in range(STEPS):
        share = 1 / (1 + np.exp(-np.clip(features @ found, -30, 30)))
        chance = np.clip(top * share, 1e-6, 1 - 1e-6)
        slopes = (top * share * (1 - share))[:, None] * features
        spread = weights / (chance * (1 - chance))
        step = np.linalg.solve(
            slopes.T @ (spread[:, None] * slopes) + ridge, slopes.T @ (spread * (wanted - chance)) - ridge @ found
        )
        found = found + step
        if np.abs(step).max() < 1e-9:  # noqa: PLR2004
            break
    return found


def _weigh(judged: Sequence[Judged], get_part: Callable[[Judged], Any]) -> Numbers:
    """A weight for each request: those of one part have 1 together."""
    parts = [get_part(j) for j in judged]
    counts = {part: parts.count(part) for part in set(parts)}
    return np.array([1 / counts[part] for part in parts])


def _measure_error(estimates: Sequence[tuple[Judged, float]]) -> float:
    """The mean distance between confidence and the share that is right, over ranges of confidence."""
    weights = _weigh([j for j, _ in estimates], lambda j: j.catalogue)
    values = np.array([value for _, value in estimates])
    misses = weights * (values - [float(j.is_right) for j, _ in estimates])
    ranges = np.minimum((values * BUCKETS).astype(int), BUCKETS - 1)
    return float(sum(abs(misses[ranges == each].sum()) for each in range(BUCKETS)) / weights.sum())


def _measure_share(estimates: Sequence[tuple[Judged, float]], threshold: float) -> float:
    if not estimates:
        return 0.0
    weights = _weigh([j for j, _ in estimates], lambda j: j.catalogue)
    return float(np.average([value < threshold for _, value in estimates], weights=weights))
