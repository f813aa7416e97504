"""Text for the terminal. Texts of servers and documents may contain control characters or rich's markup: they are made
harmless before they are printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from toolscript.surfaces.cli.terminal.options import is_json


def printable(text: str) -> str:
    """The text without control characters; a line end becomes a space."""
    return "".join(c if c.isprintable() or c == "\u00a0" else " " if c in "\n\r\t" else "\ufffd" for c in text)


def escape_markup(text: str) -> str:
    """Printable text in which rich finds no markup."""
    from rich.markup import escape

    return escape(printable(text))


def print_note(text: str, label: str = "note:") -> None:
    """Prints one line to standard error, after a yellow label."""
    click.echo(click.style(label, fg="yellow") + " " + printable(text.encode(errors="replace").decode()), err=True)


def print_skipped(place: str, problem: str) -> None:
    """Prints what could not be read, and why, to standard error."""
    print_note(f"{place}: {problem}", label="skipped")


def print_answer(answer: Any, show: Callable[[Any], None]) -> None:
    """Prints an answer as one JSON object with the flag --json, otherwise with `show`."""
    if is_json():
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        show(answer)


def format_count(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def confirm_or_raise(question: str) -> None:
    """Asks in the terminal. Raises Invalid when the answer is no, or none."""
    from toolscript.domain.errors import Invalid

    try:
        is_sure = click.confirm(question, err=True)
    except click.Abort:
        is_sure = False
        click.echo(err=True)
    if not is_sure:
        raise Invalid("nothing was removed: use --yes to remove without confirmation")
