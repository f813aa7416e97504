"""Reads the files of a configuration as text, with a reason for each that cannot be read."""

from __future__ import annotations

from pathlib import Path

MAX_FILE_BYTES = 5_000_000


def read_text(file: Path) -> str | None:
    """Reads a file; None if it does not exist. Raises ValueError with the reason why it cannot be read."""
    try:
        if file.is_fifo() or file.is_char_device():
            raise ValueError("not a regular file")
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES // 1_000_000} MB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"not valid UTF-8 (line {line})") from error
    if "\0" in text:
        raise ValueError("contains NUL characters")
    return text
