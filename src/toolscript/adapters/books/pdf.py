"""PDF: lines of type at places on pages, of which paragraphs, code and headings have to be made again."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import hypot

from toolscript.adapters.books.page_furniture import is_contents_line, text_lines
from toolscript.adapters.books.parts import Draft, bare, names, prose
from toolscript.adapters.books.pdf_flow import Line, Mark, flow, largest
from toolscript.domain.errors import Invalid

try:
    import pypdfium2 as pdfium
    from pypdfium2 import raw
except ImportError as missing:
    raise Invalid("Reading PDF needs an extra: pip install 'toolscript[books]'.") from missing

PROTECTED = "The file is protected by a password: save a copy without one."
SCANNED = "The file has no text: it seems to be scanned. Run OCR on it first."
_FIXED = re.compile(r"mono|cour|consol|typewriter|cmtt|sftt|ectt|lmtt|[a-z]tt\d|fixed|menlo|inconsolata", re.IGNORECASE)
_FIXED_PITCH = 1
_NAME_BYTES = 128
_SAMPLES = 4
_MOST_MARKS = 50_000
_PRINTED = re.compile(r"[1-9][0-9]{0,5}")


def read_pdf(data: bytes) -> Draft:
    """The text with the pages, and with the chapters and sections of its outline, or of its large type where it has
    none. Raises Invalid for a file that is broken, protected or scanned."""
    document = _opened(data)
    pages = [_page_lines(document, number) for number in range(len(document))]
    if not any(pages):
        raise Invalid(SCANNED)
    outline = _outline(document)
    kept = text_lines([[line.text for line in page] for page in pages], {bare(mark.title) for mark in outline})
    lines = [
        page[each]
        for page, numbers in zip(pages, kept, strict=True)
        for each in numbers
        if not is_contents_line(page[each].text)
    ]
    said = document.get_metadata_dict()
    title = _title(said.get("Title", "")) or largest(next(page for page in pages if page))
    printed = _printed_numbers(document)
    parts = [replace(part, page=printed.get(part.page)) for part in flow(lines, outline)]
    return Draft(parts, title, names(said.get("Author", "")))


def _opened(data: bytes) -> pdfium.PdfDocument:
    try:
        document = pdfium.PdfDocument(data)
        count = len(document)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) in {raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY} or "assword" in str(
            error
        ):
            raise Invalid(PROTECTED) from error
        raise Invalid("The file is broken: it cannot be read as a PDF.") from error
    if not count:
        raise Invalid("The file is broken: the PDF has no pages.")
    return document


def _title(said: str) -> str:
    """The title that a PDF gives itself, unless it is only the name of the file it was made from."""
    return (
        ""
        if re.search(r"\.(?:docx?|tex|dvi|indd|qxd|fm|ps|rtf|odt)\Z|\Auntitled|microsoft word", said, re.IGNORECASE)
        else prose(said)
    )


def _printed_numbers(document: pdfium.PdfDocument) -> dict[int | None, int]:
    """By the number of a sheet, from 1 on, what page it is: the number that is printed on it, as far as the file tells
    it, or else the sheet's own, unless that is printed on another."""
    labels = {number + 1: document.get_page_label(number) for number in range(len(document))}
    told = {sheet: int(label) for sheet, label in labels.items() if _PRINTED.fullmatch(label)}
    taken = set(told.values())
    return {sheet: told.get(sheet, sheet) for sheet in labels if sheet in told or sheet not in taken}


def _page_lines(document: pdfium.PdfDocument, number: int) -> list[Line]:
    """The lines of a page, in the order in which the file has them. A page that cannot be read has none."""
    try:
        page = document[number]
        text_page = page.get_textpage()
    except pdfium.PdfiumError:
        return []
    try:
        reader = _PageReader(text_page, number + 1)
        return list(reader.lines())
    finally:
        text_page.close()
        page.close()


@dataclass(frozen=True, slots=True)
class _PageReader:
    """Asks for the place and the typeface of a few signs of each line: of every sign would take minutes for a book."""

    page: pdfium.PdfTextPage
    number: int

    def lines(self) -> Iterator[Line]:
        text = self.page.get_text_range()
        start = 0
        for said in text.split("\n"):
            end = start + len(said)
            if said.strip():
                yield self._line(said, start)
            start = end + 1

    def _line(self, said: str, start: int) -> Line:
        words = said.strip()
        start += len(said) - len(said.lstrip())
        signs = [self._sign(start + each) for each in _spread(words)]
        left, bottom, _, _ = self._box(signs[0])
        return Line(
            text=words,
            page=self.number,
            left=left,
            right=self._box(signs[-1])[2],
            bottom=self._base(signs[0], bottom),
            end=self._base(signs[-1], bottom),
            size=self._size(signs[len(signs) // 2]),
            fixed=all(self._is_fixed(sign) for sign in signs),
        )

    def _sign(self, index: int) -> int:
        return max(0, int(raw.FPDFText_GetCharIndexFromTextIndex(self.page, index)))

    def _box(self, sign: int) -> tuple[float, float, float, float]:
        box = raw.FS_RECTF()
        raw.FPDFText_GetLooseCharBox(self.page, sign, box)
        return box.left, box.bottom, box.right, box.top

    def _base(self, sign: int, otherwise: float) -> float:
        x, y = ctypes.c_double(), ctypes.c_double()
        return y.value if raw.FPDFText_GetCharOrigin(self.page, sign, x, y) else otherwise

    def _size(self, sign: int) -> float:
        """How large a sign is on the page: the size of its type, as far as the page enlarges it."""
        matrix = raw.FS_MATRIX()
        scale = hypot(matrix.c, matrix.d) if raw.FPDFText_GetMatrix(self.page, sign, matrix) else 1.0
        return round(raw.FPDFText_GetFontSize(self.page, sign) * scale, 1) or 1.0

    def _is_fixed(self, sign: int) -> bool:
        name, flags = ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_int()
        length = raw.FPDFText_GetFontInfo(self.page, sign, name, _NAME_BYTES, flags)
        return bool(length) and (bool(flags.value & _FIXED_PITCH) or bool(_FIXED.search(name.value.decode("latin-1"))))


def _spread(text: str) -> Sequence[int]:
    """A few places in a line that are no spaces, the first and the last among them."""
    last = len(text) - 1
    between = (last * part // (_SAMPLES - 1) for part in range(1, _SAMPLES - 1))
    return [
        0,
        *(place for place in between if 0 < place < last and not text[place].isspace()),
        *([last] if last else []),
    ]


def _outline(document: pdfium.PdfDocument) -> list[Mark]:
    """The bookmarks, with where they lead."""
    marks = []
    for bookmark in document.get_toc():
        target = bookmark.get_dest()
        number = target.get_index() if target else None
        if number is None:
            continue
        mode, view = target.get_view()
        top = {raw.PDFDEST_VIEW_XYZ: 1, raw.PDFDEST_VIEW_FITH: 0, raw.PDFDEST_VIEW_FITBH: 0}.get(mode)
        y = view[top] if top is not None and len(view) > top else None
        marks.append(Mark(prose(bookmark.get_title() or ""), bookmark.level, number + 1, y))
        if len(marks) >= _MOST_MARKS:
            break
    return [mark for mark in marks if mark.title]
