"""Principals, tenants and plans: who calls, and what they may do."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TypeGuard

DEFAULT_PLAN = "default"
MAX_TENANT_LENGTH = 256
TENANT_RULE = (
    f"a string of 1 to {MAX_TENANT_LENGTH} characters, not only spaces, without line breaks or control characters"
)

# Unicode categories: control characters, surrogates, line and paragraph separators.
_UNUSABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


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


def is_tenant_name(name: object) -> TypeGuard[str]:
    """Whether this is a valid tenant name. Names are compared exactly, without trimming or case folding."""
    return (
        isinstance(name, str)
        and len(name) <= MAX_TENANT_LENGTH
        and bool(name.strip())
        and not any(unicodedata.category(letter) in _UNUSABLE for letter in name)
    )
