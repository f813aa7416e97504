"""Groups the lines of a PDF into headings, paragraphs, tables and code."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, zip_longest
from statistics import median

from toolscript.adapters.files.parts import Heading, Part, TextBlock, clean_prose, make_block, make_table, normalize
from toolscript.adapters.files.pdf.layout import PdfLine, continues_row, format_rows, is_same_table
from toolscript.adapters.files.titles import clean_title
from toolscript.domain.knowledge import BlockKind

# PDFium's character for the hyphen of a broken word whose lines it has joined.
_BREAK = "\ufffe"
_BROKEN = re.compile(rf"([^\W\d_]+){_BREAK}([^\W\d_]+)")
_HYPHENS = f"-\u00ad\x02{_BREAK}"
_BULLET = re.compile(r"[\u2022\u25aa\u25cf\u25e6\u2023\u2043\u2013*-]\s|\(?\d{1,3}[.)]\s|\([a-z]\)\s")
_LABEL = re.compile(r"(?:chapter|part|appendix|section)\s+(?:\d{1,3}|[ivxlc]+|[a-z])\.?\Z", re.IGNORECASE)
_NUMBER = re.compile(r"(?:(?i:chapter|part|appendix|section)\s+)?(?:\d+(?:\.\d+)*|[A-Z](?:\.\d+)*|[IVXLC]+)[.:]?\s+")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_SENTENCE_END = re.compile(r"[.?!:][\"')\]\u201d\u2019]*\Z")
_HEADING_SCALE = 1.12
_MAX_HEADING_LENGTH = 160
_MAX_LEVELS = 3
_TERM_CELLS = 2
_MAX_VALUE_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A bookmark: a heading's title and its approximate position."""

    title: str
    level: int
    page: int
    y: float | None


@dataclass(frozen=True, slots=True)
class _PlacedHeading:
    """A heading, and how many lines it takes."""

    heading: Heading
    line_count: int


def build_parts(lines: Sequence[PdfLine], marks: Sequence[Bookmark]) -> list[Part]:
    """Returns the parts of a book. Headings are the targets of bookmarks or, without any, lines of larger type."""
    if not lines:
        return []
    body = _find_body_size(lines)
    headings = _locate_bookmarks(lines, marks) if marks else _find_large_type(lines, body)
    words = Counter(word.lower() for line in lines for word in _WORD.findall(line.text))
    starts = sorted(headings)
    parts = [*_build_blocks(lines[: starts[0] if starts else None], words)]
    for start, following in zip_longest(starts, starts[1:]):
        placed = headings[start]
        parts.extend(each.heading for each in placed)
        parts.extend(_build_blocks(lines[start + max(each.line_count for each in placed) : following], words))
    return parts


def insert_pages(parts: Sequence[Part], blocks: Sequence[TextBlock]) -> list[Part]:
    """Inserts the paragraphs of further pages, each in front of the first part of a later page."""
    waiting = deque(blocks)
    merged: list[Part] = []
    for part in parts:
        while waiting and (waiting[0].page or 0) < (part.page or 0):
            merged.append(waiting.popleft())
        merged.append(part)
    return [*merged, *waiting]


def find_title(page: Sequence[PdfLine]) -> str:
    """Returns the text in the largest type of a first page that may be a title; empty if all is of one size. A stamp
    along the margin is no title."""
    upright = [line for line in page if line.is_upright]
    while upright:
        size = max(line.size for line in upright)
        lines = [line for line in upright if line.size > 0.9 * size]
        upright = [line for line in upright if line.size <= 0.9 * size]
        title = clean_title(" ".join(line.text for line in lines))
        if title and upright and len(title) <= _MAX_HEADING_LENGTH:
            return title
    return ""


def _find_body_size(lines: Sequence[PdfLine]) -> float:
    sizes: Counter[float] = Counter()
    for line in lines:
        sizes[line.size] += len(line.text)
    return max(sizes, key=lambda size: sizes[size])


