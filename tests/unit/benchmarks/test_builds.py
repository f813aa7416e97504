"""The page of benchmarks says how old its figures are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.builds import CODE, DATED, ROOT, mark_builds

PAGE = ROOT / "docs" / "benchmarks.md"


def _commit(folder: Path, file: str, text: str) -> str:
    """Commits a file; returns the short name of the commit."""
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@example.com"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--no-gpg-sign", "--no-verify", "-m", file], check=True)
    done = subprocess.run([*git, "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_a_section_is_marked_once_the_code_that_it_measures_has_changed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    measured = _commit(tmp_path, "src/toolscript/retrieval/fusion.py", "1")
    page = f"### Fusion\n\n*2026-11-15, commit {measured}: 2 cores.*\n\n| table |\n"
    assert mark_builds(page, tmp_path) == page
    _commit(tmp_path, "README.md", "other code")
    unchanged = mark_builds(page, tmp_path)
    assert unchanged == page.replace(": 2 cores", ", 1 commit ago: 2 cores")
    _commit(tmp_path, "src/toolscript/retrieval/fusion.py", "2")
    older = mark_builds(unchanged, tmp_path)
    mark = "**Of an older build:** one of these commits has changed the code that is measured here.\n\n"
    assert older == page.replace(": 2 cores", ", 2 commits ago: 2 cores").replace("| table", f"{mark}| table")
    assert mark_builds(older, tmp_path) == older
    again = _commit(tmp_path, "README.md", "measured again")
    assert mark_builds(older.replace(measured, again), tmp_path) == page.replace(measured, again)


@pytest.mark.slow
def test_sections_of_unknown_commits_stay_as_they_are(tmp_path: Path) -> None:
    page = "### Fusion\n\n*2026-11-15, commit 12345678, 3 commits ago: 2 cores.*\n\n**Of an older build:** 2.\n"
    assert mark_builds(page, tmp_path) == page


def test_every_section_of_the_page_names_the_commit_that_it_measured() -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n### ")[1:]
    assert [section.partition("\n")[0] for section in sections if not DATED.search(section)] == []


def test_the_code_of_every_section_exists() -> None:
    paths = {path for paths in CODE.values() for path in paths}
    assert [path for path in sorted(paths) if not (ROOT / "src" / "toolscript" / path).exists()] == []
