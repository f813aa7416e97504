"""Looks at the files of a SQLite database before SQLite does. SQLite takes a damaged log for no log and an emptied
database for a new database: the store would be empty without a word."""

from __future__ import annotations

import logging
import struct
import time
from pathlib import Path

from toolscript.adapters.storage.outages import Outage

# https://www.sqlite.org/fileformat2.html#the_write_ahead_log
_HEADER, _FRAME = struct.Struct(">8I"), struct.Struct(">6I")
_MAGIC = 0x377F0682  # the last bit says whether checksums are big-endian
_WORD = 2**32
# Another process may write the log just now: it is read again.
ATTEMPTS, PAUSE_SECONDS = 3, 0.05

log = logging.getLogger(__name__)


def require_usable_files(file: Path) -> None:
    """Raises Outage, naming the file and what to do, for a log that cannot be read. Logs a database that exists and is
    empty, as it is after a start that was killed. Raises OSError."""
    logged = Path(f"{file}-wal")
    log_bytes = logged.stat().st_size if logged.exists() else 0
    is_empty = file.exists() and not file.stat().st_size
    if log_bytes and (is_empty or not _is_log_valid(logged)):
        raise Outage(describe_damage(file, f"{file} is empty" if is_empty else f"its log {logged} cannot be read"))
    if is_empty:
        log.warning("store_was_empty", extra={"file": str(file)})


def describe_damage(file: Path | str, reason: str) -> str:
    """The message for a damaged database."""
    return (
        f"the store {file} cannot be opened. It is damaged: {reason}. Restore it from a backup with all its "
        f"files, or go on with what can be read: copy {file}* to another place, then delete {file}-wal for what was "
        f"stored before the log, or {file}* for an empty store"
    )


def _is_log_valid(logged: Path) -> bool:
    for _ in range(ATTEMPTS - 1):
        if _has_right_sums(logged):
            return True
        time.sleep(PAUSE_SECONDS)
    return _has_right_sums(logged)


def _has_right_sums(logged: Path) -> bool:
    """Whether the header has the right checksum, and the first frame, if a second frame of the same log proves that the
    first was complete. Later frames may come from a crash; SQLite leaves them out."""
    with logged.open("rb") as opened:
        header = opened.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return True
        magic, _, page_size, _, *salts, first, second = _HEADER.unpack(header)
        order = ">" if magic & 1 else "<"
        sums = _add_up(order, header[:24], (0, 0))
        if magic & ~1 != _MAGIC or sums != (first, second):
            return False
        frame, page, next_frame = opened.read(_FRAME.size), opened.read(page_size), opened.read(_FRAME.size)
    if len(next_frame) < _FRAME.size or [*_FRAME.unpack(next_frame)[2:4]] != salts:
        return True
    _, _, *own_salts, first, second = _FRAME.unpack(frame)
    return own_salts == salts and _add_up(order, frame[:8] + page, sums) == (first, second)


def _add_up(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    for even, odd in struct.iter_unpack(f"{order}2I", data):
        first = (first + even + second) % _WORD
        second = (second + odd + first) % _WORD
    return first, second
