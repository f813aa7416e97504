"""In which order the pages of a book are read, where it is a folder of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from toolscript.domain.knowledge import FIRST_PAGES, strip_language

LARGEST_READ = 4_000_000
_TAG = re.compile(r"<(?:a|link)\s[^<>]*>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([a-z]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_MARKDOWN_LINK = re.compile(r"\]\(([^()\s]+)\)")


def reading_order(files: Sequence[Path]) -> list[Path]:
    """The first page; then what each page calls the next one; then what the first page links to; then the rest by name,
    page 2 before page 10."""
    rest = sorted(files, key=_by_name)
    first = min(rest, key=_how_first, default=None)
    if first is None or strip_language(first.stem) not in FIRST_PAGES:
        return rest
    there = set(rest)
    ordered: dict[Path, None] = {}
    page: Path | None = first
    while page:
        ordered[page] = None
        page = next((each for each in _links(page, "next") if each in there and each not in ordered), None)
    ordered |= dict.fromkeys(each for each in _links(first) if each in there)
    return list(ordered | dict.fromkeys(rest))


def _by_name(file: Path) -> list[int | str]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", file.as_posix().lower())]


def _how_first(file: Path) -> tuple[int, int, bool]:
    name = strip_language(file.stem)
    place = FIRST_PAGES.index(name) if name in FIRST_PAGES else len(FIRST_PAGES)
    return len(file.parts), place, file.stem.lower() != name


def _links(page: Path, rel: str | None = None) -> Iterator[Path]:
    """The files beside or below a page that it links to, only those with that relation if one is given."""
    try:
        with page.open(encoding="utf-8", errors="replace") as file:
            text = file.read(LARGEST_READ)
    except OSError:  # whoever reads the page says what is wrong with it
        return
    for tag in _TAG.findall(text):
        told = {name.lower(): double or single for name, double, single in _ATTRIBUTE.findall(tag)}
        if rel is None or rel in told.get("rel", "").lower().split():
            yield from _target(page, told.get("href", ""))
    if rel is None:
        for target in _MARKDOWN_LINK.findall(text):
            yield from _target(page, target)


def _target(page: Path, link: str) -> Iterator[Path]:
    try:
        parts = urlsplit(link)
    except ValueError:
        return
    if parts.path and not parts.scheme and not parts.netloc:
        yield Path(os.path.abspath(page.parent / unquote(parts.path)))  # noqa: PTH100
