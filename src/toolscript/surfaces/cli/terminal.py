"""What others wrote, fit for a terminal: their texts may hold commands to it, or markup of ours."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text without control characters; a line end becomes a space."""
    return "".join(c if c.isprintable() or c == "\u00a0" else " " if c in "\n\r\t" else "\ufffd" for c in text)


def marked(text: str) -> str:
    """The same, with nothing in it that rich would take for markup."""
    from rich.markup import escape

    return escape(printable(text))
