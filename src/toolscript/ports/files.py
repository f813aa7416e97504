"""Readers of files."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from toolscript.domain.knowledge import Book


class BookReader(Protocol):
    """Reads files as books.

    >>> import asyncio, tempfile
    >>> from toolscript.adapters.files.reader import FileBooks
    >>> file = Path(tempfile.mkdtemp()) / "guide.md"
    >>> _ = file.write_text("# Installing\\n\\nRun the installer.")
    >>> book = asyncio.run(FileBooks().read(file))
    >>> book.blocks[-1].text
    'Run the installer.'
    """

    async def read(self, path: Path) -> Book:
        """The book in a file, within limits of time and memory. Raises Invalid, in one line without the path, for a
        file that is too large, damaged, malicious or of an unknown type."""
