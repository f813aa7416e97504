"""Plain text and reStructuredText: there is no grammar to rely on, so headings are what people make look like headings
(underlined, numbered in order, "Chapter 3"), and code is what would be harmed by joining its lines."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from toolscript.adapters.books.page_furniture import is_contents_line, without_furniture
from toolscript.adapters.books.parts import Draft, Heading, Part, Passage, bare, passage, without_title
from toolscript.domain.knowledge import BlockKind

_UNDERLINE = re.compile(r"([=\-~^\"'`#*+:._])\1{2,}\s*\Z")
_NUMBERED = re.compile(r"\s{0,3}(\d{1,3}(?:\.\d{1,3})*)\.?\s{1,4}(\S.*)")
_CHAPTER = re.compile(
    r"\s*((?:chapter|book|appendix|part|section)\s+(?:[ivxlc]+|\d{1,3}|[a-z]|the \w+))\b[.:]?\s*(.{0,80})\Z",
    re.IGNORECASE,
)
_CHAPTER_NUMBER = re.compile(r"\s*chapter\s+(\d{1,3})[.:]?\s+(\S.*)", re.IGNORECASE)
_LONGEST_HEADING = 100
_FIRST = 2
_FURTHEST = 3
_BEGINNING = 60
_MANY = 4
_LONGEST_ENTRY = 300
_LOOK = 4000
_CHAPTER_WORD = re.compile(r"\A(?:chapter|appendix|part)\s+", re.IGNORECASE)
_ITEM = re.compile(r"\A\s*[*\u2022-]\s+")
_PAGE = re.compile(r"[\s.]+(?:\d{1,5}|[ivxlc]{1,7})\s*\Z")
_CODE_SIGNS = re.compile(r"[{}\[\]<>=;$|\\/_#*+&%@~^]|--|::|\(\)")
_COLUMNS = re.compile(r"\S {2,}\S")
_BULLET = re.compile(r"\s*(?:[-*+\u2022o]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+\S")
_NOTE = re.compile(r"\[\d{1,3}\]\s+\S")
_REFERENCES = re.compile(r"reference|bibliography|literature|notes", re.IGNORECASE)
_DIRECTIVE = re.compile(r"\s*\.\. (?:(\|[^|]+\| )?([\w:-]+)::\s*(.*)|.*)\Z")
_CODE_DIRECTIVES = frozenset(
    ["code", "code-block", "sourcecode", "parsed-literal", "literalinclude", "highlight", "doctest"]
)
_SILENT = frozenset(
    [
        "toctree",
        "image",
        "figure",
        "index",
        "contents",
        "include",
        "raw",
        "only",
        "meta",
        "currentmodule",
        "module",
        "highlight",
        "default-role",
    ]
)
_ROLE = re.compile(r":[\w:+-]+:`~?!?([^`<]*?)(?:\s*<[^`>]*>)?`")
_QUOTED = re.compile(r"``([^`]+)``|`([^`<]+?)(?:\s*<[^`>]*>)?`_{0,2}")


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    page: int | None

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip())


def read_text(text: str, *, restructured: bool = False) -> Draft:
    """A text with the headings that can be told."""
    lines = _lines(text)
    headings = _underlined(lines) or _numbered(lines) or _shouted(lines)
    headings = {**_chapters(lines, headings), **headings}
    parts = list(_parts(_without_contents(lines, headings), headings, restructured=restructured))
    draft = without_title(Draft(parts))
    return draft if draft.title else replace(draft, title=_first_words(lines))


def _lines(text: str) -> list[_Line]:
    """All lines with their pages, where there are form feeds; without the headers and footers of pages."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\f" not in text.strip():
        return [_Line(line.rstrip().expandtabs(), None) for line in text.split("\n")]
    pages = [page.strip("\n").split("\n") for page in text.split("\f")]
    kept = without_furniture([[line.rstrip().expandtabs() for line in page] for page in pages])
    return [_Line(line, number) for number, page in enumerate(kept, 1) for line in [*page, ""]]


Found = dict[int, tuple[Heading, int]]
"""Where a heading begins, and how many lines it takes."""


def _underlined(lines: Sequence[_Line]) -> Found:
    """Headings with a line of signs below (and maybe above); levels in the order in which the signs first appear."""
    found: Found = {}
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


