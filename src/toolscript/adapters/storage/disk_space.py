"""Checks free space before something is written by a library that does not report a full disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from toolscript.domain.errors import DiskFull

RESERVED_BYTES = 16 * 2**20


def require_space(folder: Path, more: int) -> None:
    """Raises DiskFull unless the disk has room for so many bytes in the folder, and for a reserve."""
    needed = more + RESERVED_BYTES
    if (free := measure_free_space(folder)) < needed:
        raise DiskFull(free, needed)


def measure_free_space(folder: Path) -> int:
    """The free bytes on the disk of a folder. The folder need not exist yet."""
    existing = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    return shutil.disk_usage(existing).free
