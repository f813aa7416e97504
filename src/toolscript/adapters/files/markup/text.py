"""Parses plain text and reStructuredText. Headings are recognised by their looks: underlined, numbered in order,
"Chapter 3", capitals. Code is recognised by its indentation and signs."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest

from toolscript.adapters.files.page_furniture import is_contents_line, remove_furniture
from toolscript.adapters.files.parts import Heading, ParsedBook, Part, TextBlock, extract_title, make_block, normalize
from toolscript.adapters.files.titles import clean_title
from toolscript.domain.knowledge import BlockKind

_UNDERLINE = re.compile(r"([=\-~^\"'`#*+:._])\1{2,}\s*\Z")
_NUMBERED = re.compile(r"\s{0,3}(\d{1,3}(?:\.\d{1,3})*)\.?\s{1,4}(\S.*)")
_CHAPTER = re.compile(
    r"\s*((?:chapter|book|appendix|part|section)\s+(?:[ivxlc]+|\d{1,3}|[a-z]|the \w+))\b[.:]?\s*(.{0,80})\Z",
    re.IGNORECASE,
)
_CHAPTER_NUMBER = re.compile(r"\s*chapter\s+(\d{1,3})[.:]?\s+(\S.*)", re.IGNORECASE)
_MAX_HEADING_LENGTH = 100
_MAX_FIRST_NUMBER = 2
_MAX_STEP = 3
_TITLE_LINES = 60
_MIN_ENTRIES = 4
_MAX_ENTRY_LENGTH = 300
_SAMPLED_CHARACTERS = 4000
# CURL(1)          General Commands Manual          CURL(1)
_MANUAL_PAGE = re.compile(r"(\S+)\((\d\w*)\)(?:\s{2,}.*)?\s{2,}\1\(\2\)")
_MIN_CENTRED_INDENT = 8
_CHAPTER_WORD = re.compile(r"\A(?:chapter|appendix|part)\s+", re.IGNORECASE)
_ITEM = re.compile(r"\A\s*[*\u2022-]\s+")
_PAGE = re.compile(r"[\s.]+(?:\d{1,5}|[ivxlc]{1,7})\s*\Z")
_CODE_SIGNS = re.compile(r"[{}\[\]<>=;$|\\/_#*+&%@~^]|--|::|\(\)")
_COLUMNS = re.compile(r"\S {2,}\S")
_BULLET = re.compile(r"\s*(?:[-*+\u2022o]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+\S")
_NOTE = re.compile(r"\[\d{1,3}\]\s+\S")
_REFERENCES = re.compile(r"reference|bibliography|literature|notes", re.IGNORECASE)
_DIRECTIVE = re.compile(r"\s*\.\. (?:(\|[^|]+\| )?([\w:-]+)::\s*(.*)|.*)\Z")
_CODE_DIRECTIVES = frozenset("code code-block sourcecode parsed-literal literalinclude highlight doctest".split())
_SKIPPED_DIRECTIVES = frozenset(
    ("toctree image figure index contents include raw only meta currentmodule module highlight default-role").split()
)
# A bound, because a search through a long row of colons takes the square of its length.
_ROLE = re.compile(r":[\w:+-]{1,80}:`~?!?([^`<]*?)(?:\s*<[^`>]*>)?`")
_QUOTED = re.compile(r"``([^`]+)``|`([^`<]+?)(?:\s*<[^`>]*>)?`_{0,2}")


@dataclass(frozen=True, slots=True)
class _TextLine:
    text: str
    page: int | None

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip())


def read_text(text: str, *, restructured: bool = False) -> ParsedBook:
    """Parses a text with the headings that can be recognised."""
    lines = _split_lines(text)
    headings = _find_underlined(lines) or _find_numbered(lines) or _find_capitals(lines)
    headings = {**_find_chapters(lines, headings), **headings}
    parts = list(_build_parts(_blank_contents(lines, headings), headings, restructured=restructured))
    parsed = extract_title(ParsedBook(parts))
    return parsed if parsed.title else replace(parsed, title=_find_title(lines))


def _split_lines(text: str) -> list[_TextLine]:
    """Splits a text into lines. Form feeds separate pages; headers and footers of pages are removed."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\f" not in text.strip():
        return [_TextLine(line.rstrip().expandtabs(), None) for line in text.split("\n")]
    pages = [page.strip("\n").split("\n") for page in text.split("\f")]
    kept = remove_furniture([[line.rstrip().expandtabs() for line in page] for page in pages])
    return [_TextLine(line, number) for number, page in enumerate(kept, 1) for line in [*page, ""]]


