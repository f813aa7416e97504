"""Disguises of text: invisible characters, look-alike letters, encodings, letters apart. Finds them, and undoes them so
that rules can read what is behind. All of it takes time in proportion to the length of the text."""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

# The mark of a place that is the key of an object, not its value.
KEY = " (key)"

# Letters of other scripts, and the Latin ones that they look like.
_LOOK_ALIKES = str.maketrans(
    dict(zip("авеёіјкмнорстухѕԁԛԝһь", "abeeijkmhopctyxsdqwhb", strict=True))
    | dict(zip("αβεζηικμνορτυχϲ", "abezhikmvoptuxc", strict=True))
)
_LEET = str.maketrans("0134578@$", "oieastbas")

_WORD = re.compile(r"[^\W\d_]{2,}")
_LATIN, _CYRILLIC, _GREEK = re.compile(r"[a-zA-Z]"), re.compile("[Ѐ-ԯ]"), re.compile("[Ͱ-Ͽ]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff]")
_CONTROL = re.compile("\x1b|\x9b|[\x00-\x08\x0b\x0e-\x1f\x7f]")
# Tags, selectors beyond those of emoji, blanks that are letters, and private characters.
_SMUGGLING = re.compile("[\U000e0000-\U000e007f\U000e0100-\U000e01ef\u115f\u1160\u3164\uffa0\u034f\ue000-\uf8ff]")
_FLAG = "\U0001f3f4"
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_MARKS_OF_DIRECTION = "\u200e\u200f\u061c"
_JOINERS = "\u200c\u200d"
_HARMLESS = "\u00ad\ufeff"  # a soft hyphen, and the mark at the beginning of a file
_SCREEN_LINES, _SCREEN_COLUMNS = 25, 200

_SENTENCE_END = re.compile(r"[.!?;:…](?=\s|$)|[。！？]|\n[ \t]*\n")
_TOKEN = re.compile(r"\w+|(?<!\S)\.(?!\S)")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){16,}")
_SPACED_LETTERS = re.compile(r"(?<!\w)(?:[^\W_][ .*_-]){3,}[^\W_](?!\w)")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_LEET_WORD = re.compile(r"[a-zA-Z0-9@$]*[a-zA-Z][013457@$][a-zA-Z0-9@$]*|[0134578@$][a-zA-Z][a-zA-Z0-9@$]*")
_MAX_BLOBS = 50
_MIN_WORDS = 3


class Hidden(NamedTuple):
    """Where in a text something is hidden, and how."""

    start: int
    reason: str


class Decoded(NamedTuple):
    """A text as it is, or what is behind its disguise."""

    text: str
    disguise: str = ""
    """The end of the reason for what is found in it."""
    reason: str = ""
    """Why the disguise alone is suspicious; empty if it is not."""


def find_hidden(text: str, *, is_name: bool) -> Hidden | None:
    """The first place where characters hide or imitate something."""
    if text.isascii() and not _CONTROL.search(text):
        return _find_offscreen(text)
    if match := _CONTROL.search(text):
        return Hidden(match.start(), "has characters that control a terminal")
    if match := _BIDI.search(text):
        return Hidden(match.start(), "has characters that change the direction of text")
    for match in _SMUGGLING.finditer(text):
        if _FLAG not in text[max(0, match.start() - 8) : match.start()]:
            return Hidden(match.start(), "has invisible characters")
    for place, character in enumerate(text):
        if unicodedata.category(character) == "Cf" and not _is_usual(text, place):
            return Hidden(place, "has invisible characters")
    return _find_imitation(text, is_name=is_name) or _find_offscreen(text)


def _is_usual(text: str, place: int) -> bool:
    """Whether an invisible character is part of the writing: joiners in emoji and in scripts that need them, marks of
    direction in texts of right-to-left scripts."""
    character = text[place]
    if character in _HARMLESS or unicodedata.name(character, "").startswith("ARABIC"):
        return True
    around = text[max(0, place - 1) : place] + text[place + 1 : place + 2]
    if character in _JOINERS:
        return len(around) == 2 and not around.isascii()  # noqa: PLR2004
    if character in _MARKS_OF_DIRECTION:
        return _RIGHT_TO_LEFT.search(text) is not None
    return "\U000e0020" <= character <= "\U000e007f"  # in a flag: others were found before


