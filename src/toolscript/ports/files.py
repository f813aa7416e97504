"""Files that become books."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from toolscript.domain.knowledge import Book


class BookReader(Protocol):
    """Makes books of files."""

    async def read(self, path: Path) -> Book:
        """The book that a file holds. Raises Invalid, in one line without the path, for one that cannot or must not be
        read: too large, broken, a trap, of a kind that nobody knows. Bounded in time and memory."""