def _locate_bookmarks(lines: Sequence[PdfLine], marks: Sequence[Bookmark]) -> Mapping[int, list[_PlacedHeading]]:
    """Finds the heading of each bookmark: the line on its page with the same text, or else its target position."""
    pages: dict[int, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        pages[line.page].append(number)
    found: dict[int, list[_PlacedHeading]] = defaultdict(list)
    # Where all bookmarks are below the first, that is the title.
    shift = int(len(marks) > 2 and all(mark.level > marks[0].level for mark in marks[1:]))  # noqa: PLR2004
    earliest = 0
    for mark in marks[shift:]:
        near = [number for page in (mark.page, mark.page + 1) for number in pages.get(page, []) if number >= earliest]
        start, line_count, text = _find_matching_lines(lines, near, mark) or (
            _find_target_line(lines, near, mark, earliest),
            0,
            mark.title,
        )
        heading = Heading(text, mark.level, lines[start].page if start < len(lines) else mark.page)
        found[start].append(_PlacedHeading(heading, line_count))
        earliest = start + line_count
    return found


def _find_matching_lines(lines: Sequence[PdfLine], near: Sequence[int], mark: Bookmark) -> tuple[int, int, str] | None:
    """Finds one to three lines with the bookmark's text, with or without a number: start, line count, text."""
    wanted = {normalize(mark.title), normalize(_NUMBER.sub("", mark.title, count=1))} - {""}
    best: tuple[float, int, int, str] | None = None
    for number in near:
        line_count = _count_matching_lines(lines, number, wanted)
        if line_count and (best is None or lines[number].size > best[0]):
            text = clean_prose(" ".join(line.text for line in lines[number : number + line_count]))
            best = (lines[number].size, number, line_count, text)
    if best is None:
        return None
    _, number, line_count, text = best
    if (
        number > 0
        and _LABEL.match(clean_prose(lines[number - 1].text))
        and lines[number - 1].page == lines[number].page
    ):
        return number - 1, line_count + 1, f"{clean_prose(lines[number - 1].text).rstrip('.')}. {text}"
    return number, line_count, text


def _count_matching_lines(lines: Sequence[PdfLine], number: int, wanted: set[str]) -> int:
    """Returns how many lines from here make a wanted text, with or without a number before it; 0 if none do."""
    text = ""
    for line_count, line in enumerate(lines[number : number + 3], 1):
        text = f"{text} {line.text}"
        variants = {normalize(text), normalize(_NUMBER.sub("", text.lstrip(), count=1))}
        if variants & wanted:
            return line_count
        if not any(title.startswith(each) for title in wanted for each in variants if each):
            return 0
    return 0


def _find_target_line(lines: Sequence[PdfLine], near: Sequence[int], mark: Bookmark, earliest: int) -> int:
    """Returns the first line at or below the bookmark's target."""
    for number in near:
        line = lines[number]
        if line.page > mark.page or mark.y is None or line.bottom <= mark.y:
            return number
    return next((number for number in range(earliest, len(lines)) if lines[number].page > mark.page), len(lines))


def _find_large_type(lines: Sequence[PdfLine], body: float) -> Mapping[int, list[_PlacedHeading]]:
    """Finds headings by larger type; the largest size that occurs more than once is for chapters."""
    runs: list[tuple[int, int]] = []
    for size, numbers in groupby(range(len(lines)), key=lambda number: _find_large_size(lines[number], body)):
        first, *rest = numbers
        if size:
            runs.append((first, first + len(rest) + 1))
    texts = {start: clean_prose(" ".join(line.text for line in lines[start:end])) for start, end in runs}
    good = [(start, end) for start, end in runs if 1 < len(texts[start]) <= _MAX_HEADING_LENGTH]
    sizes = sorted({lines[start].size for start, _ in good}, reverse=True)
    often = Counter(lines[start].size for start, _ in good)
    levels = {size: level for level, size in enumerate([s for s in sizes if often[s] > 1][:_MAX_LEVELS])}
    return {
        start: [_PlacedHeading(Heading(texts[start], levels[lines[start].size], lines[start].page), end - start)]
        for start, end in good
        if lines[start].size in levels
    }


def _find_large_size(line: PdfLine, body: float) -> tuple[int, float] | None:
    """Returns the page and size of a line that may belong to a heading; lines of one heading have both in common."""
    is_large = not line.is_monospace and line.size >= body * _HEADING_SCALE and any(map(str.isalpha, line.text))
    return (line.page, line.size) if is_large else None


def _build_blocks(lines: Sequence[PdfLine], words: Counter[str]) -> Iterator[Part]:
    """Groups the lines between two headings into paragraphs, tables and code."""
    if not lines:
        return
    spacing = _line_spacing(lines)
    margin = max(line.right for line in lines)
    group: list[PdfLine] = []
    number = 0
    while number < len(lines):
        rows = _count_rows(lines, number, spacing)
        if rows:
            yield from _build_block(group, words)
            yield from make_table(format_rows(lines[number : number + rows]), lines[number].page)
            group = []
        elif group and _starts_block(group, lines[number], spacing, margin):
            yield from _build_block(group, words)
            group = []
        if not rows:
            group.append(lines[number])
        number += rows or 1
    yield from _build_block(group, words)


def _count_rows(lines: Sequence[PdfLine], start: int, spacing: float) -> int:
    """Returns how many lines from here are a table of at least two rows; 0 if there is none."""
    rows = [lines[start]]
    if not rows[0].is_row or rows[0].is_monospace:
        return 0
    end = start + 1
    while (
        end < len(lines) and lines[end].page == rows[0].page and lines[end - 1].end - lines[end].bottom <= 3 * spacing
    ):
        line = lines[end]
        if line.is_row and not line.is_monospace and is_same_table(line, rows[-1]) and line.page == rows[-1].page:
            rows.append(line)
        elif not continues_row(rows[-1], line):
            break
        end += 1
    return end - start if len(rows) > 1 and not _is_term_list(rows) else 0


def _is_term_list(rows: Sequence[PdfLine]) -> bool:
    """Whether rows of two cells are terms with whole sentences as explanations."""
    texts = [row.cells[1].text for row in rows if len(row.cells) == _TERM_CELLS]
    sentences = sum(len(text) > _MAX_VALUE_LENGTH or bool(_SENTENCE_END.search(text)) for text in texts)
    return 2 * len(texts) > len(rows) and 3 * sentences > len(texts)


def _line_spacing(lines: Sequence[PdfLine]) -> float:
    """Returns the median distance between lines."""
    gaps = [one.end - two.bottom for one, two in pairwise(lines) if one.page == two.page]
    usual = [gap for gap in gaps if 0 < gap < 4 * lines[0].size]
    return median(usual) if usual else lines[0].size * 1.2


def _starts_block(group: Sequence[PdfLine], line: PdfLine, spacing: float, margin: float) -> bool:
    """Whether a line begins a new block."""
    last = group[-1]
    gap = last.end - line.bottom
    if line.is_monospace != last.is_monospace:
        return not _is_term(group, line, gap, spacing)
    if line.page != last.page or gap < 0:
        return not line.is_monospace and (
            bool(_SENTENCE_END.search(last.text.strip())) or not line.text.strip()[:1].islower()
        )
    if line.is_monospace:
        return gap > 2.6 * spacing or line.left < min(each.left for each in group) - 2 * line.size
    if gap > 1.35 * spacing or abs(line.size - last.size) > 0.12 * last.size or _BULLET.match(line.text.strip()):
        return True
    ended = bool(_SENTENCE_END.search(last.text.strip()))
    short = last.right < margin - 6 * last.size
    if ended and short:
        return True
    if line.left < last.left - last.size:
        return len(group) > 1 or ended
    return line.left > last.left + last.size and ended


def _is_term(group: Sequence[PdfLine], line: PdfLine, gap: float, spacing: float) -> bool:
    """Whether monospace lines are a term (such as an option) with its indented explanation right below."""
    if not group[-1].is_monospace or not all(each.is_monospace for each in group):
        return False
    close = 0 < gap <= 1.35 * spacing and line.page == group[-1].page
    return close and len(group) <= 3 and line.left > group[-1].left + group[-1].size  # noqa: PLR2004


def _build_block(group: Sequence[PdfLine], words: Counter[str]) -> list[Part]:
    if group and all(line.is_monospace for line in group):
        return list[Part](make_block(_format_code(group), BlockKind.CODE, group[0].page))
    text = ""
    for line in group:
        text = _join_lines(text, line.text.strip(), words)
    text = _BROKEN.sub(lambda found: _join_word(found[1], found[2], words), text).replace(_BREAK, "-")
    return list[Part](make_block(text, page=group[0].page)) if group else []


def _format_code(group: Sequence[PdfLine]) -> str:
    """Formats code with its indentation on the page as spaces."""
    left = min(line.left for line in group)
    widths = [(line.right - line.left) / len(line.text.strip()) for line in group if len(line.text.strip()) > 1]
    width = median(widths) if widths else group[0].size * 0.5
    spacing = _line_spacing(group)
    lines: list[str] = []
    for number, line in enumerate(group):
        gap = group[number - 1].end - line.bottom if number and group[number - 1].page == line.page else 0.0
        if gap > 1.6 * spacing:
            lines.append("")
        lines.append(" " * round((line.left - left) / max(width, 0.1)) + line.text.strip())
    return "\n".join(lines).replace(_BREAK, "-\n")


def _join_lines(text: str, more: str, words: Counter[str]) -> str:
    """Joins two lines; a word broken by a hyphen is joined unless the hyphen belongs to it."""
    if not text or text[-1] not in _HYPHENS or len(text) < 2 or not text[-2].isalpha() or not more[:1].islower():  # noqa: PLR2004
        return f"{text} {more}"
    head = re.search(r"[^\W\d_]+\Z", text[:-1])
    tail = re.match(r"[^\W\d_]+", more)
    if not (head and tail):
        return text[:-1] + more
    return text[: head.start()] + _join_word(head[0], tail[0], words) + more[tail.end() :]


def _join_word(head: str, tail: str, words: Counter[str]) -> str:
    """Joins a broken word. The hyphen stays if the book has the hyphenated word more often, or only both halves."""
    one, two = head.lower(), tail.lower()
    whole, hyphened = words[one + two], words[f"{one}-{two}"]
    own = hyphened > whole or (not whole and words[one] > 1 and words[two] > 1)
    return f"{head}-{tail}" if own else head + tail
