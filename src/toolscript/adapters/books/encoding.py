"""From bytes to text: in the encoding that a file begins with or names, or the one that nearly all of it fits."""

from __future__ import annotations

import codecs
import re

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_TOP = 4096
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_NAMED = re.compile(
    rb"""(?:<\?xml\b[^>]*?\bencoding|<meta\b[^>]*?\bcharset)\s*=\s*["']?\s*([a-z0-9_.:-]+)""", re.IGNORECASE
)
# What a page may name, by Python's names. Some are read as their larger relations: that is what pages mean by them.
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
        *(
            "utf-8",
            "gb18030",
            "big5hkscs",
            "cp932",
            "cp949",
            "euc_jp",
            "iso2022_jp",
            "cp866",
            "cp874",
            "koi8-r",
            "koi8-u",
        ),
        *(f"cp{number}" for number in range(1250, 1259)),
        *(f"iso8859-{number}" for number in (*range(2, 9), 10, 13, 14, 15, 16)),
        *("mac-roman", "mac-cyrillic"),
    )
}


def decoded(data: bytes, *, markup: bool) -> str:
    """The text of a file. Only markup names its encoding: what other texts say of encodings is what they are about."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    for encoding in dict.fromkeys([*(_named(data) if markup else []), "utf-8"]):
        text = data.decode(encoding, "replace")
        if _fits(text, data):
            return text
    return data.decode("cp1252", "replace")


def _named(data: bytes) -> list[str]:
    """The encoding that a page names in its declaration or in a tag near its top, when it is one of texts."""
    found = _NAMED.search(_COMMENT.sub(b"", data[:_TOP]))
    try:
        name = codecs.lookup(found[1].decode("ascii")).name if found else ""
    except LookupError:
        return []
    return [_ENCODINGS[name]] if name in _ENCODINGS else []


def _fits(text: str, data: bytes) -> bool:
    """Whether more of the letters beyond ASCII could be read than could not: a byte or two may be broken."""
    broken = text.count("\ufffd") - data.count("\ufffd".encode())
    if broken <= 0:
        return True
    beyond = len(text) - len(text.encode("ascii", "ignore"))
    return beyond - broken > broken