Headings = dict[int, tuple[Heading, int]]
"""By the line where it begins: a heading, and how many lines it takes."""


def _find_underlined(lines: Sequence[_TextLine]) -> Headings:
    """Finds headings with a line of signs below (and maybe above). Levels follow the first appearance of each sign."""
    found: Headings = {}
    styles: list[tuple[str, bool]] = []
    for number in range(1, len(lines)):
        mark = _UNDERLINE.match(lines[number].text)
        title = lines[number - 1].text
        if not mark or not _is_heading(title) or len(lines[number].text) < len(title.strip()) * 0.7:
            continue
        over = number > 1 and lines[number - 2].text.strip()[:3] == mark[1] * 3
        start = number - 2 if over else number - 1
        if (start > 0 and lines[start - 1].text.strip()) or _UNDERLINE.match(title):
            continue
        style = (mark[1], over)
        if style not in styles:
            styles.append(style)
        found[start] = (Heading(title.strip(), styles.index(style), lines[start].page), number - start + 1)
    return found


def _find_numbered(lines: Sequence[_TextLine]) -> Headings:
    """Finds numbered headings. A number that does not follow the one before is a list item. Of equal headings the
    last counts: the others belong to a table of contents."""
    last_place: dict[str, int] = {}
    for number, line in enumerate(lines):
        match = _NUMBERED.match(line.text) or _CHAPTER_NUMBER.match(line.text)
        if match and _stands_alone(lines, number) and (_is_heading(match[2]) or _is_short_and_deep(match)):
            last_place[f"{match[1]} {normalize(match[2])}"] = number
    found: Headings = {}
    last: tuple[int, ...] = (0,)
    for number in sorted(last_place.values()):
        text = lines[number].text
        numbered = _NUMBERED.match(text)
        match = numbered or _CHAPTER_NUMBER.match(text)
        places = tuple(int(each) for each in match[1].split(".")) if match else ()
        if _can_follow(places, last):
            last = places
            if numbered:
                found[number] = (Heading(text.strip(), len(places), lines[number].page), 1)
    return found if len(found) > 1 else {}


def _is_short_and_deep(match: re.Match[str]) -> bool:
    """Whether a number such as 4.5.1 makes a heading of a line that could be a sentence."""
    return "." in match[1] and len(match[2]) <= _MAX_HEADING_LENGTH and not is_contents_line(match[2])


def _can_follow(places: tuple[int, ...], last: tuple[int, ...]) -> bool:
    """Whether a number may come next: a child, or slightly higher at its own level or one above."""
    shared = next((n for n, (one, two) in enumerate(zip(places, last, strict=False)) if one != two), None)
    if shared is None:
        return len(places) == len(last) + 1 and places[-1] <= _MAX_FIRST_NUMBER
    step = places[shared] - last[shared]
    return 0 < step <= (1 if shared == 0 else _MAX_STEP) and all(
        each <= _MAX_FIRST_NUMBER for each in places[shared + 1 :]
    )


def _find_chapters(lines: Sequence[_TextLine], others: Headings) -> Headings:
    """Finds lines such as "Chapter 3", with the title beside or below; their level is above all other headings."""
    found: dict[str, tuple[int, tuple[Heading, int]]] = {}
    top = min((heading.level for heading, _ in others.values()), default=1) - 1
    for number, line in enumerate(lines):
        match = _CHAPTER.match(line.text)
        if not match or not _stands_alone(lines, number) or is_contents_line(line.text) or number in others:
            continue
        label, title, line_count = match[1], match[2].strip(), 1
        if not title:
            title, line_count = _find_title_below(lines, number)
        elif not _is_heading(title):
            continue
        level = top - 1 if label.lower().startswith(("part", "book")) else top
        text = f"{label}. {title}" if title else label
        found[normalize(text)] = (number, (Heading(text, level, line.page), line_count))
    return dict(found.values())


