"""Small files that several processes read and replace."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

OWNER_ONLY = 0o600


def replace_file(file: Path, content: str | bytes, *, mode: int = OWNER_ONLY) -> None:
    """Writes a file that, by default, only its owner can read. Readers see the old content or the new one, also while
    several processes write. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f"{file.name}.", suffix=".new", dir=file.parent)  # with mode 0600
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(content.encode() if isinstance(content, str) else content)
            opened.flush()
            os.fsync(handle)
        if mode != OWNER_ONLY:
            draft.chmod(mode)
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
