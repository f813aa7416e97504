"""From the lines of a PDF to its parts: which lines are headings, which are code, which make a paragraph together."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from toolscript.adapters.books.parts import Heading, Part, bare, passage, prose
from toolscript.domain.knowledge import BlockKind

# What stands for the hyphen of a word that was broken, where its two lines were joined already.
_BREAK = "\ufffe"
_BROKEN = re.compile(rf"([^\W\d_]+){_BREAK}([^\W\d_]+)")
_HYPHENS = f"-\u00ad\x02{_BREAK}"
_BULLET = re.compile(r"[\u2022\u25aa\u25cf\u25e6\u2023\u2043\u2013*-]\s|\(?\d{1,3}[.)]\s|\([a-z]\)\s")
_LABEL = re.compile(r"(?:chapter|part|appendix|section)\s+(?:\d{1,3}|[ivxlc]+|[a-z])\.?\Z", re.IGNORECASE)
_NUMBER = re.compile(r"(?:(?i:chapter|part|appendix|section)\s+)?(?:\d+(?:\.\d+)*|[A-Z](?:\.\d+)*|[IVXLC]+)[.:]?\s+")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_ENDS = re.compile(r"[.?!:][\"')\]\u201d\u2019]*\Z")
_LARGER = 1.12
_LONGEST_HEADING = 160
_MOST_LEVELS = 3


@dataclass(frozen=True, slots=True)
class Line:
    """A line of type: what it says, where it stands, and how it looks. `end` is the height of its last sign: what
    follows a word that was broken comes on the same line."""

    text: str
    page: int
    left: float
    right: float
    bottom: float
    end: float
    size: float
    fixed: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """A bookmark: a heading by its title, and about where it should be."""

    title: str
    level: int
    page: int
    y: float | None


@dataclass(frozen=True, slots=True)
class _Found:
    """A heading, the line before which it stands, and how many lines it takes itself."""

    heading: Heading
    taken: int


def flow(lines: Sequence[Line], marks: Sequence[Mark]) -> list[Part]:
    """The parts of a book. Headings are where the bookmarks lead; without any, they are lines of larger type."""
    if not lines:
        return []
    body = _body_size(lines)
    headings = _marked(lines, marks) if marks else _large(lines, body)
    words = Counter(word.lower() for line in lines for word in _WORD.findall(line.text))
    parts: list[Part] = []
    stretch: list[Line] = []
    number = 0
    while number <= len(lines):
        found = headings.get(number, [])
        if found or number == len(lines):
            parts.extend(_passages(stretch, words))
            stretch = []
            parts.extend(each.heading for each in found)
        taken = max((each.taken for each in found), default=0)
        if not taken and number < len(lines):
            stretch.append(lines[number])
        number += taken or 1
    return parts


def largest(page: Sequence[Line]) -> str:
    """What stands in the largest type of a page, which on the first is the title; nothing where all is of one size."""
    size = max(line.size for line in page)
    lines = [line for line in page if line.size > 0.9 * size]
    title = prose(" ".join(line.text for line in lines))
    return title if len(lines) < len(page) and len(title) <= _LONGEST_HEADING else ""


def _body_size(lines: Sequence[Line]) -> float:
    sizes: Counter[float] = Counter()
    for line in lines:
        sizes[line.size] += len(line.text)
    return max(sizes, key=lambda size: sizes[size])


def _marked(lines: Sequence[Line], marks: Sequence[Mark]) -> Mapping[int, list[_Found]]:
    """Where each bookmark's heading is: the line on its page that says the same, or else the place it leads to."""
    pages: dict[int, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        pages[line.page].append(number)
    found: dict[int, list[_Found]] = defaultdict(list)
    shift = _root_is_title(marks)
    earliest = 0
    for mark in marks[shift:]:
        near = [number for page in (mark.page, mark.page + 1) for number in pages.get(page, []) if number >= earliest]
        start, taken, text = _same(lines, near, mark) or (_place(lines, near, mark, earliest), 0, mark.title)
        heading = Heading(text, mark.level, lines[start].page if start < len(lines) else mark.page)
        found[start].append(_Found(heading, taken))
        earliest = start + taken
    return found


def _root_is_title(marks: Sequence[Mark]) -> int:
    """One when everything hangs below the first bookmark, which then is the title."""
    return int(len(marks) > 2 and all(mark.level > marks[0].level for mark in marks[1:]))  # noqa: PLR2004


def _same(lines: Sequence[Line], near: Sequence[int], mark: Mark) -> tuple[int, int, str] | None:
    """The line, or the two or three together, that say what a bookmark says, with the number that it may not have."""
    wanted = {bare(mark.title), bare(_NUMBER.sub("", mark.title, count=1))} - {""}
    best: tuple[float, int, int, str] | None = None
    for number in near:
        taken = _lines_that_say(lines, number, wanted)
        if taken and (best is None or lines[number].size > best[0]):
            text = prose(" ".join(line.text for line in lines[number : number + taken]))
            best = (lines[number].size, number, taken, text)
    if best is None:
        return None
    _, number, taken, text = best
    if number > 0 and _LABEL.match(prose(lines[number - 1].text)) and lines[number - 1].page == lines[number].page:
        return number - 1, taken + 1, f"{prose(lines[number - 1].text).rstrip('.')}. {text}"
    return number, taken, text


def _lines_that_say(lines: Sequence[Line], number: int, wanted: set[str]) -> int:
    """How many lines from here on say one of these together, with or without a number before it; none: 0."""
    text = ""
    for taken, line in enumerate(lines[number : number + 3], 1):
        text = f"{text} {line.text}"
        said = {bare(text), bare(_NUMBER.sub("", text.lstrip(), count=1))}
        if said & wanted:
            return taken
        if not any(title.startswith(each) for title in wanted for each in said if each):
            return 0
    return 0


def _place(lines: Sequence[Line], near: Sequence[int], mark: Mark, earliest: int) -> int:
    """The first line at or below the height that a bookmark leads to."""
    for number in near:
        line = lines[number]
        if line.page > mark.page or mark.y is None or line.bottom <= mark.y:
            return number
    return next((number for number in range(earliest, len(lines)) if lines[number].page > mark.page), len(lines))


def _large(lines: Sequence[Line], body: float) -> Mapping[int, list[_Found]]:
    """Lines of larger type, by size: the largest that comes more than once is for chapters."""
    runs: list[tuple[int, int]] = []
    number = 0
    while number < len(lines):
        end = number
        while end < len(lines) and _continues_heading(lines, number, end, body):
            end += 1
        if end > number:
            runs.append((number, end))
        number = max(end, number + 1)
    texts = {start: prose(" ".join(line.text for line in lines[start:end])) for start, end in runs}
    good = [(start, end) for start, end in runs if 1 < len(texts[start]) <= _LONGEST_HEADING]
    sizes = sorted({lines[start].size for start, _ in good}, reverse=True)
    often = Counter(lines[start].size for start, _ in good)
    levels = {size: level for level, size in enumerate([s for s in sizes if often[s] > 1][:_MOST_LEVELS])}
    return {
        start: [_Found(Heading(texts[start], levels[lines[start].size], lines[start].page), end - start)]
        for start, end in good
        if lines[start].size in levels
    }


def _continues_heading(lines: Sequence[Line], start: int, number: int, body: float) -> bool:
    line = lines[number]
    if line.fixed or line.size < body * _LARGER or not any(sign.isalpha() for sign in line.text):
        return False
    return number == start or (line.page == lines[start].page and line.size == lines[start].size)


def _passages(lines: Sequence[Line], words: Counter[str]) -> Iterator[Part]:
    """Paragraphs and code between two headings."""
    if not lines:
        return
    spacing = _spacing(lines)
    margin = max(line.right for line in lines)
    group: list[Line] = []
    for line in lines:
        if group and _breaks(group, line, spacing, margin):
            yield from _passage(group, words)
            group = []
        group.append(line)
    yield from _passage(group, words)


def _spacing(lines: Sequence[Line]) -> float:
    """The usual distance from one line to the next."""
    gaps = [one.end - two.bottom for one, two in pairwise(lines) if one.page == two.page]
    usual = [gap for gap in gaps if 0 < gap < 4 * lines[0].size]
    return median(usual) if usual else lines[0].size * 1.2


def _breaks(group: Sequence[Line], line: Line, spacing: float, margin: float) -> bool:
    """Whether a line begins a passage of its own."""
    last = group[-1]
    gap = last.end - line.bottom
    if line.fixed != last.fixed:
        return not _is_term(group, line, gap, spacing)
    if line.page != last.page or gap < 0:
        return not line.fixed and (bool(_ENDS.search(last.text.strip())) or not line.text.strip()[:1].islower())
    if line.fixed:
        return gap > 2.6 * spacing or line.left < min(each.left for each in group) - 2 * line.size
    if gap > 1.35 * spacing or abs(line.size - last.size) > 0.12 * last.size or _BULLET.match(line.text.strip()):
        return True
    ended = bool(_ENDS.search(last.text.strip()))
    short = last.right < margin - 6 * last.size
    if ended and short:
        return True
    if line.left < last.left - last.size:
        return len(group) > 1 or ended
    return line.left > last.left + last.size and ended


def _is_term(group: Sequence[Line], line: Line, gap: float, spacing: float) -> bool:
    """A line or two in the typeface of code with their explanation set in right below: an option, and what it does."""
    if not group[-1].fixed or not all(each.fixed for each in group):
        return False
    close = 0 < gap <= 1.35 * spacing and line.page == group[-1].page
    return close and len(group) <= 3 and line.left > group[-1].left + group[-1].size  # noqa: PLR2004


def _passage(group: Sequence[Line], words: Counter[str]) -> list[Part]:
    if group and all(line.fixed for line in group):
        return list[Part](passage(_listing(group), BlockKind.CODE, group[0].page))
    text = ""
    for line in group:
        text = _joined(text, line.text.strip(), words)
    text = _BROKEN.sub(lambda found: _whole(found[1], found[2], words), text).replace(_BREAK, "-")
    return list[Part](passage(text, page=group[0].page)) if group else []


def _listing(group: Sequence[Line]) -> str:
    """Code with the margins that it has on the page, in spaces."""
    left = min(line.left for line in group)
    widths = [(line.right - line.left) / len(line.text.strip()) for line in group if len(line.text.strip()) > 1]
    width = median(widths) if widths else group[0].size * 0.5
    spacing = _spacing(group)
    lines: list[str] = []
    for number, line in enumerate(group):
        gap = group[number - 1].end - line.bottom if number and group[number - 1].page == line.page else 0.0
        if gap > 1.6 * spacing:
            lines.append("")
        lines.append(" " * round((line.left - left) / max(width, 0.1)) + line.text.strip())
    return "\n".join(lines).replace(_BREAK, "-\n")


def _joined(text: str, more: str, words: Counter[str]) -> str:
    """Two lines as one: a word that was broken is made whole, unless the hyphen is its own."""
    if not text or text[-1] not in _HYPHENS or len(text) < 2 or not text[-2].isalpha() or not more[:1].islower():  # noqa: PLR2004
        return f"{text} {more}"
    head = re.search(r"[^\W\d_]+\Z", text[:-1])
    tail = re.match(r"[^\W\d_]+", more)
    if not (head and tail):
        return text[:-1] + more
    return text[: head.start()] + _whole(head[0], tail[0], words) + more[tail.end() :]


def _whole(head: str, tail: str, words: Counter[str]) -> str:
    """A broken word. The hyphen is its own where the book has it so elsewhere, or has both halves but not the whole."""
    one, two = head.lower(), tail.lower()
    whole, hyphened = words[one + two], words[f"{one}-{two}"]
    own = hyphened > whole or (not whole and words[one] > 1 and words[two] > 1)
    return f"{head}-{tail}" if own else head + tail
