"""Documentation that cannot lie: generated pages are current, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from docs.generate import PAGES, REFERENCE, ROOT
from toolscript.surfaces.cli.main import run


def _forget_help(command: click.Command) -> None:
    """Undoes what an earlier test may have left: a command keeps the help option of its first context."""
    command._help_option = None
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _forget_help(each)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    _forget_help(run)
    assert (REFERENCE / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    links = ((p, t) for p in pages for t in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", p.read_text(encoding="utf-8")))
    broken = [f"{p.relative_to(ROOT)}: {t}" for p, t in links if "://" not in t and not (p.parent / t).exists()]
    assert broken == []


def test_every_decision_that_code_cites_exists() -> None:
    cited = set()
    for file in (ROOT / "src").rglob("*.py"):
        cited.update(re.findall(r"docs/decisions/(\d{4})", file.read_text(encoding="utf-8")))
    written = {p.name[:4] for p in Path(ROOT / "docs" / "decisions").glob("*.md")}
    assert cited - written == set()
