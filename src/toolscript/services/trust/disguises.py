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
# Letters that Unicode does not decompose: strokes, small capitals, Cherokee, circles and flags.
_PLAIN = {
    ord(letter): plain
    for letters, plains in (
        ("ıłøđħŧɑɡɩ", "ilodhtagi"),
        ("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz"),
        ("ᎪᏴᏟᎠᎬᏀᎻᎥᎫᏦᏞᎷᎾᏢᎡᏚᎢᏙᎳᏃ", "abcdeghijklmoprstvwz"),
        *(
            ("".join(chr(first + n) for n in range(26)), "abcdefghijklmnopqrstuvwxyz")
            for first in (0x1F130, 0x1F150, 0x1F170, 0x1F1E6)
        ),
    )
    for letter, plain in zip(letters, plains, strict=True)
} | {ord("ß"): "ss", ord("æ"): "ae", ord("œ"): "oe"}

_WORD = re.compile(r"[^\W\d_]{2,}")
_LATIN, _CYRILLIC, _GREEK = re.compile(r"[a-zA-Z]"), re.compile("[Ѐ-ԯ]"), re.compile("[Ͱ-Ͽ]")
_CONTROL = re.compile("\x1b|\x9b|[\x00-\x08\x0b\x0e-\x1f\x7f]")
# Tags, selectors beyond those of emoji, blanks that are letters, and private characters.
_SMUGGLING = re.compile("[\U000e0000-\U000e007f\U000e0100-\U000e01ef\u115f\u1160\u3164\uffa0\u034f\ue000-\uf8ff]")
_FLAG = "\U0001f3f4"
# The other marks of direction stand around names in texts of right-to-left scripts, and around copied paths.
_BIDI = re.compile("[\u202d\u202e]")
# Zero-width spaces, joiners and marks come along when people copy text: one means nothing. Hidden is what they spell:
# bits in a row of them, or letters kept apart by them.
_INVISIBLE = "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202c\u2060-\u206f\ufeff]"
_INVISIBLES = re.compile(_INVISIBLE)
_SPELLING = re.compile(f"{_INVISIBLE}{{8}}|(?:[A-Za-z]{_INVISIBLE}{{1,8}}){{3}}[A-Za-z]")
_SCREEN_LINES, _SCREEN_COLUMNS = 25, 200

SENTENCE_END = re.compile(r"[.!?;:…](?=\s|$)|[。！？؟।]|\n[ \t]*\n")
_TOKEN = re.compile(r"\w+|(?<!\S)\.(?!\S)")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){16,}")
_SPACED_LETTERS = re.compile(r"(?<![^\W_])[^\W_]([ .,*_|/~·•=+-])(?:[^\W_]\1)+[^\W_](?![^\W_])")
_SPACED_PAIRS = re.compile(r"(?<![^\W_])[^\W_][.,*_|/~·•=+-][^\W_](?![^\W_])")
_CODES = re.compile(r"(?:\b(?:0?\d{2}|1[01]\d|12[0-6])[ ,;]{1,2}){12,}\d{2,3}\b")
_BITS = re.compile(r"(?:[01]{8}[ ,]?){10,}")
_HEX_CODES = re.compile(r"(?:\b[0-9a-fA-F]{2}[ :,]){12,}[0-9a-fA-F]{2}\b")
# Without this none of the patterns of encodings has a match.
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{24}|(?:[0-9a-fA-F]{2,3}[ ,;:]{1,2}){8}|(?:[01]{8}[ ,]?){2}")
_BASE32 = re.compile(r"\b[A-Z2-7]{32,}")
# Words that are in any English sentence, backwards and moved by 13 letters.
_BACKWARDS = re.compile(
    r"\b(?:eht|dna|resu|snoitcurtsni|erongi|loot|elif|ton|daer|dnes|siht|uoy|tuohtiw)\b", re.IGNORECASE
)
_ROT13 = re.compile(
    r"\b(?:gur|naq|hfre|lbh|vafgehpgvbaf|vtaber|guvf|svyr|abg|ernq|frnq|jvgu|jvgubhg|gbby|nyy)\b", re.IGNORECASE
)
_ROT13_LETTERS = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "nopqrstuvwxyzabcdefghijklmNOPQRSTUVWXYZABCDEFGHIJKLM"
)
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_LEET_PAIR = re.compile(r"[a-zA-Z][013457@$]|[0134578@$][a-zA-Z]")
_LEET_WORD = re.compile(r"[a-zA-Z0-9@$]+")
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
    """Why the disguise is suspicious if the text is an order of any kind; empty if it is not."""


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
    for match in (_INVISIBLES if is_name else _SPELLING).finditer(text):
        if not is_name or not _is_usual(text, match.start()):
            return Hidden(match.start(), "has invisible characters")
    return _find_imitation(text, is_name=is_name) or _find_offscreen(text)


def _is_usual(text: str, place: int) -> bool:
    """Whether an invisible character in a name is part of the writing, as in emoji and in scripts that need joiners."""
    around = text[max(0, place - 1) : place] + text[place + 1 : place + 2]
    return len(around) == 2 and not around.isascii()  # noqa: PLR2004


def _find_imitation(text: str, *, is_name: bool) -> Hidden | None:
    """A word with letters of two scripts. In texts, Greek letters beside Latin letters are units and symbols."""
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
    end = len(text.rstrip())
    for line in text.splitlines(keepends=True):
        blank_lines = 0 if line.strip() else blank_lines + 1
        start += len(line)
        if blank_lines >= _SCREEN_LINES and start < end:
            return Hidden(start, "hides text behind empty lines")
    return None


