"""The error for a setting that needs a package that is not installed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from toolscript.domain.errors import Invalid


@contextmanager
def require_extra(extra: str, setting: str) -> Iterator[None]:
    """Surrounds the import of a module that needs an extra. Raises Invalid, with the command that installs it."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("toolscript"):
            raise
        raise Invalid(
            f"{setting} needs an extra that is not installed: pip install 'toolscript[{extra}]'",
            details={"field": setting, "extra": extra},
        ) from error


IMPORTING_MCP = threading.Lock()
"""Held while a thread imports the MCP package: two threads that import different modules of it fail, both."""
