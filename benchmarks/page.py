"""Writes the measured tables into docs/benchmarks.md and keeps the text around them."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.builds import mark_builds
from benchmarks.timing import Table

OPENING, CLOSING = "<!-- generated: speed -->", "<!-- end: speed -->"
ENGINES = ("numpy", "onnxruntime", "qdrant-edge-py")
NEW_PAGE = f"""# Benchmarks

How fast Toolscript is, and how good. The speed part is written by a command; everything outside its markers is
written by hand and kept.

{OPENING}
{CLOSING}
"""
HOW_TO_READ = """## Speed

Read the last column. Machines differ and this one is shared, so a time means little by itself: every row was
measured beside a reference in the same run, the two taking turns, and *time ÷ reference* says how many times as
long ours takes. Under 1 is faster than the reference. *Per second* is the inverse of the p50, unless a note says
otherwise.

```
make bench
```

does what `python -m benchmarks` does in the project's environment: it measures everything and writes this part of
the page. `--only index,fusion` measures some sections and leaves the others as they are, as well as figures of
another processor; `--quick` uses small sizes and prints the tables instead. Each section names the commit that was
measured; the oldest ones, which did not note it, name the one that published their figures. It also writes how many
commits ago that was, and marks sections whose code has changed since; `make docs` renews these marks."""


def build_section(tables: Sequence[Table], *, quick: bool) -> str:
    """The figures of this machine: date and versions, then the tables."""
    return "\n\n".join([_describe_machine(quick), *(table.markdown() for table in tables)])


def write(file: Path, sections: Mapping[str, str], order: Sequence[str]) -> None:
    """Replaces the figures of this processor in these sections, by title, in the generated part of the page; keeps
    those of other processors and sections. Creates the page if needed."""
    page = file.read_text(encoding="utf-8") if file.exists() else NEW_PAGE
    before, opening, rest = page.partition(OPENING)
    old, closing, after = rest.partition(CLOSING)
    if not opening or not closing:
        raise SystemExit(f"{file} has no region between {OPENING} and {CLOSING}: add the two lines where tables belong")
    figures = _read_figures(old)
    for title, text in sections.items():
        figures.setdefault(title, {})[platform.machine()] = text
    parts = [f"### {title}\n\n" + "\n\n".join(figures[title].values()) for title in order if title in figures]
    file.parent.mkdir(parents=True, exist_ok=True)
    text = f"{before}{OPENING}\n" + "\n\n".join([HOW_TO_READ, *parts]) + f"\n{CLOSING}{after}"
    file.write_text(mark_builds(text), encoding="utf-8")


def _read_figures(generated: str) -> dict[str, dict[str, str]]:
    """The text of every section by title and processor."""
    sections = [part.partition("\n") for part in re.split(r"^### ", generated, flags=re.MULTILINE)[1:]]
    return {title: {match[2]: match[1].strip() for match in _FIGURES.finditer(text)} for title, _, text in sections}


# From the line with date and machine to the next such line.
_FIGURES = re.compile(r"^(\*\d{4}-\d\d-\d\d.*? on (\w+),.*?)(?=^\*\d{4}-|\Z)", re.MULTILINE | re.DOTALL)


def _describe_machine(quick: bool) -> str:
    engines = ", ".join(f"{name} {version(name)}" for name in ENGINES)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = f"{os.cpu_count()} cores, {platform.system()} on {platform.machine()}"
    day = datetime.now(UTC).date().isoformat()
    commit = f", commit {found}" if (found := _read_commit()) else ""
    return f"*{day}{', quick run' if quick else ''}{commit}: {machine}, {python}, {engines}.*"


def _read_commit() -> str:
    """The short name of the commit that is measured, with `-dirty` where files differ from it; empty without git."""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=8", "--dirty"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
