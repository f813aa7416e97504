"""Looks at the data folder: whose it is, who can read it, and how much space is left."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from toolscript.domain.errors import Unavailable
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.catalogue import read_record_or_raise
from toolscript.surfaces.cli.doctor.findings import DoctorFinding, Level
from toolscript.surfaces.cli.setup.report import format_path
from toolscript.surfaces.cli.terminal.text import format_size

# The engine reserves 64 MB before it writes; a model or an ingest needs some more.
MIN_FREE_BYTES, FEW_FREE_BYTES = 64 * 2**20, 512 * 2**20
OTHERS = 0o077
MAX_NAMED = 3


def inspect_folder(settings: Settings) -> Iterator[DoctorFinding]:
    """Looks at the folder without creating it."""
    folder = settings.data
    shown = format_path(str(folder))
    elsewhere = "choose another folder with --data-dir or TOOLSCRIPT_DATA_DIR"
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    if existing == folder and not folder.is_dir():
        yield DoctorFinding("folder", Level.ERROR, f"{shown} is a file", f"remove it, or {elsewhere}")
        return
    if not os.access(existing, os.W_OK | os.X_OK):
        yield DoctorFinding(
            "folder", Level.ERROR, f"{shown} cannot be written by this user", f"change its owner, or {elsewhere}"
        )
    elif existing != folder:
        yield DoctorFinding(
            "folder", Level.OK, f"{shown} does not exist yet: the first command that stores something makes it"
        )
    else:
        yield DoctorFinding("folder", Level.OK, shown)
        yield from _inspect_access(folder)
        try:
            read_record_or_raise(folder)
        except Unavailable as error:
            yield DoctorFinding("folder", Level.ERROR, error.message)
    free = shutil.disk_usage(existing).free
    action = f"free some space, or {elsewhere}"
    if free < FEW_FREE_BYTES:
        level = Level.ERROR if free < MIN_FREE_BYTES else Level.NOTE
        yield DoctorFinding("folder", level, f"only {format_size(free)} are free on its disk", action)
    else:
        yield DoctorFinding("folder", Level.OK, f"{free / 10**9:.1f} GB free")


def _inspect_access(folder: Path) -> Iterator[DoctorFinding]:
    """Looks whose the folder and its files are, and whether others can read them."""
    if sys.platform == "win32":  # modes say nothing there: the folder is in the user's profile
        return
    status = folder.stat()
    if status.st_uid != os.getuid():
        yield DoctorFinding(
            "folder",
            Level.ERROR,
            f"{folder} belongs to another user (uid {status.st_uid})",
            f"run Toolscript as that user, or `chown -R {os.getuid()} {shlex.quote(str(folder))}`",
        )
    if not status.st_mode & OTHERS:
        return  # what is in it cannot be reached
    files = [each for each in sorted(folder.iterdir()) if each.is_file() and not each.is_symlink()]
    readable = [each.name for each in files if stat.S_IMODE(each.stat().st_mode) & OTHERS]
    names = ", ".join(readable[:MAX_NAMED]) + (f" and {len(readable) - MAX_NAMED} more" if readable[MAX_NAMED:] else "")
    level = Level.ERROR if readable else Level.NOTE
    rest = f", and these files, which hold data and keys: {names}" if readable else ""
    yield DoctorFinding(
        "folder",
        level,
        f"other users of this machine can open {folder}{rest}",
        f"chmod -R go-rwx {shlex.quote(str(folder))}",
    )
