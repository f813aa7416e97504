"""What every reader of a format hands over, headings and passages in reading order, and the one place where chapters
and sections are made of them."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from toolscript.domain.knowledge import Block, BlockKind, Book, Position

NO_TEXT = "The file has no text in it, so there is nothing to find."
# A text this long is a book of its own, whatever its one heading of the highest level may say.
_BOOK_LENGTH = 400_000
# A text shorter than that is a page, even if its headings are numbered.
_LEAST_BOOK = 30_000
_FEW = 3
_NUMBERED_CHAPTER = re.compile(
    r"(?:chapter|part|appendix|kapitel|chapitre)\s+[\divxlc]+\b|\d{1,3}\.?\s+\S|[IVXLC]{1,6}\.\s", re.IGNORECASE
)
_LABELLED = re.compile(r"(?:chapter|appendix|part)\s+(?:\d{1,3}|[ivxlc]+|[a-z])\b", re.IGNORECASE)
_SIGNS = re.compile(r"[\W_]+")
_INVISIBLE = dict.fromkeys([*range(9), *range(0x0E, 0x20), *range(0x7F, 0xA0), 0xAD, 0x200B, 0x2060, 0xFEFF, 0xFFFE])
_INVISIBLE |= {0x0B: "\n", 0x0C: "\n", 0x85: "\n", 0x2028: "\n", 0x2029: "\n", 0x00A0: " ", 0x202F: " "}
_INVISIBLE |= dict.fromkeys(range(55296, 57344), "�")
_LIGATURES = re.compile("[\ufb00-\ufb06]")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; the smaller its level, the higher it stands. One without words ends a section and begins none."""

    text: str
    level: int
    page: int | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph, a list item, a block of code or a table."""

    text: str
    kind: BlockKind = BlockKind.PROSE
    page: int | None = None


Part = Heading | Passage


@dataclass(frozen=True, slots=True)
class Draft:
    """What was read of a file before it is known which headings are chapters."""

    parts: Sequence[Part]
    title: str = ""
    authors: tuple[str, ...] = ()


def prose(text: str) -> str:
    """A paragraph on one line, without what cannot be seen."""
    return " ".join(_visible(text).split())


def verbatim(text: str) -> str:
    """Code or a table: its lines as they stand, without the margin they share and the blank lines around them."""
    lines = [line.rstrip() for line in _visible(text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")]
    return textwrap.dedent("\n".join(lines).strip("\n"))


def passage(text: str, kind: BlockKind = BlockKind.PROSE, page: int | None = None) -> list[Passage]:
    """A passage of cleaned text, or nothing where nothing is left of it."""
    cleaned = prose(text) if kind is BlockKind.PROSE else verbatim(text)
    return [Passage(cleaned, kind, page)] if cleaned else []


def table(rows: Iterable[Iterable[str]], page: int | None = None) -> list[Passage]:
    """A table with one row a line."""
    lines = (" | ".join(map(prose, row)) for row in rows)
    return passage("\n".join(line for line in lines if line.strip(" |")), BlockKind.TABLE, page)


def names(said: str) -> tuple[str, ...]:
    """The authors that a line names: split at semicolons, at `and`, and at commas that do not turn a name around."""
    parted = re.split(r"\s*;\s*|\s+(?:and|&)\s+|\s*,\s+and\s+", prose(said))
    if len(parted) == 1 and said.count(",") != 1:
        parted = said.split(",")
    return tuple(dict.fromkeys(each for each in map(prose, parted) if each))


def same_words(one: str, other: str) -> bool:
    """Whether two headings say the same, whatever their case and signs."""
    return bare(one) == bare(other) != ""


def bare(text: str) -> str:
    """Only the letters and digits of a heading, to compare it."""
    return _SIGNS.sub("", text.casefold())


def looks_like_chapter(text: str) -> bool:
    """Whether a heading carries a chapter's number."""
    return bool(_NUMBERED_CHAPTER.match(text))


def without_title(draft: Draft) -> Draft:
    """The draft with its one highest heading taken for the title, where it is that: it comes first, is alone on its
    level, and the file does not call itself something else. One without any other below it is the only chapter, too."""
    headings = [part for part in draft.parts if isinstance(part, Heading)]
    top = _lone_top(headings)
    if top is None or (draft.title and not same_words(draft.title, top.text)):
        return draft
    if len(headings) == 1:
        return draft if draft.parts[0] is not top else replace(draft, title=draft.title or top.text)
    return _titled(draft, [top])


