"""Word files: headings by style, tables where they stand, code by the name of its style or its typeface."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from zipfile import ZipFile

from toolscript.adapters.books.archive import open_archive, refuse_entities
from toolscript.adapters.books.parts import Draft, Heading, Part, Passage, names, passage, prose, table, without_title
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BlockKind

try:
    from docx import Document
    from docx.document import Document as WordDocument
    from docx.opc.exceptions import PackageNotFoundError
    from docx.table import Table
    from docx.text.paragraph import Paragraph
except ImportError as missing:
    raise Invalid("Reading DOCX needs an extra: pip install 'toolscript[books]'.") from missing

_NOBODY = "python-docx"
_HEADING = re.compile(r"heading (\d)", re.IGNORECASE)
_CODE = re.compile(r"code|source|preformatted|verbatim|macro text|listing", re.IGNORECASE)
_FIXED = re.compile(r"mono|courier|consolas|menlo|fixed|typewriter", re.IGNORECASE)
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def read_docx(data: bytes) -> Draft:
    """The document, with the title and author of its properties. Raises Invalid for a file that is none."""
    archive = open_archive(data)
    if "word/document.xml" not in archive.namelist():
        raise Invalid("The file is not a Word document: it has no word/document.xml in it.")
    refuse_entities(archive)
    try:
        document = Document(io.BytesIO(data))
        title, author = _said(document, archive)
        parts = list(_joined(_Reading().parts(document.iter_inner_content())))
    except (PackageNotFoundError, KeyError, ValueError, SyntaxError, AttributeError) as error:
        raise Invalid("The file is broken: it cannot be read as a Word document.") from error
    own_title = next((part.text for part in parts if _is_title(part)), "")
    authors = names("" if author == _NOBODY else author)
    if own_title:
        return Draft([part for part in parts if not _is_title(part)], own_title, authors)
    return without_title(Draft(parts, title, authors))


def _said(document: WordDocument, archive: ZipFile) -> tuple[str, str]:
    """The title and the author of a document's properties. Where it has none, the library makes some up."""
    if "docProps/core.xml" not in archive.namelist():
        return "", ""
    properties = document.core_properties
    return properties.title or "", properties.author or ""


def _is_title(part: Part) -> bool:
    return isinstance(part, Heading) and part.level == 0


class _Reading:
    """Goes through a document and counts the pages that Word last saw, where it noted them."""

    def __init__(self) -> None:
        self._page = 1
        self._styles: dict[str | None, str] = {}

    def parts(self, content: Iterator[Paragraph | Table]) -> Iterator[Part]:
        parts = [part for each in content for part in self._part(each)]
        known = self._page > 1
        return iter(parts) if known else (_without_page(part) for part in parts)

    def _part(self, content: Paragraph | Table) -> list[Part]:
        if isinstance(content, Table):
            rows = [[cell.text for cell in row.cells] for row in content.rows]
            page, self._page = self._page, self._page + _breaks(content)
            return list[Part](table(rows, page))
        style = self._style(content)
        breaks = _breaks(content)
        first = breaks and not _text_before_break(content)
        page = self._page + (1 if first else 0)
        self._page += breaks
        text = content.text
        if not text.strip():
            return [Passage("", BlockKind.CODE, page)] if _CODE.search(style) else []
        level = _HEADING.match(style)
        if level or style == "Title":
            return [Heading(prose(text), int(level[1]) if level else 0, page)]
        if _CODE.search(style) or _is_fixed(content):
            return [Passage(text.rstrip(), BlockKind.CODE, page)]
        numbered = style.startswith("List") or content._p.find(f"{_W}pPr/{_W}numPr") is not None
        return list[Part](passage(("- " if numbered else "") + text, page=page))

    def _style(self, paragraph: Paragraph) -> str:
        """The name of a paragraph's style, looked up once for each style."""
        mark = paragraph._p.find(f"{_W}pPr/{_W}pStyle")
        key = mark.get(f"{_W}val") if mark is not None else None
        if key not in self._styles:
            self._styles[key] = (paragraph.style.name if paragraph.style else "") or ""
        return self._styles[key]


def _joined(parts: Iterator[Part]) -> Iterator[Part]:
    """Lines of code that follow one another are one block."""
    lines: list[str] = []
    page: int | None = None
    for part in parts:
        if isinstance(part, Passage) and part.kind is BlockKind.CODE:
            page = part.page if not lines else page
            lines.append(part.text)
            continue
        yield from passage("\n".join(lines), BlockKind.CODE, page)
        lines = []
        yield part
    yield from passage("\n".join(lines), BlockKind.CODE, page)


def _without_page(part: Part) -> Part:
    if isinstance(part, Heading):
        return Heading(part.text, part.level)
    return Passage(part.text, part.kind)


def _breaks(content: Paragraph | Table) -> int:
    return len(content._element.findall(f".//{_W}lastRenderedPageBreak"))


def _text_before_break(paragraph: Paragraph) -> bool:
    for element in paragraph._p.iter(f"{_W}t", f"{_W}lastRenderedPageBreak"):
        if element.tag == f"{_W}lastRenderedPageBreak":
            return False
        if (element.text or "").strip():
            return True
    return False


def _is_fixed(paragraph: Paragraph) -> bool:
    runs = [run for run in paragraph.runs if run.text.strip()]
    return bool(runs) and all(_FIXED.search(run.font.name or "") for run in runs)
