"""Decodes bytes: by byte order mark, by the encoding that markup declares, then UTF-8, then Windows-1252."""

from __future__ import annotations

import codecs
import re

_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_SEARCHED_BYTES = 4096
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_DECLARATION = re.compile(
    rb"""(?:<\?xml\b[^>]*?\bencoding|<meta\b[^>]*?\bcharset)\s*=\s*["']?\s*([a-z0-9_.:-]+)""", re.IGNORECASE
)
# Encodings that a page may declare, by Python's names. As in browsers, some are read as their supersets.
_ENCODINGS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
} | {
    name: name
    for name in (
        *"utf-8 gb18030 big5hkscs cp932 cp949 euc_jp iso2022_jp cp866 cp874 koi8-r koi8-u mac-roman".split(),
        "mac-cyrillic",
        *(f"cp{number}" for number in range(1250, 1259)),
        *(f"iso8859-{number}" for number in (*range(2, 9), 10, 13, 14, 15, 16)),
    )
}


def decode_text(data: bytes, *, markup: bool) -> str:
    """Decodes a file. A declared encoding is looked for in markup only: plain text may merely write about encodings."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    for encoding in dict.fromkeys([*(_find_declared(data) if markup else []), "utf-8"]):
        text = data.decode(encoding, "replace")
        if _fits(text, data):
            return text
    return data.decode("cp1252", "replace")


def _find_declared(data: bytes) -> list[str]:
    """Returns the encoding that an XML declaration or a meta tag declares, if it is a known text encoding."""
    found = _DECLARATION.search(_COMMENT.sub(b"", data[:_SEARCHED_BYTES]))
    try:
        name = codecs.lookup(found[1].decode("ascii")).name if found else ""
    except LookupError:
        return []
    return [_ENCODINGS[name]] if name in _ENCODINGS else []


def _fits(text: str, data: bytes) -> bool:
    """Whether most characters beyond ASCII were decoded: a few damaged bytes are tolerated."""
    broken = text.count("\ufffd") - data.count("\ufffd".encode())
    if broken <= 0:
        return True
    non_ascii = len(text) - len(text.encode("ascii", "ignore"))
    return non_ascii - broken > broken
