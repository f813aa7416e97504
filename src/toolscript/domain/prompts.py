"""A question for a language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question for a language model, and the JSON schema that its answer must fit."""

    instructions: str
    text: str
    answer: Mapping[str, Any]
    max_tokens: int = 1024
    examples: tuple[tuple[str, str], ...] = ()
    """Texts and what a good answer to each would be, shown to the model before the question."""
