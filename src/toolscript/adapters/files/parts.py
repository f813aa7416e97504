"""What every format's parser returns (headings and text blocks in reading order), and how they become chapters and
sections."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from toolscript.adapters.files.titles import clean_authors, clean_title
from toolscript.domain.knowledge import Block, BlockKind, Book, Position

NO_TEXT = "The file has no text."
# In a page this long, a single top heading is the title of a book.
_LONE_TITLE_CHARACTERS = 400_000
# A shorter page is not a book, even if its headings are numbered.
_MIN_BOOK_CHARACTERS = 30_000
_MIN_CHAPTERS = 3
_NUMBERED_CHAPTER = re.compile(
    r"(?:chapter|part|appendix|kapitel|chapitre)\s+[\divxlc]+\b|\d{1,3}\.?\s+\S|[IVXLC]{1,6}\.\s", re.IGNORECASE
)
_CHAPTER_LABEL = re.compile(r"(?:chapter|appendix|part)\s+(?:\d{1,3}|[ivxlc]+|[a-z])\b", re.IGNORECASE)
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")
_INVISIBLE = dict.fromkeys([*range(9), *range(0x0E, 0x20), *range(0x7F, 0xA0), 0xAD, 0x200B, 0x2060, 0xFEFF, 0xFFFE])
_INVISIBLE |= {0x0B: "\n", 0x0C: "\n", 0x85: "\n", 0x2028: "\n", 0x2029: "\n", 0x00A0: " ", 0x202F: " "}
_INVISIBLE |= dict.fromkeys(range(55296, 57344), "�")
_LIGATURES = re.compile("[\ufb00-\ufb06]")


@dataclass(frozen=True, slots=True)
class BookLimits:
    """Limits for reading one file."""

    file_bytes: int = 200 * 10**6
    memory_bytes: int = 2 * 2**30
    seconds: float = 120.0
    characters: int = 50 * 10**6
    blocks: int = 10**6


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; a smaller level is higher. One without text ends a section and begins none."""

    text: str
    level: int
    page: int | None = None


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A paragraph, a list item, a block of code or a table."""

    text: str
    kind: BlockKind = BlockKind.PROSE
    page: int | None = None
    line: int | None = None


Part = Heading | TextBlock


@dataclass(frozen=True, slots=True)
class ParsedBook:
    """A parsed file, before its headings become chapters and sections."""

    parts: Sequence[Part]
    title: str = ""
    authors: tuple[str, ...] = ()
    date: str = ""
    warnings: tuple[str, ...] = ()


def clean_prose(text: str) -> str:
    """Puts a paragraph on one line and removes invisible characters."""
    return " ".join(_remove_invisible(text).split())


def clean_verbatim(text: str) -> str:
    """Keeps the lines of code or a table; removes their common indent and the blank lines around them."""
    lines = [line.rstrip() for line in _remove_invisible(text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")]
    return textwrap.dedent("\n".join(lines).strip("\n"))


def make_block(text: str, kind: BlockKind = BlockKind.PROSE, page: int | None = None) -> list[TextBlock]:
    """Returns one block of cleaned text, or none if nothing is left."""
    cleaned = clean_prose(text) if kind is BlockKind.PROSE else clean_verbatim(text)
    return [TextBlock(cleaned, kind, page)] if cleaned else []


def make_table(rows: Iterable[Iterable[str]], page: int | None = None) -> list[TextBlock]:
    """Returns a table as one block, a line per row."""
    lines = map(format_row, rows)
    return make_block("\n".join(line for line in lines if line.strip(" |")), BlockKind.TABLE, page)


def format_row(cells: Iterable[str]) -> str:
    """Puts the cells of a row on one line."""
    return " | ".join(map(clean_prose, cells))


def split_authors(line: str) -> tuple[str, ...]:
    """Splits a line into authors: at semicolons, at `and`, and at commas unless there is only one (`Doe, Jane`)."""
    parts = re.split(r"\s*;\s*|\s+(?:and|&)\s+|\s*,\s+and\s+", clean_prose(line))
    if len(parts) == 1 and line.count(",") != 1:
        parts = line.split(",")
    return tuple(dict.fromkeys(each for each in map(clean_prose, parts) if each))


def same_words(one: str, other: str) -> bool:
    """Whether two headings have the same letters and digits."""
    return normalize(one) == normalize(other) != ""


def normalize(text: str) -> str:
    """Reduces a heading to its lower-case letters and digits, for comparison."""
    return _NOT_ALPHANUMERIC.sub("", text.casefold())


def looks_like_chapter(text: str) -> bool:
    """Whether a heading starts with a chapter number."""
    return bool(_NUMBERED_CHAPTER.match(text))


def extract_title(parsed: ParsedBook) -> ParsedBook:
    """Takes a lone top heading for the title, unless the file declares another title. A heading that is the only one
    stays a chapter too."""
    headings = [part for part in parsed.parts if isinstance(part, Heading)]
    top = _find_lone_top(headings)
    if top is None or not clean_title(top.text) or (parsed.title and not same_words(parsed.title, top.text)):
        return parsed
    if len(headings) == 1:
        return parsed if parsed.parts[0] is not top else replace(parsed, title=parsed.title or top.text)
    return _drop_title_headings(parsed, [top])


def place_under_title(parsed: ParsedBook) -> ParsedBook:
    """Puts the content of an HTML page under its title, unless the page is a whole book."""
    parsed = _raise_chapters(parsed)
    headings = [part for part in parsed.parts if isinstance(part, Heading)]
    titles = _find_book_titles(parsed, headings)
    if titles is not None:
        return _drop_title_headings(parsed, titles)
    top = _find_lone_top(headings)
    if headings and top is None and same_words(headings[0].text, parsed.title):
        raised = replace(headings[0], level=min(each.level for each in headings) - 1)
        return replace(parsed, parts=[raised if part is headings[0] else part for part in parsed.parts])
    if top is not None and (top.level == 1 or parsed.parts[0] is top or not parsed.title):
        return parsed if parsed.title else replace(parsed, title=top.text)
    if not parsed.title or (headings and headings[0].level == 1):
        return parsed
    return replace(parsed, parts=[Heading(parsed.title, -1), *parsed.parts])


def build_book(parsed: ParsedBook) -> Book:
    """Builds the book: headings of the highest level are chapters, the nearest deeper headings are sections. Headings
    become text only in a file that has no other text."""
    highest = min((part.level for part in parsed.parts if isinstance(part, Heading)), default=0)
    has_text = any(isinstance(part, TextBlock) for part in parsed.parts)
    chapter = section = ""
    blocks: list[Block] = []
    for part in parsed.parts:
        if isinstance(part, Heading):
            heading = clean_prose(part.text)
            chapter, section = (heading, "") if part.level == highest else (chapter, heading)
            part = TextBlock(heading, page=part.page)  # noqa: PLW2901
            if has_text or not heading:
                continue
        blocks.append(Block(part.text, part.kind, Position(chapter, section, part.page, part.line)))
    title, authors = clean_title(clean_prose(parsed.title)), clean_authors(parsed.authors)
    return Book(title, authors, tuple(blocks), parsed.date, parsed.warnings)


def _remove_invisible(text: str) -> str:
    text = text.translate(_INVISIBLE)
    return _LIGATURES.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)


def _find_lone_top(headings: Sequence[Heading]) -> Heading | None:
    if not headings:
        return None
    first, rest = headings[0], headings[1:]
    return first if all(each.level > first.level for each in rest) else None


def _raise_chapters(parsed: ParsedBook) -> ParsedBook:
    """Raises headings such as "Chapter 3" above the others of their level: DocBook pages have chapters and sections on
    one level."""
    headings = [part for part in parsed.parts if isinstance(part, Heading)]
    levels = Counter(each.level for each in headings)
    labelled = Counter(each.level for each in headings if each.text[:7].lower() == "chapter")
    mixed = {level for level, count in labelled.items() if _MIN_CHAPTERS <= count < levels[level] / 2}

    def raise_part(part: Part) -> Part:
        if not isinstance(part, Heading):
            return part
        return replace(part, level=2 * part.level - (part.level in mixed and bool(_CHAPTER_LABEL.match(part.text))))

    return replace(parsed, parts=[raise_part(part) for part in parsed.parts]) if mixed else parsed


def _drop_title_headings(parsed: ParsedBook, titles: Sequence[Heading]) -> ParsedBook:
    """Removes the headings that repeat the title."""
    marks = set(map(id, titles))
    title = parsed.title or (titles[0].text if titles else "")
    return replace(parsed, title=title, parts=[part for part in parsed.parts if id(part) not in marks])


def _find_book_titles(parsed: ParsedBook, headings: Sequence[Heading]) -> list[Heading] | None:
    """Returns the headings above the chapters if the page is a book (numbered chapters, or very long), else None."""
    length = sum(len(part.text) for part in parsed.parts if isinstance(part, TextBlock))
    if length < _MIN_BOOK_CHARACTERS:
        return None
    for level in sorted({each.level for each in headings}):
        above = [each for each in headings if each.level < level]
        chapters = [each for each in headings if each.level == level]
        numbered = sum(looks_like_chapter(each.text) for each in chapters)
        if numbered >= max(_MIN_CHAPTERS, len(chapters) // 2):
            own = [each for each in headings[:1] if same_words(each.text, parsed.title)]
            named = any(looks_like_chapter(each.text) for each in above)
            return None if len(above) > _MIN_CHAPTERS or named else above or own
    top = _find_lone_top(headings)
    return [top] if top and length > _LONE_TITLE_CHARACTERS and not looks_like_chapter(top.text) else None
