"""Converts cosines to scores from 0 to 1 that mean the same for every model, so that thresholds do too. A cosine of 0.6
is noise for one model and a strong match for another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolscript.domain.search import SimilarityRange, Vector


def calibrate(cosine: float, similarity: SimilarityRange) -> float:
    """The score of a cosine: 0 for unrelated texts, 1 for paraphrases, linear between."""
    place = position(cosine, similarity)
    return place if 0.0 < place < 1.0 else float(place >= 1.0)


def position(cosine: float, similarity: SimilarityRange) -> float:
    """The position of a cosine between floor (0) and ceiling (1); it may be outside."""
    return (cosine - similarity.floor) / (similarity.ceiling - similarity.floor)


def measure_similarity(queries: Sequence[Vector], answers: Sequence[Vector]) -> SimilarityRange:
    """Measures the range of a model with at least two questions and the texts that answer them, pair by pair.

    A typical question scores 0.5 with its own answer, and 0 with three quarters of the other answers.
    """
    cosines = np.asarray(queries) @ np.asarray(answers).T
    paraphrase = np.median(np.diag(cosines))
    floor = float(np.percentile(cosines[~np.eye(len(cosines), dtype=bool)], 75))
    return SimilarityRange(floor, floor + max(2 * (float(paraphrase) - floor), 0.05))
