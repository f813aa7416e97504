"""Reads the dates of files, written in many ways."""

from __future__ import annotations

import re
from datetime import date
from email.utils import parsedate_tz

_ISO = re.compile(r"\s*(?:D:)?(\d{4})(?:[-/.]?(\d\d)(?:[-/.]?(\d\d))?)?(?!\d{1,3}(?:\D|\Z))")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WRITTEN = re.compile(
    r"(?:(\d{1,2})(?:st|nd|rd|th)?\.?\s+)?([A-Z][a-z]{2})[a-z]*\.?\s+(?:(\d{1,2})(?:st|nd|rd|th)?,?\s+)?(\d{4})\b"
)
_MAX_CHARACTERS = 100


def find_date(text: str) -> str:
    """Returns a date as 2024-05-31, 2024-05 or 2024; empty if there is none that is possible.

    >>> find_date("D:20240531120000+02'00'"), find_date("2024-05"), find_date("31 May 2024"), find_date("soon")
    ('2024-05-31', '2024-05', '2024-05-31', '')
    """
    text = text[:_MAX_CHARACTERS].strip()
    if found := _ISO.match(text):
        return _format_date(found[1], found[2], found[3])
    if parsed := parsedate_tz(text):
        return _format_date(*map(str, parsed[:3]))
    if (found := _WRITTEN.search(text)) and found[2].lower() in _MONTHS:
        return _format_date(found[4], str(_MONTHS.index(found[2].lower()) + 1), found[1] or found[3])
    return ""


def _format_date(year: str, month: str | None, day: str | None) -> str:
    try:
        checked = date(int(year), int(month or 1), int(day or 1))
    except ValueError:
        return ""
    length = len("2024-05-31") if day else len("2024-05") if month else len("2024")
    return checked.isoformat()[:length]
