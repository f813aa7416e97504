"""The known name that was probably meant by an unknown one, for error messages about settings and keys."""

from __future__ import annotations

from collections.abc import Iterable

# The keys that other MCP clients have, such as transportType, resemble ours less than misspellings do.
MIN_RESEMBLANCE = 0.84


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that resembles this one, apart from case, hyphens and underscores, or that has two neighbouring
    letters swapped; None if none does."""
    from difflib import SequenceMatcher

    known = list(known)
    for each in known:  # of a short name, swapped letters are too large a part to resemble it
        if _is_swapped(_normalize(name), _normalize(each)):
            return each
    matcher = SequenceMatcher(b=_normalize(name), autojunk=False)
    best, best_ratio = None, MIN_RESEMBLANCE
    for each in known:
        matcher.set_seq1(_normalize(each))
        if matcher.ratio() > best_ratio:
            best, best_ratio = each, matcher.ratio()
    return best


def find_meant(name: str, known: Iterable[str]) -> str | None:
    """The known name that resembles this one, or else the only one that it begins with, or that begins with it: `q` for
    `query`, `tool_id` for `tool`."""
    known = list(known)
    one = _normalize(name)
    related = [each for each in known if one.startswith(other := _normalize(each)) or other.startswith(one)]
    return find_nearest(name, known) or (related[0] if len(related) == 1 else None)


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: `; did you mean "skill"?`, or nothing."""
    nearest = find_nearest(name, known)
    return f'; did you mean "{nearest}"?' if nearest else ""


def _is_swapped(one: str, other: str) -> bool:
    return any(one == other[:i] + other[i + 1] + other[i] + other[i + 2 :] for i in range(len(other) - 1))


def _normalize(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
