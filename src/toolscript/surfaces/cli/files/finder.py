"""Finds the files that a command is to read, below the paths that it was given."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from toolscript.domain.errors import Invalid
from toolscript.surfaces.cli.terminal.text import print_note, print_skipped


@dataclass(slots=True)
class FileFinder:
    """Finds files, and collects what had to be skipped on the way."""

    endings: Collection[str]
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    skipped: list[dict[str, str]] = field(default_factory=list)
    """As in the answer: the `path`, or a place in a file, and the `problem`."""
    ignored: set[Path] = field(default_factory=set)
    """Links that lead out of their folder, and special files, which would have been read otherwise."""

    def skip(self, place: Path | str, problem: str) -> None:
        """Records a path, or a place in a file, that cannot be read."""
        self.skipped.append({"path": str(place), "problem": problem})

    def check_paths(self, names: Sequence[str]) -> list[Path]:
        """The paths that exist; the others are skipped. An empty name is not the current folder."""
        paths = []
        for name in names:
            if problem := _find_problem(name):
                self.skip(name or '""', problem)
            else:
                paths.append(Path(name))
        return paths

    def find_files(self, paths: Sequence[Path]) -> dict[Path, str]:
        """The files, and for each the id of a document made from it: its path below the folder that was given. Hidden
        files and links that lead out of their folder are left out, and no folder is entered twice. A file that is named
        itself is always found."""
        found: dict[Path, str] = {}
        for path in map(normalize, paths):
            if path.is_dir():
                for file in self._walk(path, set()):
                    found.setdefault(file, file.relative_to(path).as_posix())
            else:
                found.setdefault(path, path.name)
        return found

    def report(self, names: Sequence[str], *, is_anything_read: bool) -> None:
        """Prints what was skipped, a line each, and how many files were ignored, on standard error. Raises Invalid when
        nothing else was read."""
        for each in self.skipped:
            print_skipped(each["path"], each["problem"])
        if self.ignored:
            end = "" if len(self.ignored) == 1 else "s"
            print_note(f"ignored {len(self.ignored)} link{end} or special file{end}")
        if not is_anything_read:
            raise Invalid(f"no readable files in {', '.join(names)}", details={"failed": self.skipped})

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
                self.skip(folder, describe_error(error))
                continue
            subfolders = []
            for entry in entries:
                name = entry.relative_to(root)
                if entry.name.startswith(".") or _matches(name, self.exclude):
                    continue
                mode = self._read_mode(entry)
                is_inside = Path(os.path.realpath(entry)).is_relative_to(real_root)
                if mode is None or (stat.S_ISREG(mode) and not self._is_wanted(name)):
                    continue
                if is_inside and stat.S_ISDIR(mode):
                    subfolders.append(entry)
                elif is_inside and stat.S_ISREG(mode):
                    yield entry
                elif not self.include or stat.S_ISDIR(mode) or _matches(name, self.include):
                    self.ignored.add(entry)
            folders += reversed(subfolders)

    def _is_wanted(self, path: Path) -> bool:
        return _matches(path, self.include) if self.include else path.suffix.lower() in self.endings

    def _read_mode(self, entry: Path) -> int | None:
        """The mode of the file or of what a link leads to; 0 for a broken link, None for one that is unreadable."""
        try:
            return entry.stat().st_mode
        except OSError as error:
            if os.path.islink(entry):  # noqa: PTH114 - unlike Path.is_symlink, works with a path that is too long
                return 0
            self.skip(entry, describe_error(error))
            return None


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
    except OSError as error:
        return describe_error(error)
    return None


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path.as_posix(), each) or fnmatchcase(path.name, each) for each in patterns)
