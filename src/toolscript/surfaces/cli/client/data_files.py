"""Small files in the data folder that several processes read and replace."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(file: Path, text: str) -> None:
    """Writes a file that only its owner can read. Readers see the old text or the new one, also while several processes
    write. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f"{file.name}.", suffix=".new", dir=file.parent)  # with mode 0600
    draft = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write(text)
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
