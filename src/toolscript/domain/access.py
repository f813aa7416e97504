"""Who is asking, and what they may: the words of tenants and plans."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_PLAN = "default"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a verified token speaks for. The tenant comes from there and from nowhere else."""

    tenant: str
    plan: str = DEFAULT_PLAN
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What the tenants of a plan may. None is no limit beyond those that everyone has."""

    name: str = DEFAULT_PLAN
    max_top_k: int | None = None
    fields: frozenset[str] | None = None
    """The metadata fields that are told and may be filtered by."""
    requests_per_minute: int | None = None
