"""Which files below a folder are found, and why others are left out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from toolscript.domain.files.jobs import JobTarget
from toolscript.services.ingest.finder import NOT_UTF8, FileFinder
from toolscript.services.ingest.jobs import IngestRequest, find_files

pytestmark = pytest.mark.req("F-01", "F-02")


def write(root: Path, *names: str, text: str = "x") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def find(root: Path, **given: object) -> tuple[list[str], dict[str, int]]:
    finder = FileFinder((".md", ".txt"), **given)  # type: ignore[arg-type]
    return sorted(finder.find_files([str(root)]).values()), dict(finder.skipped)


def test_excludes_are_patterns_as_in_a_gitignore_file(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "drafts/b.md", "deep/drafts/c.md", "deep/build/d.md", "keep/build.md")
    assert find(tmp_path, exclude=["/drafts/", "build/"]) == (
        ["a.md", "deep/drafts/c.md", "keep/build.md"],
        {"excluded": 2},
    )
    assert find(tmp_path, exclude=["deep/**/d.md", "*.txt"])[0] == [
        "a.md",
        "deep/drafts/c.md",
        "drafts/b.md",
        "keep/build.md",
    ]
    assert find(tmp_path, exclude=["*.md", "!a.md"])[0] == ["a.md"]


def test_ignore_files_count_below_their_folder_and_the_last_rule_wins(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "logs/b.md", "deep/c.md", "deep/logs/d.md", "deep/kept/e.txt", "f.txt")
    (tmp_path / ".gitignore").write_text("# comment\nlogs/\n*.txt\n")
    (tmp_path / "deep" / ".toolscriptignore").write_text("!kept/*.txt\nc.md\n")
    assert find(tmp_path) == (
        ["a.md", "deep/kept/e.txt"],
        {"excluded by .gitignore": 3, "excluded by .toolscriptignore": 1, "hidden": 2},
    )
    assert find(tmp_path, obeys_ignore_files=False)[0] == [
        "a.md",
        "deep/c.md",
        "deep/kept/e.txt",
        "deep/logs/d.md",
        "f.txt",
        "logs/b.md",
    ]


def test_large_files_and_unknown_kinds_are_left_out_by_reason(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.png", "c.PNG", "nothing", "README")
    write(tmp_path, "large.md", text="x" * 2_000_000)
    assert find(tmp_path, max_bytes=1_000_000) == (
        ["README", "a.md"],
        {"larger than 1 MB": 1, "no reader for .png files": 2, "no reader for files without an ending": 1},
    )


def test_a_folder_loop_is_entered_once(tmp_path: Path) -> None:
    write(tmp_path, "deep/a.md")
    (tmp_path / "deep" / "loop").symlink_to(tmp_path)
    assert find(tmp_path)[0] == ["deep/a.md"]


def test_an_ignore_file_that_cannot_be_understood_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    (tmp_path / ".gitignore").write_text("a[\n!\n")
    finder = FileFinder((".md",))
    assert list(finder.find_files([str(tmp_path)]).values()) == ["a.md"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_not_utf8_fails_alone(tmp_path: Path) -> None:
    """It ended the ingest of its whole folder with an internal error."""
    write(tmp_path, "a.md", os.fsdecode(b"bad\xff.md"), os.fsdecode(b"folder\xff/b.md"), os.fsdecode(b"c.\xff"))
    found = find_files(IngestRequest(JobTarget.DOCUMENTS, "acme"), [str(tmp_path)])
    assert {Path(file.path).name: file.outcome.problem for file in found.files} == {
        "a.md": "",
        "bad?.md": NOT_UTF8,
        "folder?": NOT_UTF8,
        "c.?": NOT_UTF8,
    }
    named = find_files(IngestRequest(JobTarget.DOCUMENTS, "acme"), [str(tmp_path / os.fsdecode(b"bad\xff.md"))])
    assert [file.outcome.problem for file in named.files] == [NOT_UTF8]
    for each in (*found.files, *named.files):
        each.path.encode()
