"""What a cosine means depends on the model: 0.6 is noise for one and a strong match for another. Here raw
similarities become scores between 0 and 1 that mean the same whichever model runs, so thresholds can too."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from toolscript.domain.search import SimilarityRange, Vector


def calibrate(cosine: float, similarity: SimilarityRange) -> float:
    """0 at what unrelated texts score, 1 at a text that says the same, linear between."""
    place = position(cosine, similarity)
    return place if 0.0 < place < 1.0 else float(place >= 1.0)


def position(cosine: float, similarity: SimilarityRange) -> float:
    """Where a cosine lies between floor (0) and ceiling (1), or beyond them."""
    return (cosine - similarity.floor) / (similarity.ceiling - similarity.floor)


def find_cosine(score: float, similarity: SimilarityRange) -> float:
    """The cosine that has that score; of no score at all, the least there is."""
    return similarity.floor + score * (similarity.ceiling - similarity.floor) if score > 0 else -1.0


def measure_similarity(queries: Sequence[Vector], answers: Sequence[Vector]) -> SimilarityRange:
    """The calibration of a model, from questions in plain words and the texts that answer them, pair by pair.

    A typical question scores 0.5 with its own answer, and 0 with three quarters of the others'. It takes two pairs at
    least.
    """
    cosines = np.asarray(queries) @ np.asarray(answers).T
    own = np.median(np.diag(cosines))
    floor = float(np.percentile(cosines[~np.eye(len(cosines), dtype=bool)], 75))
    return SimilarityRange(floor, floor + max(2 * (float(own) - floor), 0.05))


# How much the evidence for an answer counts beside the similarity: the share of the request that the text covers, and
# that it is of the same domain. Where there is no model, the words speak alone, and louder.
COVERED = 0.4
COVERED_ALONE = 1.5
SAME_DOMAIN = 0.25
# The curve from evidence to certainty: fitted to how often the first hit was right (docs/benchmarks.md).
STEEPNESS = 1.2
BEND = 0.85


def certainty(evidence: float) -> float:
    """How likely the best hit is right, from all that speaks for it: 0 for no evidence, never quite 1."""
    return float(1 - math.exp(-STEEPNESS * max(0.0, evidence) ** BEND))
