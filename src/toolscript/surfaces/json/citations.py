"""Citations as people write them: authors, title, chapter, section, page, line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MAX_AUTHORS = 3
# "Chapter 6. Upkeep", "6.2.1. Setup", "4.3 log", "2 Results", "Appendix A: Proofs", "IV. Of tides", "Chapter 5".
_NUMBERED = re.compile(
    r"(?:(?P<word>(?i:chapter|appendix|part|section))\s+(?P<named>(?:[A-Z]\.)?\d+(?:\.\d+)*|[IVXL]+|[A-Z])"
    r"|(?P<number>(?:[A-Z]\.)?\d{1,3}(?:\.\d+)*|[IVXL]+(?=\.)))"
    r"(?:[.:)](?:\s+|$)|\s+[—–-]\s+|\s+(?=[A-Z])|(?<=\.\d)\s+|(?<=\.\d\d)\s+|$)(?P<title>.*)"
)


def format_citation(hit: Mapping[str, Any]) -> str:
    """Formats the source of a `search_knowledge` result on one line; unknown parts are left out."""
    source = hit["source"]
    position = source.get("position") or {}
    page, line = position.get("page"), position.get("line")
    parts = [
        _format_authors(source.get("authors") or ()),
        source["title"],
        _format_heading("chapter", position.get("chapter")) if position.get("chapter") != source["title"] else "",
        _format_heading("section", position.get("section"))
        if position.get("section") != position.get("chapter")
        else "",
        f"p. {page}" if page is not None else "",
        f"line {line}" if line is not None else "",
    ]
    return ", ".join(" ".join(part.split()) for part in parts if part)


def _format_authors(names: Sequence[str]) -> str:
    if len(names) > MAX_AUTHORS:
        return f"{names[0]} et al."
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _format_heading(kind: str, heading: str | None) -> str:
    """Formats a heading with its number first: chapter 6 “Maintenance and Updates”."""
    if not heading:
        return ""
    match = _NUMBERED.fullmatch(" ".join(heading.split()))
    if match is None:
        return f"{kind} “{heading}”"
    number, title = match["named"] or match["number"], match["title"]
    return f"{(match['word'] or kind).lower()} {number}" + (f" “{title}”" if title else "")
