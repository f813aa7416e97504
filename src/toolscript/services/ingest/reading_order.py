"""The order of the pages of a book that is a folder of files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from toolscript.domain.errors import Invalid
from toolscript.domain.files.regular import open_regular
from toolscript.domain.knowledge import FIRST_PAGES, strip_language

MAX_READ_BYTES = 4_000_000
_TAG = re.compile(r"<(?:a|link)\s[^<>]*>", re.IGNORECASE)
# A name begins where no letter is in front of it: trying each letter of a long word takes the square of its length.
_ATTRIBUTE = re.compile(r"""(?<![a-z])([a-z]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_MARKDOWN_LINK = re.compile(r"\]\(([^()\s]+)\)")


def order_pages(files: Sequence[Path]) -> list[Path]:
    """Orders pages: the first page, then the pages that rel="next" links lead to, then the pages that the first page
    links to, then the rest by name, page 2 before page 10."""
    rest = sorted(files, key=_name_key)
    first = min(rest, key=_first_page_key, default=None)
    if first is None or strip_language(first.stem) not in FIRST_PAGES:
        return rest
    existing = set(rest)
    ordered: dict[Path, None] = {}
    page: Path | None = first
    while page:
        ordered[page] = None
        page = next((link for link in _find_links(page, "next") if link in existing and link not in ordered), None)
    ordered |= dict.fromkeys(link for link in _find_links(first) if link in existing)
    return list(ordered | dict.fromkeys(rest))


def _name_key(file: Path) -> list[int | str]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", file.as_posix().lower())]


def _first_page_key(file: Path) -> tuple[int, int, bool]:
    name = strip_language(file.stem)
    place = FIRST_PAGES.index(name) if name in FIRST_PAGES else len(FIRST_PAGES)
    return len(file.parts), place, file.stem.lower() != name


def _find_links(page: Path, rel: str | None = None) -> Iterator[Path]:
    """The files that a page links to; with `rel`, only by links with that relation."""
    try:
        with open_regular(page) as file:
            text = file.read(MAX_READ_BYTES).decode("utf-8", errors="replace")
    except (OSError, Invalid):  # reported when the page is ingested
        return
    for tag in _TAG.findall(text):
        attributes = {name.lower(): double or single for name, double, single in _ATTRIBUTE.findall(tag)}
        if rel is None or rel in attributes.get("rel", "").lower().split():
            yield from _resolve_link(page, attributes.get("href", ""))
    if rel is None:
        for target in _MARKDOWN_LINK.findall(text):
            yield from _resolve_link(page, target)


def _resolve_link(page: Path, link: str) -> Iterator[Path]:
    try:
        parts = urlsplit(link)
    except ValueError:
        return
    if parts.path and not parts.scheme and not parts.netloc:
        yield Path(os.path.abspath(page.parent / unquote(parts.path)))  # noqa: PTH100
