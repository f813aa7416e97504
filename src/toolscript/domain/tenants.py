"""The rule for tenant names, in tokens, settings and everywhere else."""

from __future__ import annotations

import unicodedata
from typing import TypeGuard

MAX_TENANT_LENGTH = 256
TENANT_RULE = (
    f"a string of 1 to {MAX_TENANT_LENGTH} characters, not only spaces, without line breaks or control characters"
)

# Unicode categories: control characters, surrogates, line and paragraph separators.
_UNUSABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def is_tenant_name(name: object) -> TypeGuard[str]:
    """Whether this is a valid tenant name. Names are compared exactly, without trimming or case folding."""
    return (
        isinstance(name, str)
        and len(name) <= MAX_TENANT_LENGTH
        and bool(name.strip())
        and not any(unicodedata.category(letter) in _UNUSABLE for letter in name)
    )
