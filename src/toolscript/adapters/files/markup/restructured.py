"""Parses reStructuredText: plain text with underlined titles, directives and roles. Tables that are written as lists or
as CSV become rows."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from toolscript.adapters.files.dates import find_date
from toolscript.adapters.files.markup.text import read_text
from toolscript.adapters.files.parts import ParsedBook, format_row, split_authors

_FIELD = re.compile(r"^:(author|authors|date):[ \t]+(\S.*)\n", re.IGNORECASE | re.MULTILINE)
_SEARCHED_CHARACTERS = 5_000
_TABLE = re.compile(r"(\s*)\.\. (list|csv)-table::\s*(.*)\Z")
_OPTION = re.compile(r"\s+:([\w-]+):\s*(.*)\Z")


def read_restructured(text: str) -> ParsedBook:
    """Parses a text, with the authors and the date of the fields at its beginning."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    fields = {found[1].lower(): found[2] for found in _FIELD.finditer(text[:_SEARCHED_CHARACTERS])}
    start = _FIELD.sub("", text[:_SEARCHED_CHARACTERS])
    lines = _draw_tables((start + text[_SEARCHED_CHARACTERS:]).split("\n"))
    parsed = read_text("\n".join(lines), restructured=True)
    authors = split_authors(fields.get("authors", fields.get("author", "")))
    return replace(parsed, authors=authors or parsed.authors, date=find_date(fields.get("date", "")))


def _draw_tables(lines: Sequence[str]) -> Iterator[str]:
    """Replaces tables that are lists or CSV by rows with signs between the cells."""
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        found = _TABLE.match(line)
        if not found:
            yield line
            continue
        body = place
        while place < len(lines) and (not lines[place].strip() or lines[place].startswith(f"{found[1]} ")):
            place += 1
        rows = _read_rows(found[2], lines[body:place])
        yield from (found[3], "", *(f"| {format_row(row)}" for row in rows), "")


def _read_rows(style: str, lines: Sequence[str]) -> list[list[str]]:
    options = {found[1]: found[2] for line in lines if (found := _OPTION.match(line))}
    content = [line.strip() for line in lines if line.strip() and not _OPTION.match(line)]
    if style == "csv":
        header = [options["header"]] if "header" in options else []
        return [row for row in csv.reader([*header, *content], skipinitialspace=True) if row]
    rows: list[list[str]] = []
    for line in content:
        if line.startswith("* -"):
            rows.append([line[3:]])
        elif rows and (line == "-" or line.startswith("- ")):
            rows[-1].append(line[1:])
        elif rows:
            rows[-1][-1] += f" {line}"
    return rows
