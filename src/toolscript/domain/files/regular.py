"""Opens regular files only. Paths come from people and folders of strangers: opening a named pipe waits for its writer,
and a device may never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

from toolscript.domain.errors import Invalid


def open_regular(path: Path) -> IO[bytes]:
    """Opens a file at once. Raises Invalid for what is no regular file, and OSError."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise Invalid("not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Reads a file. Raises Invalid for a larger one, also if it grows meanwhile, for what is no regular file, and
    OSError."""
    with open_regular(path) as file:
        content = file.read(max_bytes + 1) or b""  # None: one of /proc that has nothing yet
    if len(content) > max_bytes:
        raise Invalid(f"larger than {max_bytes / 10**6:g} MB")
    return content