def _numbered(lines: Sequence[_Line]) -> Found:
    """Headings with numbers: each must follow the one before, or it is an item of some list. Of those that say the same
    the last is meant: the others stand in a table of contents."""
    last_place: dict[str, int] = {}
    for number, line in enumerate(lines):
        match = _NUMBERED.match(line.text) or _CHAPTER_NUMBER.match(line.text)
        if match and _stands_alone(lines, number) and (_is_heading(match[2]) or _is_short_and_deep(match)):
            last_place[f"{match[1]} {bare(match[2])}"] = number
    found: Found = {}
    last: tuple[int, ...] = (0,)
    for number in sorted(last_place.values()):
        text = lines[number].text
        numbered = _NUMBERED.match(text)
        match = numbered or _CHAPTER_NUMBER.match(text)
        places = tuple(int(each) for each in match[1].split(".")) if match else ()
        if _follows(places, last):
            last = places
            if numbered:
                found[number] = (Heading(text.strip(), len(places), lines[number].page), 1)
    return found if len(found) > 1 else {}


def _is_short_and_deep(match: re.Match[str]) -> bool:
    """Whether a number such as 4.5.1 makes a heading of a line that might be a sentence."""
    return "." in match[1] and len(match[2]) <= _LONGEST_HEADING and not is_contents_line(match[2])


def _follows(places: tuple[int, ...], last: tuple[int, ...]) -> bool:
    """Whether a number may come next: a child, or a little further on at its own level or at one above."""
    shared = next((n for n, (one, two) in enumerate(zip(places, last, strict=False)) if one != two), None)
    if shared is None:
        return len(places) == len(last) + 1 and places[-1] <= _FIRST
    step = places[shared] - last[shared]
    return 0 < step <= (1 if shared == 0 else _FURTHEST) and all(each <= _FIRST for each in places[shared + 1 :])


def _chapters(lines: Sequence[_Line], others: Found) -> Found:
    """Lines that say "Chapter 3", with the title beside or below; above every other heading."""
    found: dict[str, tuple[int, tuple[Heading, int]]] = {}
    top = min((heading.level for heading, _ in others.values()), default=1) - 1
    for number, line in enumerate(lines):
        match = _CHAPTER.match(line.text)
        if not match or not _stands_alone(lines, number) or is_contents_line(line.text) or number in others:
            continue
        label, title, taken = match[1], match[2].strip(), 1
        if not title:
            title, taken = _title_below(lines, number)
        elif not _is_heading(title):
            continue
        level = top - 1 if label.lower().startswith(("part", "book")) else top
        text = f"{label}. {title}" if title else label
        found[bare(text)] = (number, (Heading(text, level, line.page), taken))
    return dict(found.values())


def _without_contents(lines: Sequence[_Line], headings: Found) -> list[_Line]:
    """The lines with those blank that are a table of contents: several in a row that say what headings say, or begin
    to, with at most a line between that does not."""
    texts = [heading.text for heading, _ in headings.values()]
    wanted = sorted({bare(said) for text in texts for said in (text, _CHAPTER_WORD.sub("", text))})
    own = {number + each for number, (_, taken) in headings.items() for each in range(taken)}
    kept = list(lines)
    run: list[int] = []
    matched = missed = 0
    for number, line in enumerate(lines):
        if not line.text.strip() or number in own:
            continue
        fits = len(line.text) <= _LONGEST_ENTRY and _begins_one(bare(_PAGE.sub("", _ITEM.sub("", line.text))), wanted)
        missed = 0 if fits else missed + 1
        if missed > 1:
            run, matched = [], 0
            continue
        run.append(number)
        matched += fits
        if matched >= _MANY:
            for each in run:
                kept[each] = _Line("", lines[each].page)
            run = []
    return kept


def _begins_one(said: str, wanted: Sequence[str]) -> bool:
    place = bisect_left(wanted, said)
    return len(said) > _MANY and place < len(wanted) and wanted[place].startswith(said)


def _first_words(lines: Sequence[_Line]) -> str:
    """What a text calls itself: the first line near its beginning that could be a title."""
    for number, line in enumerate(lines[:_BEGINNING]):
        if line.text.strip() and _stands_alone(lines, number) and _is_title(line.text):
            if not _COLUMNS.search(line.text.strip()):
                return line.text.strip()
        elif number + 1 < len(lines) and _UNDERLINE.match(lines[number + 1].text) and _is_heading(line.text):
            return line.text.strip()
    return ""


def _title_below(lines: Sequence[_Line], number: int) -> tuple[str, int]:
    below = number + 1
    while below < len(lines) and below <= number + 2 and not lines[below].text.strip():
        below += 1
    if below < len(lines) and _stands_alone(lines, below) and _is_title(lines[below].text):
        return lines[below].text.strip(), below - number + 1
    return "", 1


