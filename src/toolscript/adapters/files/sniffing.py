"""Finds out what a file really is, by its first bytes: names may be wrong."""

from __future__ import annotations

from toolscript.adapters.files.archive import open_archive
from toolscript.domain.errors import Invalid
from toolscript.domain.files.kinds import FileKind

_SNIFFED_BYTES = 1024
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_RTF = b"{\\rtf"
_ENCRYPTED_OFFICE = "EncryptedPackage".encode("utf-16-le")
_OUTLOOK = "__substg1.0_".encode("utf-16-le")
# Files in an archive that only this kind has.
_MEMBERS = {
    "META-INF/container.xml": FileKind.EPUB,
    "word/document.xml": FileKind.DOCX,
    "ppt/presentation.xml": FileKind.PPTX,
    "xl/workbook.xml": FileKind.XLSX,
    "content.xml": FileKind.OPENDOCUMENT,
}
_SIGNATURES = {
    b"\x7fELF": "a program",
    b"MZ": "a Windows program",
    b"\xca\xfe\xba\xbe": "compiled Java",
    b"\xcf\xfa\xed\xfe": "a macOS program",
    b"\0asm": "WebAssembly",
    b"\x89PNG\r\n\x1a\n": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"II*\0": "a TIFF image",
    b"MM\0*": "a TIFF image",
    b"\0\0\1\0": "an icon",
    b"\x1f\x8b": "compressed by gzip: unpack it first",
    b"BZh": "compressed by bzip2: unpack it first",
    b"\xfd7zXZ\0": "compressed by xz: unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it first",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive: unpack it first",
    b"Rar!\x1a\x07": "a RAR archive: unpack it first",
    b"SQLite format 3\0": "an SQLite database",
    b"PAR1": "a Parquet file",
    b"OggS": "sound or video",
    b"ID3": "sound",
    b"fLaC": "sound",
    b"\x1aE\xdf\xa3": "video",
    b"Salted__": "encrypted by OpenSSL: decrypt it first",
}
_ENCRYPTED_TEXTS = {
    b"-----BEGIN PGP MESSAGE-----": "encrypted by PGP: decrypt it first",
    b"age-encryption.org/": "encrypted by age: decrypt it first",
}
_TAR_MARK = slice(257, 262)
_MEDIA_MARKS = {b"ftyp": "video", b"WEBP": "a WebP image", b"WAVE": "sound", b"AVI ": "video"}
# Kinds that cannot be recognised as text.
_BINARY_KINDS = frozenset(
    {
        FileKind.PDF,
        FileKind.DOCX,
        FileKind.EPUB,
        FileKind.PPTX,
        FileKind.XLSX,
        FileKind.OPENDOCUMENT,
        FileKind.RTF,
    }
)
# Kinds of text that may turn out to be a page of HTML.
_VAGUE_KINDS = frozenset({FileKind.TEXT, FileKind.MARKDOWN, FileKind.RESTRUCTURED, FileKind.ASCIIDOC})
# A file with a larger share of control bytes is binary.
_MAX_CONTROL_SHARE = 0.02
_CONTROLS = bytes(each for each in range(32) if each not in b"\t\n\v\f\r\b\x1b")
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")


def is_packed(data: bytes) -> bool:
    """Whether a file needs one of the larger parsers, whatever its name is."""
    return _is_pdf(data, FileKind.PDF) or data.startswith((*_ZIP, _OLE, _RTF))


def recognise_kind(data: bytes, declared: FileKind) -> FileKind:
    """Returns the kind of a file by its content, or else by its name. Raises Invalid, naming the kind, for a file that
    cannot be read."""
    if _is_pdf(data, declared):
        return FileKind.PDF
    if data.startswith(_ZIP):
        return _recognise_archive(data)
    if data.startswith(_RTF):
        return FileKind.RTF
    if data.startswith(_OLE):
        raise Invalid(_describe_old_office(data))
    if found := _find_signature(data):
        raise Invalid(f"The file is {found}.")
    if declared in _BINARY_KINDS:
        raise Invalid(f"The file is not a valid {declared} file.")
    if _is_binary(data):
        raise Invalid("The file is binary, not text.")
    start = data[:_SNIFFED_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if declared in _VAGUE_KINDS and start.startswith((b"<!doctype html", b"<html")):
        return FileKind.HTML
    return declared


def _is_pdf(data: bytes, declared: FileKind) -> bool:
    """Some PDF files begin with other bytes; a program may have a PDF's mark in its text."""
    start = data[:_SNIFFED_BYTES]
    return b"%PDF-" in start if declared is FileKind.PDF else start.lstrip().startswith(b"%PDF-")


def _recognise_archive(data: bytes) -> FileKind:
    members = set(open_archive(data).namelist())
    for name, kind in _MEMBERS.items():
        if name in members:
            return kind
    raise Invalid("The file is an archive of a kind that cannot be read: unpack it first.")


def _describe_old_office(data: bytes) -> str:
    if _ENCRYPTED_OFFICE in data:
        return "The file is protected by a password: save a copy without one."
    if _OUTLOOK in data:
        return "The file is a message of Outlook: save it as EML."
    return "The file is in an old Office format: save it as DOCX, XLSX or PPTX."


def _find_signature(data: bytes) -> str:
    """Returns what a file is by its first bytes; empty for a text: it may begin with the same letters."""
    start = data[:_SNIFFED_BYTES]
    if not _is_binary(start):
        return next((name for mark, name in _ENCRYPTED_TEXTS.items() if start.startswith(mark)), "")
    if data[_TAR_MARK] == b"ustar":
        return "a tar archive: unpack it first"
    if start.startswith(b"RIFF"):
        return _MEDIA_MARKS.get(data[8:12], "")
    return next((name for mark, name in _SIGNATURES.items() if start.startswith(mark)), _MEDIA_MARKS.get(data[4:8], ""))


def _is_binary(data: bytes) -> bool:
    is_wide = data.startswith(_WIDE_MARKS)
    return not is_wide and len(data.translate(None, _CONTROLS)) < len(data) * (1 - _MAX_CONTROL_SHARE)
