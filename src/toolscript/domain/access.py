"""Principals and plans: who calls, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_PLAN = "default"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller that a verified token identifies. The tenant comes only from the token."""

    tenant: str
    plan: str = DEFAULT_PLAN
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The limits of a plan's tenants. None means no limit beyond the general ones."""

    name: str = DEFAULT_PLAN
    max_top_k: int | None = None
    fields: frozenset[str] | None = None
    """The metadata fields that responses contain and filters may use."""
    requests_per_minute: int | None = None
