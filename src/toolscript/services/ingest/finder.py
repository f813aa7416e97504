"""Finds the files below the paths that a person gave. Every file that is left out is counted, with the reason."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

EMPTY_NAME = '""'
HIDDEN, EXCLUDED = "hidden", "excluded"
NOT_INCLUDED = "not included"
LINK_OR_SPECIAL = "link out of the folder, or special file"


@dataclass(slots=True)
class FileFinder:
    """Finds files, and collects what was left out on the way."""

    endings: Collection[str]
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    unreadable: dict[str, str] = field(default_factory=dict)
    """Paths that cannot be read, and why."""
    skipped: Counter[str] = field(default_factory=Counter)
    """How many files and folders were left out, by the reason."""

    def find_files(self, names: Sequence[str]) -> dict[Path, str]:
        """The files, and for each the id of a document made from it: its path below the folder that was given. Hidden
        files and links that lead out of their folder are left out, and no folder is entered twice. A file that is named
        itself is always found. An empty name is not the current folder."""
        found: dict[Path, str] = {}
        for name in names:
            path = normalize(Path(name))
            if problem := _find_problem(name):
                self.unreadable[name or EMPTY_NAME] = problem
            elif path.is_dir():
                for file in self._walk(path, set()):
                    found.setdefault(file, file.relative_to(path).as_posix())
            else:
                found.setdefault(path, path.name)
        return found

    def _walk(self, root: Path, entered: set[str]) -> Iterator[Path]:
        folders, real_root = [root], Path(os.path.realpath(root))
        while folders:
            folder = folders.pop()
            real = os.path.realpath(folder)
            if real in entered:
                continue
            entered.add(real)
            try:
                entries = sorted(folder.iterdir())
            except OSError as error:
                self.unreadable[str(folder)] = describe_error(error)
                continue
            subfolders = []
            for entry in entries:
                match self._judge(entry, entry.relative_to(root), real_root):
                    case "folder":
                        subfolders.append(entry)
                    case "file":
                        yield entry
                    case str(reason):
                        self.skipped[reason] += 1
            folders += reversed(subfolders)

    def _judge(self, entry: Path, name: Path, real_root: Path) -> str | None:
        """`folder`, `file`, or the reason why it is left out; None for what cannot be read."""
        if entry.name.startswith("."):
            return HIDDEN
        if _matches(name, self.exclude):
            return EXCLUDED
        try:
            mode = entry.stat().st_mode
        except OSError as error:
            if os.path.islink(entry):  # noqa: PTH114 - unlike Path.is_symlink, works with a path that is too long
                return LINK_OR_SPECIAL
            self.unreadable[str(entry)] = describe_error(error)
            return None
        if stat.S_ISREG(mode) and (reason := self._find_reason(name)):
            return reason
        if not Path(os.path.realpath(entry)).is_relative_to(real_root) or not stat.S_ISREG(mode) | stat.S_ISDIR(mode):
            return LINK_OR_SPECIAL
        return "folder" if stat.S_ISDIR(mode) else "file"

    def _find_reason(self, path: Path) -> str | None:
        """Why a regular file is left out."""
        if self.include:
            return None if _matches(path, self.include) else NOT_INCLUDED
        ending = path.suffix.lower()
        if ending in self.endings:
            return None
        return f"no reader for {ending} files" if ending else "no reader for files without an ending"


def describe_error(error: OSError) -> str:
    """Why a file cannot be read, without its path."""
    return error.strerror or str(error)


def normalize(path: Path) -> Path:
    """The absolute path without any `..`. Links are not resolved."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _find_problem(name: str) -> str | None:
    if not name:
        return "no such file"
    try:
        normalize(Path(name)).stat()
    except (FileNotFoundError, NotADirectoryError):
        return "no such file"
    except (OSError, ValueError) as error:
        return describe_error(error) if isinstance(error, OSError) else "not a path"
    return None


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path.as_posix(), each) or fnmatchcase(path.name, each) for each in patterns)