def _shouted(lines: Sequence[_Line]) -> Found:
    """Headings in capitals at the margin, as manual pages have them."""
    found = {
        number: (Heading(line.text.strip(), 1, line.page), 1)
        for number, line in enumerate(lines)
        if re.fullmatch(r"[A-Z][A-Z ,'-]{3,60}", line.text) and (number == 0 or not lines[number - 1].text.strip())
    }
    return found if len(found) > 1 else {}


def _is_heading(text: str) -> bool:
    text = text.strip()
    if not 0 < len(text) <= _LONGEST_HEADING or text[-1] in ".,;" or is_contents_line(text):
        return False
    return any(sign.isalpha() for sign in text)


def _is_title(text: str) -> bool:
    return _is_heading(text) and not text.strip()[0].islower()


def _stands_alone(lines: Sequence[_Line], number: int) -> bool:
    before = number == 0 or not lines[number - 1].text.strip()
    return before and (number + 1 >= len(lines) or not lines[number + 1].text.strip())


def _parts(lines: Sequence[_Line], headings: Found, *, restructured: bool) -> Iterator[Part]:
    starts = sorted(headings)
    yield from _passages(lines[: starts[0] if starts else len(lines)], restructured=restructured)
    for start, following in zip_longest(starts, starts[1:]):
        heading, taken = headings[start]
        stretch = lines[start + taken : following]
        is_last = following is None or headings[following][0].level < heading.level
        notes = _notes_begin(stretch) if is_last and not _REFERENCES.search(heading.text) else len(stretch)
        yield heading
        yield from _passages(stretch[:notes], restructured=restructured)
        if notes < len(stretch):
            yield Heading("", heading.level + 1)
            yield from _passages(stretch[notes:], restructured=restructured)


def _notes_begin(lines: Sequence[_Line]) -> int:
    """Where the footnotes begin that end a chapter and belong to all of it: paragraphs at the margin that begin with
    [1], [2] and so on, below other text. Where there are none, at the end."""
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


def _passages(lines: Sequence[_Line], *, restructured: bool) -> Iterator[Passage]:
    """The text between two headings, cut at blank lines; what belongs together of code is joined again."""
    margin = 0
    after_colons = silent = False
    code: list[_Line] = []
    for group in _groups(lines):
        indent = min(line.indent for line in group)
        deeper = indent > margin
        if silent and deeper:
            continue
        silent = False
        if (code or after_colons) and deeper:
            code.extend([*([_Line("", None)] if code else []), *group])
            continue
        yield from _code(code)
        code, after_colons = [], False
        directive = _DIRECTIVE.match(group[0].text) if restructured else None
        if directive:
            silent, after_colons, rest = _obey(directive, group)
            margin = indent
            code = [] if not after_colons else rest
            continue
        margin = indent
        after_colons = group[-1].text.rstrip().endswith("::")
        yield from _group(group, restructured=restructured)
    yield from _code(code)


def _groups(lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    group: list[_Line] = []
    for line in lines:
        if line.text.strip():
            group.append(line)
        elif group:
            yield group
            group = []
    if group:
        yield group


def _obey(directive: re.Match[str], group: Sequence[_Line]) -> tuple[bool, bool, list[_Line]]:
    """Of a directive: whether what follows is not text, whether it is code, and the code that stands right below."""
    name = directive[2]
    if name in _CODE_DIRECTIVES:
        return False, True, [line for line in group[1:] if not line.text.lstrip().startswith(":")]
    return name is None or name in _SILENT, False, []


def _code(lines: Sequence[_Line]) -> list[Passage]:
    return passage("\n".join(line.text for line in lines), BlockKind.CODE, lines[0].page) if lines else []


def _group(group: Sequence[_Line], *, restructured: bool) -> Iterator[Passage]:
    kept = [line for line in group if not is_contents_line(line.text)]
    if not kept:
        return
    text = "\n".join(line.text for line in kept)
    kind = _kind(text[:_LOOK].split("\n"))
    if kind is not BlockKind.PROSE:
        yield from passage(text, kind, kept[0].page)
        return
    for item in _items(kept):
        said = "\n".join(line.text for line in item)
        if restructured:
            said = _QUOTED.sub(lambda found: found[1] or found[2], _ROLE.sub(r"\1", said)).replace("::", ":")
        yield from passage(said, page=item[0].page)


def _items(group: Sequence[_Line]) -> Iterator[list[_Line]]:
    """A paragraph, or the items of a list without blank lines between them."""
    item: list[_Line] = []
    for line in group:
        if item and _BULLET.match(line.text) and _BULLET.match(group[0].text):
            yield item
            item = []
        item.append(line)
    yield item


def _kind(lines: Sequence[str]) -> BlockKind:
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
