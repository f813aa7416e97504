"""Files and folders that only their owner can read, whatever the umask and the folder above allow."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def make_private_folder(folder: Path, *, follow_link: bool = False) -> None:
    """Creates the folder and its missing parents; closes an existing one to other users, with `follow_link` also where
    the path is a link: for paths that the user named. Raises OSError."""
    for each in reversed([folder, *folder.parents]):
        if not each.exists():
            each.mkdir(FOLDER_MODE, exist_ok=True)
    restrict(folder.resolve() if follow_link else folder)


def restrict(path: Path) -> bool:
    """Takes the access of other users away; returns whether they had any. What belongs to somebody else stays as it is,
    and so do a folder for everybody (/tmp) and what a link leads to: others may have created the link."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) or not status.st_mode & 0o077 or status.st_mode & stat.S_ISVTX:
            return False
        path.chmod(FOLDER_MODE if stat.S_ISDIR(status.st_mode) else FILE_MODE)
    except OSError:
        return False
    return True


def restrict_tree(folder: Path) -> None:
    """Takes the access of other users to the folder and to everything in it away. A folder that they have no access to
    is not looked into."""
    if restrict(folder):
        for path in folder.rglob("*"):
            restrict(path)


def open_private(path: str | Path, flags: int) -> int:
    """Opens a file, and creates it for its owner alone. Serves as the `opener` of `open`."""
    return os.open(path, flags, FILE_MODE)


@contextmanager
def private_umask() -> Iterator[None]:
    """Lets libraries create files for their owner alone. The umask belongs to the whole process, and programs inherit
    it: only for calls without `await`, in the thread that starts programs."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def create_private(path: Path) -> None:
    """Creates a file if there is none, before a library does; closes an existing one to others. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
    restrict(path)