def _blank_contents(lines: Sequence[_TextLine], headings: Headings) -> list[_TextLine]:
    """Blanks tables of contents: runs of lines that repeat headings or their beginnings, with at most one other line
    between."""
    texts = [heading.text for heading, _ in headings.values()]
    wanted = sorted({normalize(variant) for text in texts for variant in (text, _CHAPTER_WORD.sub("", text))})
    own = {number + each for number, (_, line_count) in headings.items() for each in range(line_count)}
    kept = list(lines)
    run: list[int] = []
    matched = missed = 0
    for number, line in enumerate(lines):
        if not line.text.strip() or number in own:
            continue
        fits = len(line.text) <= _MAX_ENTRY_LENGTH and _is_heading_start(
            normalize(_PAGE.sub("", _ITEM.sub("", line.text))), wanted
        )
        missed = 0 if fits else missed + 1
        if missed > 1:
            run, matched = [], 0
            continue
        run.append(number)
        matched += fits
        if matched >= _MIN_ENTRIES:
            for each in run:
                kept[each] = _TextLine("", lines[each].page)
            run = []
    return kept


def _is_heading_start(entry: str, wanted: Sequence[str]) -> bool:
    place = bisect_left(wanted, entry)
    return len(entry) > _MIN_ENTRIES and place < len(wanted) and wanted[place].startswith(entry)


def _find_title(lines: Sequence[_TextLine]) -> str:
    """Returns the name of a manual page, or a line in front of the first paragraph that may be a title."""
    for group in _split_paragraphs(lines[:_TITLE_LINES]):
        first, *rest = (line.text.strip() for line in group)
        if manual := _MANUAL_PAGE.fullmatch(first):
            return _name_manual_page(lines, manual)
        has_columns = any(_COLUMNS.search(line.text.strip()) for line in group)
        if (not rest and not has_columns) or (rest and _UNDERLINE.match(rest[0]) and _is_heading(first)):
            if title := clean_title(first):
                return title if rest or _is_title(first) else ""
        elif not has_columns and not all(line.indent >= _MIN_CENTRED_INDENT for line in group):
            return ""
    return ""


def _name_manual_page(lines: Sequence[_TextLine], header: re.Match[str]) -> str:
    """Returns the name of a manual page as it is referred to: curl(1). Its header may have the name in capitals, and
    the line below the first heading has it as it is."""
    name, section = header[1], header[2]
    words = (word.strip(",") for line in lines[1:_TITLE_LINES] if line.indent for word in line.text.split())
    return f"{next((word for word in words if word.casefold() == name.casefold()), name)}({section})"


def _find_title_below(lines: Sequence[_TextLine], number: int) -> tuple[str, int]:
    below = number + 1
    while below < len(lines) and below <= number + 2 and not lines[below].text.strip():
        below += 1
    if below < len(lines) and _stands_alone(lines, below) and _is_title(lines[below].text):
        return lines[below].text.strip(), below - number + 1
    return "", 1


def _find_capitals(lines: Sequence[_TextLine]) -> Headings:
    """Finds headings in capitals at the margin, as in manual pages."""
    found = {
        number: (Heading(line.text.strip(), 1, line.page), 1)
        for number, line in enumerate(lines)
        if re.fullmatch(r"[A-Z][A-Z ,'-]{3,60}", line.text) and (number == 0 or not lines[number - 1].text.strip())
    }
    return found if len(found) > 1 else {}


def _is_heading(text: str) -> bool:
    text = text.strip()
    if not 0 < len(text) <= _MAX_HEADING_LENGTH or text[-1] in ".,;" or is_contents_line(text):
        return False
    return any(sign.isalpha() for sign in text)


def _is_title(text: str) -> bool:
    return _is_heading(text) and not text.strip()[0].islower()


def _stands_alone(lines: Sequence[_TextLine], number: int) -> bool:
    before = number == 0 or not lines[number - 1].text.strip()
    return before and (number + 1 >= len(lines) or not lines[number + 1].text.strip())


def _build_parts(lines: Sequence[_TextLine], headings: Headings, *, restructured: bool) -> Iterator[Part]:
    starts = sorted(headings)
    yield from _build_blocks(lines[: starts[0] if starts else len(lines)], restructured=restructured)
    for start, following in zip_longest(starts, starts[1:]):
        heading, line_count = headings[start]
        stretch = lines[start + line_count : following]
        is_last = following is None or headings[following][0].level < heading.level
        notes = _find_notes(stretch) if is_last and not _REFERENCES.search(heading.text) else len(stretch)
        yield heading
        yield from _build_blocks(stretch[:notes], restructured=restructured)
        if notes < len(stretch):
            yield Heading("", heading.level + 1)
            yield from _build_blocks(stretch[notes:], restructured=restructured)


