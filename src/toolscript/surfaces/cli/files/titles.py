"""What a file says, and what it is called: titles of Markdown and reStructuredText, and the text of a page."""

from __future__ import annotations

import re

_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_UNDERLINE = re.compile(r"([=\-`:.'\"~^_*+#])\1{2,}\s*$")
_MARKDOWN_UNDERLINE = re.compile(r"\s{0,3}(=+|-{2,})\s*$")


def markdown_title(text: str) -> str:
    """The first heading of a Markdown text, which may be none. What is in a block of code is no heading, nor is what
    stands above the text between two lines `---`."""
    lines = text.splitlines()
    start = 0
    if lines and lines[0].strip() == "---":
        start = next((n + 1 for n, line in enumerate(lines[1:], start=1) if line.strip() == "---"), 0)
    fenced, before = False, ""
    for line in lines[start:]:
        if _FENCE.match(line):
            fenced, before = not fenced, ""
        elif not fenced:
            heading = _HEADING.match(line)
            if heading and heading[1]:
                return heading[1]
            if before and _MARKDOWN_UNDERLINE.match(line):
                return before
            before = line.strip()
    return ""


def rst_title(text: str) -> str:
    """The first heading of a reStructuredText, which may be none: a line with a line of one sign below it."""
    before = ""
    for line in text.splitlines():
        if before and _UNDERLINE.match(line) and len(line.rstrip()) >= len(before):
            return before
        before = "" if _UNDERLINE.match(line) else line.strip()
    return ""


def html_text(page: str) -> tuple[str, str]:
    """The title of a page (else its first heading) and its text: without tags, scripts and styles."""
    from toolscript.surfaces.cli.files.html_text import PageReader

    reader = PageReader()
    reader.feed(page)
    reader.close()
    return reader.title, reader.text