def page_of_its_own(draft: Draft) -> Draft:
    """A page of HTML: what stands on it belongs to its own title, unless the page is a whole book."""
    draft = _chapters_raised(draft)
    headings = [part for part in draft.parts if isinstance(part, Heading)]
    titles = _titles_of_book(draft, headings)
    if titles is not None:
        return _titled(draft, titles)
    top = _lone_top(headings)
    if headings and top is None and same_words(headings[0].text, draft.title):
        raised = replace(headings[0], level=min(each.level for each in headings) - 1)
        return replace(draft, parts=[raised if part is headings[0] else part for part in draft.parts])
    if top is not None and (top.level == 1 or draft.parts[0] is top or not draft.title):
        return draft if draft.title else replace(draft, title=top.text)
    if not draft.title or (headings and headings[0].level == 1):
        return draft
    return replace(draft, parts=[Heading(draft.title, -1), *draft.parts])


def assemble(draft: Draft) -> Book:
    """The book: chapters are the headings of the highest level in use, sections the nearest deeper ones. A heading is
    where text stands and no text, unless there is no other."""
    highest = min((part.level for part in draft.parts if isinstance(part, Heading)), default=0)
    has_text = any(isinstance(part, Passage) for part in draft.parts)
    chapter = section = ""
    blocks: list[Block] = []
    for part in draft.parts:
        if isinstance(part, Heading):
            heading = prose(part.text)
            chapter, section = (heading, "") if part.level == highest else (chapter, heading)
            part = Passage(heading, page=part.page)  # noqa: PLW2901 # the only text there is
            if has_text or not heading:
                continue
        blocks.append(Block(part.text, part.kind, Position(chapter, section, part.page)))
    return Book(prose(draft.title), draft.authors, tuple(blocks))


def _visible(text: str) -> str:
    text = text.translate(_INVISIBLE)
    return _LIGATURES.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)


def _lone_top(headings: Sequence[Heading]) -> Heading | None:
    if not headings:
        return None
    first, rest = headings[0], headings[1:]
    return first if all(each.level > first.level for each in rest) else None


def _chapters_raised(draft: Draft) -> Draft:
    """Headings that say "Chapter 3" above the others of their level, where those are more: a DocBook page has chapters
    and their sections on the same level."""
    headings = [part for part in draft.parts if isinstance(part, Heading)]
    levels = Counter(each.level for each in headings)
    labelled = Counter(each.level for each in headings if each.text[:7].lower() == "chapter")
    mixed = {level for level, count in labelled.items() if _FEW <= count < levels[level] / 2}

    def raised(part: Part) -> Part:
        if not isinstance(part, Heading):
            return part
        return replace(part, level=2 * part.level - (part.level in mixed and bool(_LABELLED.match(part.text))))

    return replace(draft, parts=[raised(part) for part in draft.parts]) if mixed else draft


def _titled(draft: Draft, titles: Sequence[Heading]) -> Draft:
    """The draft without the headings that are its title."""
    marks = set(map(id, titles))
    title = draft.title or (titles[0].text if titles else "")
    return replace(draft, title=title, parts=[part for part in draft.parts if id(part) not in marks])


def _titles_of_book(draft: Draft, headings: Sequence[Heading]) -> list[Heading] | None:
    """The few headings above the chapters, where a page is a book: its chapters are numbered, or it is very long."""
    length = sum(len(part.text) for part in draft.parts if isinstance(part, Passage))
    if length < _LEAST_BOOK:
        return None
    for level in sorted({each.level for each in headings}):
        above = [each for each in headings if each.level < level]
        chapters = [each for each in headings if each.level == level]
        numbered = sum(looks_like_chapter(each.text) for each in chapters)
        if numbered >= max(_FEW, len(chapters) // 2):
            own = [each for each in headings[:1] if same_words(each.text, draft.title)]
            named = any(looks_like_chapter(each.text) for each in above)
            return None if len(above) > _FEW or named else above or own
    top = _lone_top(headings)
    return [top] if top and length > _BOOK_LENGTH and not looks_like_chapter(top.text) else None
