"""Writes the changes of a setup with backups, and takes them back.

The record in the data folder names every file of a setup with hashes of its content before and after. It is written
before the first file is changed, so that a setup that was interrupted can be undone, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolscript.configuration.data_files import OWNER_ONLY, replace_file
from toolscript.configuration.formats.registry import find_format
from toolscript.configuration.jsonc import JsoncError
from toolscript.configuration.setup_plan import FileChange, compute_list_digests
from toolscript.domain.errors import Conflict, NotFound, Unavailable

FILE = "setup.json"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A file that a setup has changed, or created if it has no backup."""

    file: str
    backup: str | None
    before: str | None
    """A hash of the content; None if there was no file."""
    after: str
    lists: list[tuple[list[str], str | None]] = field(default_factory=list)
    """The places that were changed, each with a hash of the servers that were left there."""
    format: str = "json"


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """A file after an undo: `restored` to the old content, `removed` because it was new, `merged` if other parts of it
    have changed in the meantime and stay, or `unchanged`."""

    file: str
    action: str
    saved: str | None = None
    """Where the content that --force has overwritten is kept."""


def apply_changes(data: Path, changes: Sequence[FileChange]) -> list[RecordedChange]:
    """Writes the files, each with a backup beside it. Files keep their permissions, and links stay links; others can
    read no more of a server than before. Raises Conflict when a file has changed in the meantime, and Unavailable when
    one cannot be written; earlier files are then restored."""
    recorded: list[RecordedChange] = []
    earlier = read_setups(data)
    try:
        contents = [(change.file.resolve(), *_build_content(change)) for change in changes]
        mode = _common_mode([file for file, old, _ in contents if old is not None])
        for change, (file, old, new) in zip(changes, contents, strict=True):
            recorded.append(_back_up(change, file, old, new))
        _write_runs(data, [*earlier, recorded])
        for change, (file, old, new) in zip(changes, contents, strict=True):
            own = stat.S_IMODE(file.stat().st_mode) if old is not None else OWNER_ONLY
            replace_file(file, new, mode=own & mode if change.is_target else own)
    except OSError as error:
        with suppress(OSError):
            for written in recorded:
                _restore(written, _check(written), force=False)
            _write_runs(data, earlier)
        raise Unavailable(
            f"cannot write {error.filename}: {error.strerror}. Nothing was changed", details={"file": error.filename}
        ) from error
    return recorded


def undo_changes(data: Path, *, force: bool = False) -> tuple[list[RestoredFile], int]:
    """Takes the last setup back; also returns the number of earlier setups that are left. Raises NotFound when there is
    none, and Conflict, before anything is written, when servers of a file have changed since: with `force` they are
    overwritten, and a copy of the file is kept."""
    runs = read_setups(data)
    if not runs:
        raise NotFound(f"there is no setup to undo in {data}: is it another --data-dir?", details={"folder": str(data)})
    states = [(change, _check(change)) for change in reversed(runs[-1])]
    changed = [change for change, state in states if state == "changed"]
    if changed and not force:
        ways = "; ".join(f"{c.file} (backup: {c.backup or 'none, it was new'})" for c in changed)
        raise Conflict(
            f"the servers in these files have changed since the setup: {ways}. Copy what you need from a backup by "
            "hand, or use --force to restore them anyway: a copy of each file is kept",
            details={"files": [c.file for c in changed]},
        )
    try:
        restored = [_restore(change, state, force=force) for change, state in states]
    except OSError as error:
        raise Unavailable(
            f"cannot write {error.filename}: {error.strerror}. Run the command again when that is solved",
            details={"file": error.filename},
        ) from error
    _write_runs(data, runs[:-1])
    return restored, len(runs) - 1


def _build_content(change: FileChange) -> tuple[bytes | None, bytes]:
    """The old and the new content. Raises Conflict when the old content is not the content of the plan."""
    old = _read(change.file)
    text = old.decode("utf-8-sig", "replace") if old is not None else None
    if text != change.before:
        raise Conflict(f"{change.file} has changed in the meantime: run the command again")
    mark = BYTE_ORDER_MARK if old and old.startswith(BYTE_ORDER_MARK) else b""
    return old, mark + change.after.encode()


def _common_mode(files: Sequence[Path]) -> int:
    mode = 0o777
    for file in files:
        mode &= stat.S_IMODE(file.stat().st_mode) | stat.S_IWUSR
    return mode


