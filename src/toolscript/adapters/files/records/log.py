"""Parses logs: entries stay whole with the lines that continue them (stack traces), and days are sections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolscript.adapters.files.parts import Heading, ParsedBook, Part, TextBlock, clean_verbatim
from toolscript.adapters.files.records.table import MAX_BLOCK_CHARACTERS
from toolscript.domain.knowledge import BlockKind

_DAY = re.compile(
    r"\W{0,3}(?:\w+[ :]\W{0,3})??(\d{4}[-/]\d\d[-/]\d\d|\d{1,2}[-/](?:[A-Z][a-z]{2}|\d\d)[-/]\d{4}"
    r"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d(?= \d\d:\d\d))"
)
_DAY_CHARACTERS = 60
_COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]")


def read_log(text: str) -> ParsedBook:
    lines = _COLOURS.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    return ParsedBook(list(_build_parts(list(_group_entries(lines)))))


def _group_entries(lines: Sequence[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Groups lines into entries: the number of the first line, its day, and the lines."""
    number, day, entry = 1, "", list[str]()
    has_days = any(map(_find_day, lines[:100]))
    for current, line in enumerate(lines, 1):
        found = _find_day(line)
        continues = (has_days and not found) or line[:1].isspace()
        if entry and (not continues or sum(map(len, entry)) > MAX_BLOCK_CHARACTERS):
            yield number, day, entry
            entry = []
        if not entry:
            number = current
        day = found or day
        entry.append(line)
    yield number, day, entry


def _build_parts(entries: Sequence[tuple[int, str, list[str]]]) -> Iterator[Part]:
    lines: list[str] = []
    start = size = 0
    section = ""
    for number, day, entry in entries:
        length = sum(map(len, entry))
        if lines and (day != section or size + length > MAX_BLOCK_CHARACTERS):
            yield from _build_block(lines, start)
            lines, size = [], 0
        if day != section:
            section = day
            yield Heading(day, 0)
        if not lines:
            start = number
        lines += entry
        size += length
    yield from _build_block(lines, start)


def _build_block(lines: Sequence[str], start: int) -> list[TextBlock]:
    text = clean_verbatim("\n".join(lines))
    return [TextBlock(text, BlockKind.CODE, line=start)] if text.strip() else []


def _find_day(line: str) -> str:
    found = _DAY.match(line[:_DAY_CHARACTERS])
    return found[1] if found else ""
