"""Simulates 8 bits in training: matrices and their inputs are rounded as the exported model rounds them, and gradients
pass as if nothing had been rounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.utils import parametrize

WEIGHT_LEVELS, INPUT_LEVELS = 63, 255


class RoundedWeight(torch.nn.Module):
    """A matrix with a scale for each of its outputs."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        scale = weight.detach().abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / WEIGHT_LEVELS
        return weight + (torch.round(weight / scale) * scale - weight).detach()


def round_input(value: torch.Tensor) -> torch.Tensor:
    """States of tokens, with one scale and one zero for each text, as texts run one at a time."""
    dims = tuple(range(1, value.dim()))
    plain = value.detach().float()
    low, high = plain.amin(dims, keepdim=True).clamp_max(0), plain.amax(dims, keepdim=True).clamp_min(0)
    scale = (high - low).clamp_min(1e-12) / INPUT_LEVELS
    rounded = torch.round(plain / scale) * scale
    return value + (rounded - plain).to(value.dtype)


@contextmanager
def simulate_int8(model: torch.nn.Module) -> Iterator[None]:
    """Rounds while the context is open; afterwards the matrices are as training left them, with all their bits."""
    layers = [each for each in model.modules() if isinstance(each, torch.nn.Linear)]
    hooks = [layer.register_forward_pre_hook(_round_inputs) for layer in layers]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", RoundedWeight())
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer in layers:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)


def _round_inputs(_layer: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (round_input(inputs[0]), *inputs[1:])
