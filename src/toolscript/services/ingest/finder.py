"""Finds the files below the paths that a person gave. Every file that is left out is counted, with the reason."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from pathspec import GitIgnoreSpec

from toolscript.domain.errors import Invalid
from toolscript.domain.files.kinds import find_ending
from toolscript.services.ingest.ignore_files import build_spec, read_ignore_file

EMPTY_NAME = '""'
NO_SUCH_FILE = "no such file"
HIDDEN, EXCLUDED = "hidden", "excluded"
NOT_INCLUDED = "not included"
NOT_UTF8 = "its name is not valid UTF-8: rename it"
IGNORE_FILES = (".gitignore", ".toolscriptignore")
# What reading a file that is not there ends with; a path can be too long for any file.
_NO_FILE = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG})
LINK_OR_SPECIAL = "link out of the folder, or special file"


@dataclass(frozen=True, slots=True)
class _IgnoreRules:
    """The rules of an ignore file for everything below its folder."""

    folder: Path
    name: str
    spec: GitIgnoreSpec


Rules = tuple[_IgnoreRules, ...]


@dataclass
class FileFinder:
    """Finds files, and collects what was left out on the way."""

    endings: Collection[str]
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    """Patterns as in a .gitignore file of the folder that was given."""
    obeys_ignore_files: bool = True
    max_bytes: int | None = None
    unreadable: dict[str, str] = field(default_factory=dict)
    """Paths that cannot be read, and why."""
    skipped: Counter[str] = field(default_factory=Counter)
    """How many files and folders were left out, by the reason."""

    def find_files(self, names: Sequence[str]) -> dict[Path, str]:
        """The files, and for each the id of a document made from it: its path below the folder that was given. Hidden
        files and links that lead out of their folder are left out, and no folder is entered twice. A file that is named
        itself is always found. An empty name is not the current folder."""
        names_by_file: dict[Path, str] = {}
        for name in names:
            path = normalize(Path(name))
            if problem := find_problem(name):
                self.unreadable[name or EMPTY_NAME] = problem
            elif path.is_dir():
                for file in self._walk(path, set()):
                    names_by_file.setdefault(file, file.relative_to(path).as_posix())
            else:
                names_by_file.setdefault(path, path.name)
        return names_by_file

    @cached_property
    def _excluded(self) -> GitIgnoreSpec:
        return build_spec(self.exclude)

    def _walk(self, root: Path, entered: set[str]) -> Iterator[Path]:
        folders: list[tuple[Path, Rules]] = [(root, ())]
        real_root = Path(os.path.realpath(root))
        while folders:
            folder, rules = folders.pop()
            real = os.path.realpath(folder)
            if real in entered:
                continue
            entered.add(real)
            try:
                entries = sorted(folder.iterdir())
            except OSError as error:
                self.unreadable[str(folder)] = describe_error(error)
                continue
            rules += tuple(self._read_rules(folder))
            subfolders = []
            for entry in entries:
                match self._judge(entry, entry.relative_to(root), real_root, rules):
                    case "folder":
                        subfolders.append((entry, rules))
                    case "file":
                        yield entry
                    case str(reason):
                        self.skipped[reason] += 1
            folders += reversed(subfolders)

    def _read_rules(self, folder: Path) -> Iterator[_IgnoreRules]:
        for name in IGNORE_FILES if self.obeys_ignore_files else ():
            try:
                yield _IgnoreRules(folder, name, read_ignore_file(folder / name))
            except OSError as error:
                if error.errno not in _NO_FILE:
                    self.unreadable[str(folder / name)] = describe_error(error)
            except (Invalid, ValueError) as error:
                self.unreadable[str(folder / name)] = str(error)

    def _judge(self, entry: Path, name: Path, real_root: Path, rules: Rules) -> str | None:
        """`folder`, `file`, or the reason why it is left out; None for what cannot be read."""
        if entry.name.startswith("."):
            return HIDDEN
        if replace_bytes(entry.name) != entry.name:
            self.unreadable[str(entry)] = NOT_UTF8
            return None
        try:
            status = entry.stat()
        except OSError as error:
            if os.path.islink(entry):  # noqa: PTH114 - unlike Path.is_symlink, works with a path that is too long
                return LINK_OR_SPECIAL
            self.unreadable[str(entry)] = describe_error(error)
            return None
        is_folder, is_file = stat.S_ISDIR(status.st_mode), stat.S_ISREG(status.st_mode)
        if self._excluded.match_file(_describe_path(name, is_folder=is_folder)):
            return EXCLUDED
        if ignoring := _find_ignoring(entry, rules, is_folder=is_folder):
            return f"excluded by {ignoring}"
        if is_file and (reason := self._find_reason(name, status.st_size)):
            return reason
        if not Path(os.path.realpath(entry)).is_relative_to(real_root) or not (is_file or is_folder):
            return LINK_OR_SPECIAL
        return "folder" if is_folder else "file"

    def _find_reason(self, path: Path, size: int) -> str | None:
        """Why a regular file is left out."""
        if self.max_bytes is not None and size > self.max_bytes:
            return f"larger than {self.max_bytes / 10**6:g} MB"
        if self.include:
            return None if _matches(path, self.include) else NOT_INCLUDED
        if find_ending(path) in self.endings:
            return None
        ending = path.suffix.lower()
        return f"no reader for {ending} files" if ending else "no reader for files without an ending"


def _find_ignoring(entry: Path, rules: Rules, *, is_folder: bool) -> str | None:
    """The ignore file that leaves the entry out; the last rule that matches counts."""
    ignore_file = None
    for rule in rules:
        verdict = rule.spec.check_file(_describe_path(entry.relative_to(rule.folder), is_folder=is_folder)).include
        if verdict is not None:
            ignore_file = rule.name if verdict else None
    return ignore_file


def _describe_path(path: Path, *, is_folder: bool) -> str:
    return f"{path.as_posix()}/" if is_folder else path.as_posix()


def describe_error(error: OSError) -> str:
    """Why a file cannot be read, without its path."""
    return error.strerror or str(error)


def normalize(path: Path) -> Path:
    """The absolute path without any `..`. Links are not resolved."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def find_problem(name: str) -> str | None:
    """Why a path that a person gave cannot be read; an empty one is not the current folder."""
    if not name:
        return NO_SUCH_FILE
    if replace_bytes(name) != name:
        return NOT_UTF8
    try:
        normalize(Path(name)).stat()
    except (FileNotFoundError, NotADirectoryError):
        return NO_SUCH_FILE
    except (OSError, ValueError) as error:
        return describe_error(error) if isinstance(error, OSError) else "not a path"
    return None


def replace_bytes(name: str) -> str:
    """Replaces what UTF-8 cannot encode by question marks: lone surrogates stand for other bytes in Python."""
    return name.encode("utf-8", "replace").decode()


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path.as_posix(), pattern) or fnmatchcase(path.name, pattern) for pattern in patterns)
