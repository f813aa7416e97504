"""Tunes an encoder on batches of pairs; a teacher's similarities and its own former ones can guide it."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch.nn import functional

from training.batches import Batch, Examples
from training.encoder import Encoder
from training.int8 import simulate_int8
from training.tokens import TokenTable

TEMPERATURE = 0.05
WARM_UP = 0.1
PASSAGES = 512


@dataclass(frozen=True)
class Plan:
    """How to tune. `unlabelled` is the number of pairs in a batch that only the teacher judges."""

    steps: int = 250
    size: int = 1024
    rate: float = 5e-5
    backward_weight: float = 0.3
    teacher_weight: float = 0.0
    keep_weight: float = 0.0
    unlabelled: int = 0
    int8: bool = False
    seed: int = 1


@dataclass(frozen=True)
class Guides:
    """Vectors of every text of the table, by a teacher and by the encoder before it was tuned. They do not change, so
    they are computed once."""

    teacher: torch.Tensor | None = None
    original: torch.Tensor | None = None


def tune(encoder: Encoder, table: TokenTable, examples: Examples, plan: Plan, guides: Guides | None = None) -> None:
    """Changes the encoder. The same seed gives the same weights, on the same kind of machine."""
    torch.manual_seed(plan.seed)
    guides = guides or Guides()
    encoder.train()
    with simulate_int8(encoder.model) if plan.int8 else nullcontext():
        optimizer = torch.optim.AdamW(encoder.parameters(), lr=plan.rate, weight_decay=0.01)
        began = time.monotonic()
        for step in range(plan.steps):
            for group in optimizer.param_groups:
                group["lr"] = plan.rate * _schedule(step / plan.steps)
            batch = examples.draw(plan.size, plan.unlabelled if guides.teacher is not None else 0)
            loss = compute_loss(encoder, table, batch, plan, guides)
            if guides.original is not None and plan.keep_weight:
                texts = examples.draw_passages(PASSAGES)
                loss = loss + plan.keep_weight * _compare_passages(encoder(table, texts), guides.original, texts)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
            optimizer.step()
            if step % 50 == 0 or step == plan.steps - 1:
                print(f"step {step} loss {loss.item():.3f} {time.monotonic() - began:.0f} s", flush=True)
    encoder.eval()


def compute_loss(encoder: Encoder, table: TokenTable, batch: Batch, plan: Plan, guides: Guides) -> torch.Tensor:
    """In-batch cross entropy of the labelled pairs in both directions, and the distance from the teacher of all."""
    left, right = batch.left, batch.right
    logits = encoder(table, left) @ encoder(table, right).T / TEMPERATURE
    allowed = batch.build_mask().to(logits.device)
    logits = logits.masked_fill(~allowed, float("-inf"))
    labelled = len(batch.pairs) - batch.unlabelled
    target = torch.arange(labelled, device=logits.device)
    loss = functional.cross_entropy(logits[:labelled], target)
    loss = loss + plan.backward_weight * functional.cross_entropy(logits.T[:labelled], target)
    if guides.teacher is not None and plan.teacher_weight:
        wanted = _look_up(guides.teacher, left) @ _look_up(guides.teacher, right).T / TEMPERATURE
        loss = loss + plan.teacher_weight * measure_divergence(logits, wanted.masked_fill(~allowed, float("-inf")))
    return loss


def measure_divergence(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """How far the rows are from what is wanted (Kullback-Leibler); excluded pairs count for nothing."""
    target = torch.softmax(wanted, -1)
    logs = torch.log_softmax(logits, -1).masked_fill(target == 0, 0.0)
    return (target * (torch.log(target.clamp_min(1e-12)) - logs)).sum(-1).mean()


def _compare_passages(now: torch.Tensor, original: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
    then = _look_up(original, texts)
    own = torch.eye(len(texts), dtype=torch.bool, device=now.device)
    pair = ((vectors @ vectors.T / TEMPERATURE).masked_fill(own, float("-inf")) for vectors in (now, then))
    return measure_divergence(*pair)


def _look_up(vectors: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    return vectors[numbers.to(vectors.device)]


def _schedule(done: float) -> float:
    """Up in a straight line, down along a cosine."""
    return done / WARM_UP if done < WARM_UP else 0.5 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))
