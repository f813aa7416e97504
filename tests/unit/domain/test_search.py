"""The range of a model's cosines, and the part of it that counts for skills."""

from __future__ import annotations

import pytest

from toolscript.domain.search import SimilarityRange


@pytest.mark.req("H-07")
def test_the_ceiling_for_skills_is_the_one_for_texts_unless_the_model_has_another() -> None:
    assert SimilarityRange(0.1, 0.8).narrow_to_skills() == SimilarityRange(0.1, 0.8)
    assert SimilarityRange(0.1, 0.8, skills=0.5).narrow_to_skills() == SimilarityRange(0.1, 0.5)
