"""Prompts for language models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt for a language model, and the JSON schema of its answer."""

    instructions: str
    text: str
    answer: Mapping[str, Any]
    max_tokens: int = 1024
    examples: tuple[tuple[str, str], ...] = ()
    """Example texts with good answers, which the model gets before the text."""
