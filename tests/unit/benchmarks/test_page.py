"""The page of benchmarks keeps what a run has not measured."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from benchmarks import page
from benchmarks.timing import Table

pytestmark = pytest.mark.slow  # git says which commit is measured

TABLE = Table("Speed", ("What", "p50"), [("search", "1 ms")])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    file = tmp_path / "benchmarks.md"
    sections = {title: page.build_section([TABLE], quick=False) for title in ("Index", "Search")}
    page.write(file, sections, ["Index", "Search"])
    return file


def test_a_run_replaces_the_figures_of_its_own_processor_only(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    for time in ("2 ms", "3 ms"):
        table = Table("Speed", ("What", "p50"), [("search", time)])
        page.write(file, {"Search": page.build_section([table], quick=False)}, ["Index", "Search"])
    index, search = file.read_text().split("### ")[1:]
    assert (index.count("1 ms"), "x86_64" in index) == (1, False)
    assert (search.count("1 ms"), search.count("2 ms"), search.count("3 ms")) == (1, 0, 1)
    assert search.index("on aarch64") < search.index("1 ms") < search.index("on x86_64") < search.index("3 ms")


def test_figures_name_the_commit_they_were_measured_at(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_read_commit", lambda: "1234abcd-dirty")
    page.write(file, {"Search": page.build_section([TABLE], quick=False)}, ["Index", "Search"])
    assert file.read_text().count(", commit 1234abcd-dirty: ") == 1
    monkeypatch.setattr(page, "_read_commit", lambda: "")
    page.write(file, {"Search": page.build_section([TABLE], quick=False)}, ["Index", "Search"])
    assert "1234abcd" not in file.read_text()


def test_text_around_the_generated_part_stays(file: Path) -> None:
    file.write_text("By hand.\n" + file.read_text() + "And more.\n")
    page.write(file, {}, ["Index", "Search"])
    text = file.read_text()
    assert text.startswith("By hand.\n")
    assert text.endswith("And more.\n")
    assert text.count("1 ms") == 2


def test_a_page_without_the_markers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("nothing here")
    with pytest.raises(SystemExit, match="has no region"):
        page.write(tmp_path / "page.md", {}, [])