def _find_notes(lines: Sequence[_TextLine]) -> int:
    """Returns where the footnotes of a chapter begin: final paragraphs at the margin that start with [1], [2] and so
    on. Returns the end if there are none."""
    begin = len(lines)
    for number in reversed(range(len(lines))):
        if not lines[number].text.strip() or (number and lines[number - 1].text.strip()):
            continue
        if _NOTE.match(lines[number].text):
            begin = number
        elif not lines[number].indent:
            break
    else:
        return len(lines)
    return begin


def _build_blocks(lines: Sequence[_TextLine], *, restructured: bool) -> Iterator[TextBlock]:
    """Cuts the text between two headings at blank lines; code is kept together."""
    margin = 0
    after_colons = silent = False
    code: list[_TextLine] = []
    for group in _split_paragraphs(lines):
        indent = min(line.indent for line in group)
        deeper = indent > margin
        if silent and deeper:
            continue
        silent = False
        if (code or after_colons) and deeper:
            code.extend([*([_TextLine("", None)] if code else []), *group])
            continue
        yield from _build_code(code)
        code, after_colons = [], False
        directive = _DIRECTIVE.match(group[0].text) if restructured else None
        if directive:
            silent, after_colons, code = _read_directive(directive, group)
            margin = indent
            continue
        margin = indent
        after_colons = group[-1].text.rstrip().endswith("::")
        yield from _build_paragraph(group, restructured=restructured)
    yield from _build_code(code)


def _split_paragraphs(lines: Sequence[_TextLine]) -> Iterator[list[_TextLine]]:
    for is_text, group in groupby(lines, key=lambda line: bool(line.text.strip())):
        if is_text:
            yield list(group)


def _read_directive(directive: re.Match[str], group: Sequence[_TextLine]) -> tuple[bool, bool, list[_TextLine]]:
    """Reads a directive: whether its content is skipped, whether it is code, and the code right below."""
    name = directive[2]
    if name in _CODE_DIRECTIVES:
        return False, True, [line for line in group[1:] if not line.text.lstrip().startswith(":")]
    return name is None or name in _SKIPPED_DIRECTIVES, False, []


def _build_code(lines: Sequence[_TextLine]) -> list[TextBlock]:
    return make_block("\n".join(line.text for line in lines), BlockKind.CODE, lines[0].page) if lines else []


def _build_paragraph(group: Sequence[_TextLine], *, restructured: bool) -> Iterator[TextBlock]:
    kept = [line for line in group if not is_contents_line(line.text)]
    if not kept:
        return
    text = "\n".join(line.text for line in kept)
    kind = _guess_kind(text[:_SAMPLED_CHARACTERS].split("\n"))
    if kind is not BlockKind.PROSE:
        yield from make_block(text, kind, kept[0].page)
        return
    for item in _split_items(kept):
        content = "\n".join(line.text for line in item)
        if restructured:
            content = _QUOTED.sub(lambda found: found[1] or found[2], _ROLE.sub(r"\1", content)).replace("::", ":")
        yield from make_block(content, page=item[0].page)


def _split_items(group: Sequence[_TextLine]) -> Iterator[list[_TextLine]]:
    """Splits a paragraph into list items if it is a list without blank lines."""
    item: list[_TextLine] = []
    for line in group:
        if item and _BULLET.match(line.text) and _BULLET.match(group[0].text):
            yield item
            item = []
        item.append(line)
    yield item


def _guess_kind(lines: Sequence[str]) -> BlockKind:
    if all(re.match(r"\s*(?:\+[-=+]{3,}|\||[=-]{3,}(?:\s+[=-]{3,})+)", line) for line in lines[:1]):
        return BlockKind.TABLE
    if len(lines) > 1 and sum(bool(_COLUMNS.search(line.strip())) for line in lines) * 2 > len(lines):
        return BlockKind.TABLE
    if _BULLET.match(lines[0]):
        return BlockKind.PROSE
    signs = sum(len(_CODE_SIGNS.findall(line)) for line in lines)
    letters = sum(len(line.strip()) for line in lines)
    indented = all(line.startswith("  ") for line in lines)
    return BlockKind.CODE if indented and signs * 14 > letters else BlockKind.PROSE
