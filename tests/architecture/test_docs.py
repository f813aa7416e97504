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


def test_the_index_of_decisions_has_every_decision_with_its_title_and_status() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[\d+\]\((\S+)\) \| (.*?) \| \S.* \|$", index, re.MULTILINE))
    titles = {page.name: page.read_text(encoding="utf-8").split("\n", 1)[0] for page in folder.glob("0*.md")}
    assert {name: f"# {int(name[:4])}. {title}" for name, title in rows.items()} == titles


def test_the_page_of_the_architecture_shows_every_room() -> None:
    page = (ROOT / "docs" / "guide" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "toolscript"
    rooms = {file.parent.relative_to(source) for file in source.rglob("*.py")} - {Path()}
    tree = (str(room) for room in sorted(rooms) if room.name not in {"adapters", "services", "surfaces"})
    missing = [room for room in tree if f"`{room}/`" not in page and f"`{Path(room).name}/`" not in page]
    assert missing == []


def test_the_index_of_the_documentation_has_every_page() -> None:
    folder = ROOT / "docs"
    linked = set(re.findall(r"\]\(([^)#]+)", (folder / "README.md").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(folder)) for page in [*folder.glob("guide/*.md"), *folder.glob("reference/*.md")]}
    assert pages - linked == set()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_decision_that_code_cites_exists() -> None:
    cited = set()
    for file in (ROOT / "src").rglob("*.py"):
        cited.update(re.findall(r"docs/decisions/(\d{4})", file.read_text(encoding="utf-8")))
    written = {p.name[:4] for p in Path(ROOT / "docs" / "decisions").glob("*.md")}
    assert cited - written == set()
