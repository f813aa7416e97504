"""Files of books, made by hand: a PDF of lines at places with an outline, an EPUB of a few pages, any archive."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BODY, CODE, LARGE = "/F1 11 Tf", "/F2 10 Tf", "/F1 20 Tf"
EPUB_CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)


@dataclass(frozen=True)
class Typed:
    """A line of a page: where it stands, in which type, what it says."""

    x: float
    y: float
    text: str
    font: str = BODY


@dataclass(frozen=True)
class Bookmark:
    """An entry of an outline: its title, its page from 0 on, the height on it, and the entries below."""

    title: str
    page: int
    y: float = 800
    below: Sequence[Bookmark] = ()


def pdf(
    pages: Sequence[Sequence[Typed]],
    outline: Sequence[Bookmark] = (),
    title: str = "",
    author: str = "",
    labels: str = "",
) -> bytes:
    """A PDF with those pages; `labels` is the list of how they are numbered, as PDF writes it."""
    made = _Objects()
    catalog, tree, info = made.reserve(), made.reserve(), made.reserve()
    fonts = [made.add(f"<< /Type /Font /Subtype /Type1 /BaseFont /{name} >>") for name in ("Helvetica", "Courier")]
    numbers = []
    for page in pages:
        drawn = "".join(
            f"BT {line.font} 1 0 0 1 {line.x} {line.y} Tm ({_escaped(line.text)}) Tj ET\n" for line in page
        ).encode("latin-1")
        content = made.add(f"<< /Length {len(drawn)} >>\nstream\n{drawn.decode('latin-1')}endstream")
        resources = f"<< /Font << /F1 {fonts[0]} 0 R /F2 {fonts[1]} 0 R >> >>"
        numbers.append(
            made.add(
                f"<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 600 850] "
                f"/Resources {resources} /Contents {content} 0 R >>"
            )
        )
    outlines = made.reserve()
    first, last = _bookmarks(made, outline, outlines, numbers)
    made.put(outlines, f"<< /Type /Outlines {first} {last} >>")
    numbering = f"/PageLabels << /Nums [{labels}] >>" if labels else ""
    made.put(catalog, f"<< /Type /Catalog /Pages {tree} 0 R /Outlines {outlines} 0 R {numbering} >>")
    kids = " ".join(f"{number} 0 R" for number in numbers)
    made.put(tree, f"<< /Type /Pages /Kids [{kids}] /Count {len(numbers)} >>")
    made.put(info, f"<< /Title ({_escaped(title)}) /Author ({_escaped(author)}) >>")
    return made.file(catalog, info)


def _bookmarks(made: _Objects, marks: Sequence[Bookmark], parent: int, pages: Sequence[int]) -> tuple[str, str]:
    numbers = [made.reserve() for _ in marks]
    for place, (mark, number) in enumerate(zip(marks, numbers, strict=True)):
        first, last = _bookmarks(made, mark.below, number, pages)
        before = f"/Prev {numbers[place - 1]} 0 R" if place else ""
        after = f"/Next {numbers[place + 1]} 0 R" if place + 1 < len(numbers) else ""
        target = f"[{pages[mark.page]} 0 R /XYZ 0 {mark.y} 0]"
        made.put(
            number,
            f"<< /Title ({_escaped(mark.title)}) /Parent {parent} 0 R /Dest {target} "
            f"/Count {len(mark.below)} {before} {after} {first} {last} >>",
        )
    return (f"/First {numbers[0]} 0 R", f"/Last {numbers[-1]} 0 R") if numbers else ("", "")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


class _Objects:
    """The numbered objects of a PDF, and the table that says where each begins."""

    def __init__(self) -> None:
        self._bodies: list[str] = []

    def reserve(self) -> int:
        return self.add("null")

    def add(self, body: str) -> int:
        self._bodies.append(body)
        return len(self._bodies)

    def put(self, number: int, body: str) -> None:
        self._bodies[number - 1] = body

    def file(self, catalog: int, info: int) -> bytes:
        out = io.BytesIO()
        out.write(b"%PDF-1.4\n")
        places = []
        for number, body in enumerate(self._bodies, 1):
            places.append(out.tell())
            out.write(f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1"))
        table = out.tell()
        rows = "".join(f"{place:010d} 00000 n \n" for place in places)
        out.write(f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n{rows}".encode("latin-1"))
        size = len(places) + 1
        out.write(f"trailer\n<< /Size {size} /Root {catalog} 0 R /Info {info} 0 R >>\n".encode("latin-1"))
        out.write(f"startxref\n{table}\n%%EOF\n".encode("latin-1"))
        return out.getvalue()


def archive(members: Mapping[str, str | bytes]) -> bytes:
    """A zip file of those members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return out.getvalue()


def epub(
    pages: Mapping[str, str], nav: str = "", more: Mapping[str, str | bytes] | None = None, **changed: str
) -> bytes:
    """An EPUB of those pages in that order, by file name; `nav` is the list of its table of contents, `more` are other
    files in it."""
    items = "".join(
        f'<item id="i{n}" href="{name}" media-type="application/xhtml+xml"/>' for n, name in enumerate(pages)
    )
    refs = "".join(f'<itemref idref="i{n}"/>' for n in range(len(pages)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<metadata><dc:title>Of Bees</dc:title><dc:creator>Ada Hive</dc:creator></metadata><manifest>"
        f'<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>{items}'
        f"</manifest><spine>{refs}</spine></package>"
    )
    contents = (
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><body>'
        f'<nav epub:type="toc">{nav}</nav></body></html>'
    )
    return archive(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": changed.get("container", EPUB_CONTAINER),
            "OEBPS/book.opf": changed.get("package", package),
            "OEBPS/nav.xhtml": contents,
            **{f"OEBPS/{name}": text for name, text in pages.items()},
            **(more or {}),
        }
    )
