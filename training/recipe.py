"""The whole way from prepared data to a tuned encoder: several seeds, their mean, and a share of the original in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from training.batches import Examples
from training.encoder import Encoder, average_states
from training.measure import MAX_TOKENS, Embed, Vectors
from training.tokens import TextTable, TokenTable
from training.tune import Guides, Plan, tune


@dataclass(frozen=True)
class Recipe:
    """What to make of a base model. `original_share` of the result are the weights of the base."""

    plan: Plan = field(default_factory=Plan)
    seeds: tuple[int, ...] = (1, 2)
    original_share: float = 0.15
    validate: bool = False
    device: str = "cpu"


# What the packaged model is made with, and its teacher.
SMALL = Recipe(Plan(steps=1000, rate=1e-4, teacher_weight=8.0, unlabelled=512))
LARGE = Recipe(Plan(steps=160, size=512, rate=3e-5), seeds=(1,), original_share=0.0)


def choose_device() -> str:
    """The GPU if there is one. Makes results repeatable: the same seed gives the same weights."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    return "cuda" if torch.cuda.is_available() else "cpu"


def train(data: Mapping[str, Any], base: Path, recipe: Recipe, *, teacher: Path | None = None) -> Encoder:
    """Tunes the base. With a teacher, its similarities are imitated."""
    texts = TextTable()
    examples = [Examples(data, texts, seed, validate=recipe.validate) for seed in recipe.seeds]
    rows = texts.list()
    encoder = Encoder(base, recipe.device)
    table = TokenTable(rows, base, recipe.device)
    original = encoder.read_state()
    guides = Guides(
        teacher=_embed_rows(teacher, rows, recipe.device) if teacher else None,
        original=encoder.embed_table(table) if recipe.plan.keep_weight else None,
    )
    states = []
    for seed, own in zip(recipe.seeds, examples, strict=True):
        print(f"seed {seed}: {len(rows)} texts on {recipe.device}", flush=True)
        encoder.load_state(original)
        tune(encoder, table, own, replace(recipe.plan, seed=seed), guides)
        states.append(encoder.read_state())
    shares = [(1 - recipe.original_share) / len(states)] * len(states)
    encoder.load_state(average_states([*states, original], [*shares, recipe.original_share]))
    return encoder


def open_encoder(folder: Path, device: str) -> Embed:
    """Embeds texts with the weights in a folder, for measuring."""
    encoder = Encoder(folder, device)

    def embed(texts: Sequence[str]) -> Vectors:
        table = TokenTable([(text, MAX_TOKENS) for text in texts], folder, device)
        return encoder.embed_table(table).cpu().numpy()

    return embed


def _embed_rows(folder: Path, rows: Sequence[tuple[str, int]], device: str) -> torch.Tensor:
    return Encoder(folder, device).embed_table(TokenTable(rows, folder, device))
