"""Where something stands, told the way a person cites it: authors, title, chapter, section, page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MOST_AUTHORS = 3
# "Chapter 6. Upkeep", "6.2.1. Setup", "4.3 log", "2 Results", "Appendix A: Proofs", "IV. Of tides", "Chapter 5".
_NUMBERED = re.compile(
    r"(?:(?P<word>(?i:chapter|appendix|part|section))\s+(?P<named>(?:[A-Z]\.)?\d+(?:\.\d+)*|[IVXL]+|[A-Z])"
    r"|(?P<number>(?:[A-Z]\.)?\d{1,3}(?:\.\d+)*|[IVXL]+(?=\.)))"
    r"(?:[.:)](?:\s+|$)|\s+[—–-]\s+|\s+(?=[A-Z])|(?<=\.\d)\s+|(?<=\.\d\d)\s+|$)(?P<title>.*)"
)


def format_citation(hit: Mapping[str, Any]) -> str:
    """The source of a result (as `search_knowledge` answers it) on one line; what is not known is left out."""
    source = hit["source"]
    position = source.get("position") or {}
    page = position.get("page")
    parts = [
        _authors(source.get("authors") or ()),
        source["title"],
        _place("chapter", position.get("chapter")) if position.get("chapter") != source["title"] else "",
        _place("section", position.get("section")) if position.get("section") != position.get("chapter") else "",
        f"p. {page}" if page is not None else "",
    ]
    return ", ".join(" ".join(part.split()) for part in parts if part)


def _authors(names: Sequence[str]) -> str:
    if len(names) > MOST_AUTHORS:
        return f"{names[0]} et al."
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _place(kind: str, told: str | None) -> str:
    """A heading with its number before it, as in: chapter 6 “Maintenance and Updates”."""
    if not told:
        return ""
    found = _NUMBERED.fullmatch(" ".join(told.split()))
    if found is None:
        return f"{kind} “{told}”"
    number, title = found["named"] or found["number"], found["title"]
    return f"{(found['word'] or kind).lower()} {number}" + (f" “{title}”" if title else "")