def decode(text: str) -> Iterator[Decoded]:
    """The text, and what each disguise in it hides."""
    yield Decoded(text)
    for disguise, undo in _ENCODINGS.items():
        plain = undo(text)
        if plain != text:
            yield Decoded(plain, f", {disguise}")
    if not _ENCODED.search(text):
        return
    for name, pattern, read in _BLOBS:
        for count, match in enumerate(pattern.finditer(text)):
            if count == _MAX_BLOBS:
                break
            hidden = read(match[0])
            if hidden is not None:
                yield Decoded(hidden, f", in {name}", f"hides a text in {name}")


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), text) if "\\" in text else text


def _join_letters(text: str) -> str:
    plain, count = _SPACED_LETTERS.subn(lambda match: match[0][::2], text)
    # Two letters alone are an abbreviation.
    return _SPACED_PAIRS.sub(lambda match: match[0][::2], plain) if count > 1 else plain


def _part_at_invisible(text: str) -> str:
    """Invisible characters in the place of blanks."""
    return text if text.isascii() else _INVISIBLES.sub(" ", text)


def _turn_around(text: str) -> str:
    return text[::-1] if len(_BACKWARDS.findall(text)) > 1 else text


def _turn_words_around(text: str) -> str:
    if len(_BACKWARDS.findall(text)) < 2:  # noqa: PLR2004
        return text
    return _WORD.sub(lambda match: match[0][::-1], text)


def _undo_rot13(text: str) -> str:
    return text.translate(_ROT13_LETTERS) if len(_ROT13.findall(text)) > 1 else text


def _undo_leet(text: str) -> str:
    """With two such words at least: one is a name, such as base64."""
    words = [word for word in _LEET_WORD.findall(text) if _LEET_PAIR.search(word)] if _LEET_PAIR.search(text) else []
    if len(words) < 2:  # noqa: PLR2004
        return text
    return _LEET_WORD.sub(lambda match: match[0].translate(_LEET) if _LEET_PAIR.search(match[0]) else match[0], text)


_ENCODINGS: dict[str, Callable[[str], str]] = {
    "in entities": lambda text: html.unescape(text) if "&" in text else text,
    "in escapes": _unescape,
    "in percent signs": lambda text: unquote(text) if "%" in text else text,
    "with its letters apart": _join_letters,
    "with digits for letters": _undo_leet,
    "with invisible characters": _part_at_invisible,
    "written backwards": _turn_around,
    "with its words written backwards": _turn_words_around,
    "in ROT13": _undo_rot13,
}


def _read_base64(blob: str) -> str | None:
    blob = blob.replace("-", "+").replace("_", "/")
    try:
        return _read_text(base64.b64decode(blob + "=" * (-len(blob) % 4)))
    except (binascii.Error, ValueError):
        return None


def _read_base32(blob: str) -> str | None:
    try:
        return _read_text(base64.b32decode(blob + "=" * (-len(blob) % 8)))
    except (binascii.Error, ValueError):
        return None


def _read_hex(blob: str) -> str | None:
    return _read_text(bytes.fromhex(re.sub(r"[ :,]", "", blob)))


def _read_codes(blob: str) -> str | None:
    return _read_text(bytes(int(number) for number in re.findall(r"\d+", blob) if int(number) < 128))  # noqa: PLR2004


def _read_bits(blob: str) -> str | None:
    bits = re.sub("[ ,]", "", blob)
    return _read_text(bytes(int(bits[place : place + 8], 2) for place in range(0, len(bits) - 7, 8)))


_BLOBS: tuple[tuple[str, re.Pattern[str], Callable[[str], str | None]], ...] = (
    ("base64", _BASE64, _read_base64),
    ("hexadecimal digits", _HEX, _read_hex),
    ("hexadecimal digits", _HEX_CODES, _read_hex),
    ("base32", _BASE32, _read_base32),
    ("codes of letters", _CODES, _read_codes),
    ("bits", _BITS, _read_bits),
)


def _read_text(content: bytes) -> str | None:
    """The text, if it is one of several words."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    is_readable = text.isprintable() or text.replace("\n", " ").isprintable()
    return text if is_readable and (len(text.split()) >= _MIN_WORDS or not text.isascii()) else None


def simplify(text: str) -> str:
    """The text in lower case, without accents and invisible characters, with Latin letters for look-alikes."""
    if not text.isascii():
        text = "".join(map(_simplify_character, unicodedata.normalize("NFKC", text)))
        text = _WORD.sub(lambda match: _fold(match[0]), text)
    return text.lower()


def _simplify_character(character: str) -> str:
    if character < "\x80":
        return character
    if plain := _PLAIN.get(ord(character)):
        return plain
    if unicodedata.category(character) in {"Cf", "Mn"}:
        return ""
    # Elsewhere, what NFD separates is no accent: syllables of Korean, voiced sounds of Japanese.
    has_accents = character < "\u0530" or "\u1e00" <= character < "\u2000"
    return unicodedata.normalize("NFD", character)[0] if has_accents else character


def _fold(word: str) -> str:
    return word.lower().translate(_LOOK_ALIKES) if _LATIN.search(word) and not word.isascii() else word


def split_words(text: str) -> str:
    """The words with one space between them, and ` . ` at the end of a sentence."""
    return " ".join(_TOKEN.findall(SENTENCE_END.sub(" . ", text)))
