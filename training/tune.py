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
# A request that no tool serves should not be nearer to a tool than this.
MAX_REFUSED = 0.3


@dataclass(frozen=True)
class Plan:
    """How to tune. `unlabelled` is the number of pairs in a batch that only the teacher judges, `near_misses` that of
    requests with a near miss."""

    steps: int = 250
    size: int = 1024
    rate: float = 5e-5
    label_weight: float = 1.0
    backward_weight: float = 0.3
    teacher_weight: float = 0.0
    align_weight: float = 0.0
    keep_weight: float = 0.0
    unlabelled: int = 0
    near_misses: int = 0
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
        bridge = _build_bridge(encoder, table, guides.teacher) if plan.align_weight else None
        parameters = [*encoder.parameters(), *(bridge.parameters() if bridge else ())]
        optimizer = torch.optim.AdamW(parameters, lr=plan.rate, weight_decay=0.01)
        began = time.monotonic()
        for step in range(plan.steps):
            for group in optimizer.param_groups:
                group["lr"] = plan.rate * _schedule(step / plan.steps)
            batch = examples.draw(plan.size, plan.unlabelled if guides.teacher is not None else 0, plan.near_misses)
            loss = compute_loss(encoder, table, batch, plan, guides, bridge)
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


def compute_loss(
    encoder: Encoder,
    table: TokenTable,
    batch: Batch,
    plan: Plan,
    guides: Guides,
    bridge: torch.nn.Linear | None = None,
) -> torch.Tensor:
    """In-batch cross entropy of the labelled pairs in both directions, and the distance from the teacher of all: of
    similarities, and with a bridge of vectors."""
    left, right = batch.left, batch.right
    requests, tools = encoder(table, left), encoder(table, right)
    logits = requests @ tools.T / TEMPERATURE
    allowed = batch.build_mask().to(logits.device)
    logits = logits.masked_fill(~allowed, float("-inf"))
    labelled = len(batch.pairs) - batch.unlabelled
    target = torch.arange(labelled, device=logits.device)
    loss = plan.label_weight * functional.cross_entropy(logits[:labelled], target)
    backward = functional.cross_entropy(logits.T[:labelled], target)
    loss = loss + plan.label_weight * plan.backward_weight * backward
    if batch.refused:
        near = (encoder(table, batch.refused_requests) * encoder(table, batch.refused_tools)).sum(-1)
        loss = loss + functional.relu(near - MAX_REFUSED).mean() / TEMPERATURE
    if guides.teacher is not None:
        wanted_left, wanted_right = _look_up(guides.teacher, left), _look_up(guides.teacher, right)
        wanted = (wanted_left @ wanted_right.T / TEMPERATURE).masked_fill(~allowed, float("-inf"))
        loss = loss + plan.teacher_weight * measure_divergence(logits, wanted)
        if bridge is not None:
            own, goal = bridge(torch.cat([requests, tools])), torch.cat([wanted_left, wanted_right])
            loss = loss + plan.align_weight * (1 - functional.cosine_similarity(own, goal)).mean()
    return loss


def _build_bridge(encoder: Encoder, table: TokenTable, teacher: torch.Tensor | None) -> torch.nn.Linear:
    """A linear map from the encoder's vectors to the teacher's, which is trained along and thrown away."""
    if teacher is None:
        raise ValueError("alignment needs a teacher")
    width = encoder(table, torch.tensor([0])).shape[1]
    return torch.nn.Linear(width, teacher.shape[1], bias=False, device=encoder.device)


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
