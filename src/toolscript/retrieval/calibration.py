"""What a cosine means depends on the model: 0.6 is noise for one and a strong match for another. Here raw
similarities become scores between 0 and 1 that mean the same whichever model runs, so thresholds can too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolscript.domain.search import Vector
from toolscript.ports import Similarity


def calibrated(cosine: float, similarity: Similarity) -> float:
    """0 at what unrelated texts score, 1 at a text that says the same, linear between."""
    return min(1.0, max(0.0, (cosine - similarity.floor) / (similarity.ceiling - similarity.floor)))


def measured(queries: Sequence[Vector], answers: Sequence[Vector]) -> Similarity:
    """The calibration of a model, from questions in plain words and the texts that answer them, pair by pair.

    A typical question scores 0.5 with its own answer, and 0 with three quarters of the others'. It takes two pairs at
    least.
    """
    cosines = np.asarray(queries) @ np.asarray(answers).T
    own = np.median(np.diag(cosines))
    floor = float(np.percentile(cosines[~np.eye(len(cosines), dtype=bool)], 75))
    return Similarity(floor, floor + max(2 * (float(own) - floor), 0.05))
