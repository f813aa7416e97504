"""Reads the lines of a PDF with their position and typeface; `flow` makes paragraphs, code and headings of them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot

from toolscript.adapters.files.dates import find_date
from toolscript.adapters.files.page_furniture import find_text_lines, is_contents_line
from toolscript.adapters.files.parts import ParsedBook, TextBlock, clean_prose, normalize, split_authors
from toolscript.adapters.files.pdf.flow import Bookmark, build_parts, find_title, insert_pages
from toolscript.adapters.files.pdf.layout import MIN_GAP, PdfCell, PdfLine, order_lines
from toolscript.adapters.files.titles import clean_title
from toolscript.domain.errors import Invalid

try:
    import pypdfium2 as pdfium
    from pypdfium2 import raw
except ImportError as missing:
    raise Invalid("Reading PDF needs an extra: pip install 'toolscript[books]'.") from missing

PROTECTED = "The file is password-protected: save a copy without a password."
_MONOSPACE = re.compile(
    r"mono|cour|consol|typewriter|cmtt|sftt|ectt|lmtt|[a-z]tt\d|fixed|menlo|inconsolata", re.IGNORECASE
)
_FIXED_PITCH = 1
_NAME_BYTES = 128
_SAMPLES = 4
_MAX_BOOKMARKS = 50_000
_MAX_PAGES_WITHOUT_TEXT = 0.8
_MAX_LISTED = 5
# Of the letters of a text. English has 38 % vowels, and letters less 29 have 14 %.
_VOWELS, _MAX_VOWELS, _MAX_SMALL = frozenset("aeiouAEIOU"), 0.26, 0.2
_MIN_LETTERS = 5
_SPACE = re.compile(r"\s+")
_PAGE_NUMBER = re.compile(r"[1-9][0-9]{0,5}")


def read_pdf(data: bytes, tesseract: str = "") -> ParsedBook:
    """Parses a PDF. Headings come from its outline, or from large type if it has none. Scanned pages are read with the
    command `tesseract`. Raises Invalid for a file that is damaged or protected, or scanned if there is no command."""
    document = _open_document(data)
    garbled: dict[int, int] = {}
    pages = [_read_page_lines(document, number, garbled) for number in range(len(document))]
    if _is_scanned(document, pages):
        return _read_scan(document, tesseract)
    outline = _read_outline(document)
    kept = find_text_lines(
        [[line.text for line in page] for page in pages], {normalize(mark.title) for mark in outline}
    )
    lines = [
        page[each]
        for page, numbers in zip(pages, kept, strict=True)
        for each in numbers
        if not is_contents_line(page[each].text)
    ]
    metadata = document.get_metadata_dict()
    title = clean_title(metadata.get("Title", "")) or find_title(next(page for page in pages if page))
    page_numbers = _read_page_numbers(document)
    scanned, warnings = _recognise_pictures(document, pages, tesseract)
    parts = [
        replace(part, page=page_numbers.get(part.page)) for part in insert_pages(build_parts(lines, outline), scanned)
    ]
    date = find_date(metadata.get("ModDate", "")) or find_date(metadata.get("CreationDate", ""))
    warnings = (*warnings, *_describe_garbled(garbled))
    return ParsedBook(parts, title, split_authors(metadata.get("Author", "")), date, warnings)


def _describe_garbled(garbled: Mapping[int, int]) -> Iterator[str]:
    """Returns a warning for the lines that were left out, by page."""
    if garbled:
        listed = ", ".join(map(str, [*garbled][:_MAX_LISTED])) + (", …" if len(garbled) > _MAX_LISTED else "")
        lines = sum(garbled.values())
        count = f"{lines} {'line' if lines == 1 else 'lines'}"
        yield f"{count} left out (page {listed}): the font does not say which letters it draws"


def _recognise_pictures(
    document: pdfium.PdfDocument, pages: Sequence[Sequence[PdfLine]], tesseract: str
) -> tuple[list[TextBlock], tuple[str, ...]]:
    """Returns the text of pages that are pictures, and a warning if some cannot be read."""
    without = [number for number, page in enumerate(pages) if not page and _has_picture(document, number)]
    if not without:
        return [], ()
    from toolscript.adapters.files.pdf.scans import drop_covers, recognise_some

    scanned = drop_covers([number + 1 for number in without], len(pages))
    return recognise_some(document, scanned, tesseract) if scanned else ([], ())


def _is_scanned(document: pdfium.PdfDocument, pages: Sequence[Sequence[PdfLine]]) -> bool:
    """Whether no page has text, or few have and the others are pictures: a cover in front of scanned pages."""
    without = [number for number, page in enumerate(pages) if not page]
    if len(without) == len(pages):
        return True
    if len(without) <= _MAX_PAGES_WITHOUT_TEXT * len(pages):
        return False
    return sum(_has_picture(document, number) for number in without) > _MAX_PAGES_WITHOUT_TEXT * len(pages)


def _has_picture(document: pdfium.PdfDocument, number: int) -> bool:
    try:
        return next(document[number].get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=2), None) is not None
    except pdfium.PdfiumError:
        return False


def _read_scan(document: pdfium.PdfDocument, tesseract: str) -> ParsedBook:
    from toolscript.adapters.files.pdf.scans import NOT_INSTALLED, recognise_pages

    if not tesseract:
        raise Invalid(NOT_INSTALLED)
    parts = list(recognise_pages(document, range(1, len(document) + 1), tesseract))
    if not parts:
        raise Invalid("The file has no text layer, and OCR finds no text.")
    metadata = document.get_metadata_dict()
    date = find_date(metadata.get("ModDate", "")) or find_date(metadata.get("CreationDate", ""))
    return ParsedBook(parts, clean_title(metadata.get("Title", "")), split_authors(metadata.get("Author", "")), date)


def _open_document(data: bytes) -> pdfium.PdfDocument:
    try:
        document = pdfium.PdfDocument(data)
        count = len(document)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) in {raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY} or "assword" in str(
            error
        ):
            raise Invalid(PROTECTED) from error
        raise Invalid("The file is damaged: it cannot be read as a PDF.") from error
    if not count:
        raise Invalid("The file is damaged: the PDF has no pages.")
    return document


def _read_page_numbers(document: pdfium.PdfDocument) -> dict[int | None, int]:
    """Maps sheet numbers (from 1) to page numbers: a numeric label, else the sheet number, unless another has it."""
    labels = {number + 1: document.get_page_label(number) for number in range(len(document))}
    labelled = {sheet: int(label) for sheet, label in labels.items() if _PAGE_NUMBER.fullmatch(label)}
    taken = set(labelled.values())
    return {sheet: labelled.get(sheet, sheet) for sheet in labels if sheet in labelled or sheet not in taken}


def _read_page_lines(document: pdfium.PdfDocument, number: int, garbled: dict[int, int]) -> list[PdfLine]:
    """Returns the lines of a page in reading order; none for a page that cannot be read. Lines that cannot be decoded
    are left out, and counted by page."""
    try:
        page = document[number]
        text_page = page.get_textpage()
    except pdfium.PdfiumError:
        return []
    try:
        read = list(_PdfPageReader(text_page, number + 1).lines())
    finally:
        text_page.close()
        page.close()
    undecoded = [line for line, is_decoded in read if not is_decoded]
    if not _is_garbled("".join(line.text for line in undecoded)):
        return order_lines([line for line, _ in read])
    garbled[number + 1] = len(undecoded)
    return order_lines([line for line, is_decoded in read if is_decoded])


def _is_garbled(text: str) -> bool:
    """Whether numbers of glyphs were taken for letters. PDFium does so where a font has no table of characters: mostly
    they are letters less 29, `5HPRWHRUWKHNHHSHU` for `Remote or the keeper`. Where they are letters after all, as in
    old fonts of TeX, a page has small letters and vowels."""
    letters = [sign for sign in text if sign.isalpha()]
    small, vowels = sum(map(str.islower, letters)), sum(sign in _VOWELS for sign in letters)
    is_judged = len(letters) >= _MIN_LETTERS
    return is_judged and small <= _MAX_SMALL * len(letters) and vowels <= _MAX_VOWELS * len(letters)


@dataclass(frozen=True, slots=True)
class _PdfPageReader:
    """Samples position and typeface at a few characters of each line: every character would take minutes per book."""

    page: pdfium.PdfTextPage
    number: int

    def lines(self) -> Iterator[tuple[PdfLine, bool]]:
        """The lines, and whether each is decoded for certain."""
        text = self.page.get_text_range()
        start = 0
        for line in text.split("\n"):
            end = start + len(line)
            if line.strip():
                yield self._line(line, start), self._is_decoded(line, start)
            start = end + 1

    def _line(self, raw_line: str, start: int) -> PdfLine:
        words = raw_line.strip()
        start += len(raw_line) - len(raw_line.lstrip())
        signs = [self._character_index(start + each) for each in _sample_positions(words)]
        left, bottom, _, _ = self._box(signs[0])
        size = self._size(signs[len(signs) // 2])
        is_linear = signs[-1] - signs[0] == len(words) - 1
        return PdfLine(
            text=words,
            page=self.number,
            left=left,
            right=self._box(signs[-1])[2],
            bottom=self._baseline(signs[0], bottom),
            end=self._baseline(signs[-1], bottom),
            size=size,
            is_monospace=all(self._is_monospace(sign) for sign in signs),
            cells=self._find_cells(words, signs[0], size) if is_linear else (),
        )

    def _is_decoded(self, raw_line: str, start: int) -> bool:
        """Whether the font maps some of the characters to letters."""
        start += len(raw_line) - len(raw_line.lstrip())
        signs = (self._character_index(start + each) for each in _sample_positions(raw_line.strip()))
        return not all(raw.FPDFText_HasUnicodeMapError(self.page, sign) == 1 for sign in signs)

    def _find_cells(self, words: str, first: int, size: float) -> tuple[PdfCell, ...]:
        """Divides a line at wide gaps; returns nothing for a line without any."""
        begin, left = 0, self._box(first)[0]
        cells: list[PdfCell] = []
        for found in _SPACE.finditer(words):
            right, following = self._box(first + found.start() - 1)[2], self._box(first + found.end())[0]
            if following - right > MIN_GAP * size:
                cells.append(PdfCell(words[begin : found.start()], left, right))
                begin, left = found.end(), following
        return (*cells, PdfCell(words[begin:], left, self._box(first + len(words) - 1)[2])) if cells else ()

    def _character_index(self, index: int) -> int:
        return max(0, int(raw.FPDFText_GetCharIndexFromTextIndex(self.page, index)))

    def _box(self, sign: int) -> tuple[float, float, float, float]:
        box = raw.FS_RECTF()
        raw.FPDFText_GetLooseCharBox(self.page, sign, box)
        return box.left, box.bottom, box.right, box.top

    def _baseline(self, sign: int, otherwise: float) -> float:
        x, y = ctypes.c_double(), ctypes.c_double()
        return y.value if raw.FPDFText_GetCharOrigin(self.page, sign, x, y) else otherwise

    def _size(self, sign: int) -> float:
        """Returns the font size multiplied by the scale of the text matrix."""
        matrix = raw.FS_MATRIX()
        scale = hypot(matrix.c, matrix.d) if raw.FPDFText_GetMatrix(self.page, sign, matrix) else 1.0
        return round(raw.FPDFText_GetFontSize(self.page, sign) * scale, 1) or 1.0

    def _is_monospace(self, sign: int) -> bool:
        name, flags = ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_int()
        length = raw.FPDFText_GetFontInfo(self.page, sign, name, _NAME_BYTES, flags)
        return bool(length) and (
            bool(flags.value & _FIXED_PITCH) or bool(_MONOSPACE.search(name.value.decode("latin-1")))
        )


def _sample_positions(text: str) -> Sequence[int]:
    """Returns a few positions in a line that are not spaces, including the first and the last."""
    last = len(text) - 1
    between = (last * part // (_SAMPLES - 1) for part in range(1, _SAMPLES - 1))
    return [
        0,
        *(place for place in between if 0 < place < last and not text[place].isspace()),
        *([last] if last else []),
    ]


def _read_outline(document: pdfium.PdfDocument) -> list[Bookmark]:
    """Returns the bookmarks with their targets."""
    marks = []
    for bookmark in document.get_toc():
        target = bookmark.get_dest()
        number = target.get_index() if target else None
        if number is None:
            continue
        mode, view = target.get_view()
        top = {raw.PDFDEST_VIEW_XYZ: 1, raw.PDFDEST_VIEW_FITH: 0, raw.PDFDEST_VIEW_FITBH: 0}.get(mode)
        y = view[top] if top is not None and len(view) > top else None
        marks.append(Bookmark(clean_prose(bookmark.get_title() or ""), bookmark.level, number + 1, y))
        if len(marks) >= _MAX_BOOKMARKS:
            break
    return [mark for mark in marks if mark.title]
