"""What a tenant may be called: one rule for tokens, settings and whoever else names one."""

from __future__ import annotations

import unicodedata
from typing import TypeGuard

MAX_TENANT_LENGTH = 256
TENANT_RULE = (
    f"a text of 1 to {MAX_TENANT_LENGTH} characters, not all of them spaces, without line breaks or control characters"
)

# Control characters, halves of surrogate pairs, and what separates lines and paragraphs.
_UNUSABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def is_tenant_name(name: object) -> TypeGuard[str]:
    """Whether a tenant can be called that. Names are compared letter by letter: nothing is trimmed or folded."""
    return (
        isinstance(name, str)
        and len(name) <= MAX_TENANT_LENGTH
        and bool(name.strip())
        and not any(unicodedata.category(letter) in _UNUSABLE for letter in name)
    )
