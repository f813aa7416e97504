"""Copies of data folders that were filled once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

BLOCK_BYTES = 2**16
EMPTY = bytes(BLOCK_BYTES)


def copy_data(source: Path, target: Path) -> None:
    """Copies a data folder that no process has open.

    An index is 2 MB in files of 350 MB: with the empty blocks left out, the copy takes a tenth of the time of a sync.
    """
    shutil.copytree(source, target, copy_function=_copy_without_empty_blocks)


def _copy_without_empty_blocks(source: str, target: str) -> None:
    if not hasattr(os, "SEEK_DATA"):
        shutil.copy(source, target)
        return
    size = os.stat(source).st_size  # noqa: PTH116
    with open(source, "rb", buffering=0) as original, open(target, "wb", buffering=0) as copy:  # noqa: PTH123
        position = 0
        while position < size:
            try:
                position = os.lseek(original.fileno(), position, os.SEEK_DATA)
            except OSError:  # there is no more data
                break
            block = os.pread(original.fileno(), BLOCK_BYTES, position)
            if block != EMPTY[: len(block)]:
                os.pwrite(copy.fileno(), block, position)
            position += len(block)
        copy.truncate(size)
    shutil.copymode(source, target)