def _find_imitation(text: str, *, is_name: bool) -> Hidden | None:
    """A word with letters of two scripts. In texts, Greek letters beside Latin ones are units and symbols."""
    for match in _WORD.finditer(text):
        word = match[0]
        is_mixed = _LATIN.search(word) and (_CYRILLIC.search(word) or (is_name and _GREEK.search(word)))
        if is_mixed and len(word) > 3:  # noqa: PLR2004
            return Hidden(match.start(), "mixes letters of two alphabets that look the same")
    return None


def _find_offscreen(text: str) -> Hidden | None:
    """Text behind so many blanks or empty lines that nobody scrolls to it."""
    place = text.find(" " * _SCREEN_COLUMNS)
    if place > 0 and text[place:].strip():
        return Hidden(place, "hides text behind blanks")
    blank_lines = start = 0
    for line in text.splitlines(keepends=True):
        blank_lines = 0 if line.strip() else blank_lines + 1
        start += len(line)
        if blank_lines >= _SCREEN_LINES and text[start:].strip():
            return Hidden(start, "hides text behind empty lines")
    return None


def decode(text: str) -> Iterator[Decoded]:
    """The text, and what each disguise in it hides."""
    yield Decoded(text)
    for disguise, undo in _ENCODINGS.items():
        plain = undo(text)
        if plain != text:
            yield Decoded(plain, f", {disguise}")
    for name, pattern, read in (("base64", _BASE64, _read_base64), ("hexadecimal digits", _HEX, _read_hex)):
        for count, match in enumerate(pattern.finditer(text)):
            if count == _MAX_BLOBS:
                break
            hidden = read(match[0])
            if hidden is not None:
                yield Decoded(hidden, f", in {name}", f"hides a text in {name}")


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), text) if "\\" in text else text


def _join_letters(text: str) -> str:
    return _SPACED_LETTERS.sub(lambda match: match[0][::2], text)


def _undo_leet(text: str) -> str:
    """With two such words at least: one is a name, such as base64."""
    plain, count = _LEET_WORD.subn(lambda match: match[0].translate(_LEET), text)
    return plain if count > 1 else text


_ENCODINGS: dict[str, Callable[[str], str]] = {
    "in entities": lambda text: html.unescape(text) if "&" in text else text,
    "in escapes": _unescape,
    "in percent signs": lambda text: unquote(text) if "%" in text else text,
    "with its letters apart": _join_letters,
    "with digits for letters": _undo_leet,
}


def _read_base64(blob: str) -> str | None:
    blob = blob.replace("-", "+").replace("_", "/")
    try:
        return _read_text(base64.b64decode(blob[: len(blob) // 4 * 4]))
    except (binascii.Error, ValueError):
        return None


def _read_hex(blob: str) -> str | None:
    return _read_text(bytes.fromhex(blob))


def _read_text(content: bytes) -> str | None:
    """The text, if it is one of several words."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    is_readable = text.isprintable() or text.replace("\n", " ").isprintable()
    return text if is_readable and len(text.split()) >= _MIN_WORDS else None


def simplify(text: str) -> str:
    """The text in lower case, without accents and invisible characters, with Latin letters for look-alikes."""
    if not text.isascii():
        text = "".join(map(_simplify_character, unicodedata.normalize("NFKC", text)))
        text = _WORD.sub(lambda match: _fold(match[0]), text)
    return text.lower()


def _simplify_character(character: str) -> str:
    if character < "\x80":
        return character
    if unicodedata.category(character) in {"Cf", "Mn"}:
        return ""
    # Beyond Cyrillic, what NFD takes apart is no accent: syllables of Korean, voiced sounds of Japanese.
    return unicodedata.normalize("NFD", character)[0] if character < "\u0530" else character


def _fold(word: str) -> str:
    return word.lower().translate(_LOOK_ALIKES) if _LATIN.search(word) and not word.isascii() else word


def split_words(text: str) -> str:
    """The words with one space between them, and ` . ` at the end of a sentence."""
    return " ".join(_TOKEN.findall(_SENTENCE_END.sub(" . ", text)))
