"""What `toolscript doctor` finds, and how it is printed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from shutil import get_terminal_size
from typing import Any

import click

from toolscript.surfaces.cli.terminal.text import format_count, printable

FALLBACK_WIDTH = 120


class Level(StrEnum):
    """How bad a finding is. Errors decide about the exit code."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing, and perhaps intended."""
    ERROR = "error"


COLOURS = {Level.OK: "green", Level.NOTE: "yellow", Level.ERROR: "red"}
AREAS = {
    "settings": "Settings",
    "package": "Package",
    "folder": "Data folder",
    "index": "Index engine",
    "model": "Model",
    "gateway": "Gateway",
    "configuration": "Configuration",
    "servers": "Servers",
    "clients": "Clients",
    "network": "Network",
}


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that was looked at: what is wrong, where, and what to do."""

    area: str
    """A key of AREAS."""
    level: Level
    text: str
    action: str | None = None
    """What to do; None if there is nothing to do."""
    subject: str | None = None
    """What it is about: a server, a client's file, a variable."""
    cause: str | None = None
    """A word for programs: of a server that fails, its cause."""


def build_doctor_response(findings: Sequence[DoctorFinding]) -> dict[str, Any]:
    """The findings as JSON. `ok` is false if there is an error among them."""
    levels = [each.level for each in findings]
    counts = {"errors": levels.count(Level.ERROR), "notes": levels.count(Level.NOTE)}
    return {"ok": not counts["errors"], **counts, "findings": [asdict(each) for each in findings]}


def show_findings(findings: Sequence[DoctorFinding]) -> None:
    """Prints the findings in columns; what to do stands below what is wrong. Colour is left out unless in a
    terminal."""
    width = get_terminal_size((FALLBACK_WIDTH, 0)).columns
    title_width = max(map(len, AREAS.values()))
    level_width = max(map(len, Level))
    before = ""
    for area, title in AREAS.items():
        for each in (each for each in findings if each.area == area):
            shown = title if title != before else ""
            before = title
            level = click.style(f"{each.level:{level_width}}", fg=COLOURS[each.level], bold=each.level is Level.ERROR)
            text = f"{each.subject}: {each.text}" if each.subject else each.text
            indent = " " * (title_width + level_width + 4)
            first, *others = _wrap(text, width - len(indent))
            click.echo(f"{shown:{title_width}}  {level}  {first}")
            if each.action:
                lines = _wrap(each.action, width - len(indent) - 3)
                others += [("-> " if n == 0 else "   ") + line for n, line in enumerate(lines)]
            for line in others:
                click.echo(f"{indent}{line}")
    levels = [each.level for each in findings]
    errors, notes = (format_count(levels.count(level), level) for level in (Level.ERROR, Level.NOTE))
    click.echo(f"\n{errors}, {notes}. Nothing was changed.")


def _wrap(text: str, width: int) -> list[str]:
    """The text in lines. Paths and addresses are not cut."""
    lines = textwrap.wrap(printable(text), max(width, 40), break_long_words=False, break_on_hyphens=False)
    return lines or [""]
