"""Text for the terminal. Texts of servers and documents may contain control characters or rich's markup: they are made
harmless before they are printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from toolscript.surfaces.cli.terminal.options import is_json

NOTHING_RELEVANT = "nothing relevant found: these are the nearest, most likely about something else"


def printable(text: str) -> str:
    """The text without control characters; a line end becomes a space."""
    return "".join(c if c.isprintable() or c == "\u00a0" else " " if c in "\n\r\t" else "\ufffd" for c in text)


def print_text(text: str, *, nl: bool = True) -> None:
    """Prints lines: exactly in a file or pipe (with a line end unless not `nl`), without control characters in a
    terminal."""
    if sys.stdout.isatty():
        click.echo("\n".join(map(printable, text.splitlines())))
    else:
        click.echo(text, nl=nl)


def format_json(value: Any, *, indent: int | None = None, err: bool = False) -> str:
    """JSON for standard output or standard error. In a terminal, characters that could control it are escaped
    (`\\u001b`); the JSON is the same."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if not (sys.stderr if err else sys.stdout).isatty():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def escape_markup(text: str) -> str:
    """Printable text without markup for rich."""
    from rich.markup import escape

    return escape(printable(text))


def print_note(text: str, label: str = "note:") -> None:
    """Prints one line to standard error, after a yellow label."""
    click.echo(click.style(label, fg="yellow") + " " + printable(text.encode(errors="replace").decode()), err=True)


def print_failed(place: str, problem: str) -> None:
    """Prints what could not be read, and why, to standard error."""
    print_note(f"{place}: {problem}", label="failed")


def print_answer(answer: Any, show: Callable[[Any], None]) -> None:
    """Prints an answer as one JSON object with the flag --json, otherwise with `show`."""
    if is_json():
        click.echo(format_json(answer))
    else:
        show(answer)


def format_count(number: int, noun: str, plural: str = "") -> str:
    """`1 tool`, `2 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def format_size(size: int) -> str:
    """`850 B`, `12 kB`, `3.4 MB`."""
    if size < 1000:  # noqa: PLR2004
        return f"{size} B"
    return f"{size / 1000:.0f} kB" if size < 10**6 else f"{size / 10**6:.1f} MB"


def format_skipped(skipped: Mapping[str, int]) -> str:
    """`14 (no reader for .png files), 3 (hidden)`."""
    return ", ".join(f"{number} ({reason})" for reason, number in sorted(skipped.items(), key=lambda each: -each[1]))


def confirm_or_raise(
    question: str, refusal: str = "nothing was removed: use --yes to remove without confirmation"
) -> None:
    """Asks in the terminal. Raises Invalid with the refusal when the answer is no, or none."""
    from toolscript.domain.errors import Invalid

    try:
        is_sure = click.confirm(question, err=True)
    except click.Abort:
        is_sure = False
        click.echo(err=True)
    if not is_sure:
        raise Invalid(refusal)
