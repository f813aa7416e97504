"""Rules of ignore files. A file may come from a stranger: they are small regular files, and matching takes a time that
grows with the square of a path at most. The expressions that pathspec makes try all ways to distribute a path over the
wildcards of a rule: `*a*a*a*a*a*b` takes minutes for a name of 120 letters, and nothing else runs meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from toolscript.domain.files.regular import read_regular

# The largest that are published have some thousands of bytes; each rule is compared with each file.
MAX_IGNORE_FILE_BYTES = 100_000
# What pathspec writes for `*` in a name, for `/**/`, and for a rule that counts at every depth.
_STAR, _FOLDERS, _ANY_DEPTH = "[^/]*", "(?:/.+)?", "^(?:.+/)?"
_NAME_PART = r"(?:\\.|\[(?:\\.|[^\]\\])+\]|[^/()\[\]\\*])+"
_STAR_BEFORE_STAR = re.compile(rf"{re.escape(_STAR)}({_NAME_PART})(?={re.escape(_STAR)})")


def read_ignore_file(path: Path) -> GitIgnoreSpec:
    """Reads the rules of a file. Raises Invalid for a large one and for what is no regular file, OSError, and
    ValueError for a rule that cannot be understood."""
    return build_spec(read_regular(path, MAX_IGNORE_FILE_BYTES).decode("utf-8", errors="replace").splitlines())


def build_spec(lines: Iterable[str]) -> GitIgnoreSpec:
    """Builds rules as in a .gitignore file. Raises ValueError for a rule that cannot be understood."""
    return GitIgnoreSpec.from_lines(lines, _QuickPattern)


class _QuickPattern(GitIgnoreSpecPattern):
    """A rule that takes the first place where the text between two wildcards occurs: if the rest of the rule fits after
    a later place, it fits after the first, so no other has to be tried."""

    @classmethod
    def pattern_to_regex(cls, pattern: Any) -> tuple[Any, bool | None]:
        regex, include = super().pattern_to_regex(pattern)
        return (_take_first_places(regex) if isinstance(regex, str) else regex), include


def _take_first_places(regex: str) -> str:
    regex = _STAR_BEFORE_STAR.sub(r"(?>[^/]*?\1)", regex)
    first, *others = regex.split(_FOLDERS)
    if not others:
        return regex
    if first.startswith(_ANY_DEPTH):
        first = f"^(?>(?:.+?/)??{first.removeprefix(_ANY_DEPTH)}(?=/))"
    between = "".join(f"(?>(?:/.+?)??{path_part}(?=/))" for path_part in others[:-1])
    return f"{first}{between}{_FOLDERS}{others[-1]}"
