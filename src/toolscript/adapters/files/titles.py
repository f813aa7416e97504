"""Tells titles and authors from what programs, file systems and archives write in their place. Citations name them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAX_TITLE_CHARACTERS = 300
# Signs around a title in Markdown and other plain texts.
_MARKS = re.compile(r"\A[#=*_`\s]+|[#=*_`\s]+\Z")
_NO_TITLE = re.compile(
    r"""
    \w+://|\Awww\.                                      # an address
    |\A(?:[~.]{0,2}/\S*\Z|[a-z]:\\)                     # a path
    |\.(?:docx?|xlsx?|pptx?|odt|rtf|tex|dvi|indd|qxd|fm|e?ps|ai|pdf|html?|txt|md)\Z
    |\Aarxiv:\d|\A(?:doi:\s*)?10\.\d{4,}/               # the stamp of an archive, an identifier
    |\A[:-]                                             # an option of a command, a field of reStructuredText
    |[:;,]\Z                                            # the beginning of something
    |\A\W?untitled\b|\Amicrosoft\ (?:word|powerpoint|excel)\b
    |\A(?:document|presentation)\s?\d*\Z|\A(?:book|sheet|slide)\s?\d+\Z
    |\A(?:word\ document|powerpoint[ -]\w+|new\ document|no\ title)\Z
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NO_AUTHORS = frozenset(
    (
        "admin; administrator; anonymous; apache poi; author; default user; docx4j; libreoffice; microsoft; "
        "microsoft office user; openoffice.org; openpyxl; owner; pandoc; python-docx; python-pptx; root; unknown; "
        "user; windows user; xlsxwriter"
    ).split("; ")
)


def clean_title(text: str) -> str:
    """Returns a title on one line; empty for a text that is no title of anything: an address, a file name, the stamp of
    an archive, what a program writes where nobody gave one.

    >>> clean_title("# GnuTLS"), clean_title("arXiv:2210.03629v2 [cs.CL] 27 Nov 2022"), clean_title("Node.js")
    ('GnuTLS', '', 'Node.js')
    """
    title = _MARKS.sub("", " ".join(text.split()))
    is_title = any(map(str.isalnum, title)) and len(title) <= _MAX_TITLE_CHARACTERS and not _NO_TITLE.search(title)
    return title if is_title else ""


def clean_authors(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names except the names of programs, and of accounts that every machine has.

    >>> clean_authors(["openpyxl", "Ada Hive"])
    ('Ada Hive',)
    """
    return tuple(name for name in names if name.strip("()[] ").casefold() not in _NO_AUTHORS)