def _back_up(change: FileChange, file: Path, old: bytes | None, new: bytes) -> RecordedChange:
    backup = _save_copy(file, old) if old is not None else None
    digests = compute_list_digests(change.after, change.lists, change.format)
    lists = [(list(path), digest) for path, digest in zip(change.lists, digests, strict=True)]
    return RecordedChange(
        str(file), str(backup) if backup else None, _hash(old), _hash(new) or "", lists, change.format
    )


def _save_copy(file: Path, content: bytes) -> Path:
    """Writes a new file beside the file, with its permissions."""
    name = f"{file.name}.backup-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    number = 1
    while True:
        copy = file.with_name(name if number == 1 else f"{name}-{number}")
        try:
            handle = os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY)
            break
        except FileExistsError:
            number += 1
    with os.fdopen(handle, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(handle)
    copy.chmod(stat.S_IMODE(file.stat().st_mode))
    return copy


def _check(change: RecordedChange) -> str:
    """Whether the file is as the setup left it (`after`), as it was (`before`), has other changes (`other`), or changes
    of the servers themselves (`changed`)."""
    content = _read(Path(change.file))
    digest = _hash(content)
    if digest == change.after:
        return "after"
    if digest == change.before:
        return "before"
    try:
        text = (content or b"").decode("utf-8-sig")
        paths = [tuple(path) for path, _ in change.lists]
        is_same = compute_list_digests(text, paths, change.format) == [left for _, left in change.lists]
        if not is_same or not change.backup or not Path(change.backup).exists():
            return "changed"
        old = Path(change.backup).read_bytes()
        merged = _merge(content or b"", old, paths, change.format).decode("utf-8-sig")
        digests = (compute_list_digests(each, paths, change.format) for each in (merged, old.decode("utf-8-sig")))
        return "other" if len({tuple(each) for each in digests}) == 1 else "changed"
    except (JsoncError, UnicodeDecodeError):
        return "changed"


def _restore(change: RecordedChange, state: str, *, force: bool) -> RestoredFile:
    file, backup = Path(change.file), Path(change.backup) if change.backup else None
    if state == "before":
        if backup:
            backup.unlink(missing_ok=True)
        return RestoredFile(change.file, "unchanged")
    saved = None
    if state == "other" and backup:
        paths = [tuple(path) for path, _ in change.lists]
        content = _merge(file.read_bytes(), backup.read_bytes(), paths, change.format)
        replace_file(file, content, mode=stat.S_IMODE(file.stat().st_mode))
        return RestoredFile(change.file, "merged")
    if state == "changed" and force and file.exists():
        saved = str(_save_copy(file, file.read_bytes()))
    if backup is None:
        file.unlink(missing_ok=True)
        return RestoredFile(change.file, "removed", saved)
    replace_file(file, backup.read_bytes(), mode=stat.S_IMODE(backup.stat().st_mode))
    backup.unlink()
    return RestoredFile(change.file, "restored", saved)


def _merge(current: bytes, old: bytes, lists: Sequence[tuple[str, ...]], format_name: str) -> bytes:
    """The current content with the servers of the old one."""
    text = find_format(format_name).restore(current.decode("utf-8-sig"), old.decode("utf-8-sig"), lists)
    return (BYTE_ORDER_MARK if current.startswith(BYTE_ORDER_MARK) else b"") + text.encode()


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _hash(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def read_setups(data: Path) -> list[list[RecordedChange]]:
    """The setups that were not undone. Raises Unavailable for a record that cannot be read."""
    try:
        content = json.loads((data / FILE).read_text(encoding="utf-8"))
        return [[RecordedChange(**change) for change in run] for run in content["runs"]]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Unavailable(
            f"cannot read {data / FILE}, which names the backups: {error}. Restore the files named *.backup-* beside "
            "the clients' files by hand",
            details={"file": str(data / FILE)},
        ) from error


def _write_runs(data: Path, runs: Sequence[Sequence[RecordedChange]]) -> None:
    if not runs:
        (data / FILE).unlink(missing_ok=True)
        return
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    content: dict[str, Any] = {"runs": [[asdict(change) for change in run] for run in runs]}
    replace_file(data / FILE, json.dumps(content, indent=1))
