"""What a cosine means depends on the model: 0.6 is noise for one and a strong match for another. Here raw
similarities become scores between 0 and 1 that mean the same whichever model runs, so thresholds can too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolscript.domain.search import Vector
from toolscript.ports import Similarity


def calibrated(cosine: float, similarity: Similarity) -> float:
    """0 at what unrelated texts score, 1 at a plain match, linear between."""
    return min(1.0, max(0.0, (cosine - similarity.floor) / (similarity.ceiling - similarity.floor)))


def raw(score: float, similarity: Similarity) -> float:
    """The cosine at which `calibrated` gives that score: a threshold in the index's own terms."""
    return similarity.floor + score * (similarity.ceiling - similarity.floor)


def measured(queries: Sequence[Vector], matches: Sequence[Vector]) -> Similarity:
    """The calibration of a model that nobody has registered, from pairs of a query and a text that answers it.

    The floor lies a little under what a query scores with the other queries' answers, the ceiling a little
    over what it scores with its own: both taken from the middle of the two distributions.
    """
    cosines = np.asarray(queries) @ np.asarray(matches).T
    own = np.diag(cosines)
    others = cosines[~np.eye(len(cosines), dtype=bool)]
    floor = float(np.median(others))
    ceiling = float(np.median(own))
    return Similarity(floor, max(ceiling, floor + 0.05))
