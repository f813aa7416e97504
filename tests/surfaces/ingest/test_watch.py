"""`toolscript watch` in a terminal: new, changed, moved and deleted files, with and without a gateway."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.command_line import run_json
from tests.fixtures.terminal import open_terminal

pytestmark = [
    pytest.mark.req("F-01"),
    pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals on Windows"),
]


def list_ids() -> list[str]:
    return [each["id"] for each in run_json("documents", "list")["documents"]]


def test_a_watched_folder_stays_in_step_beside_a_gateway(small_folder: Path, start_gateway: Callable[[], None]) -> None:
    start_gateway()
    notes = Path.cwd() / "notes"
    (notes / "deep").mkdir(parents=True)
    (notes / "a.md").write_text("# A\n\nThe first note.\n")
    with open_terminal("watch", "notes") as shown:
        shown.wait_for("waiting for changes")
        assert list_ids() == ["a.md"]
        (notes / "deep" / "b.md").write_text("# B\n\nThe second note.\n")
        shown.wait_for("1 added")
        (notes / "a.md").write_text("# A\n\nThe first note, changed.\n")
        shown.wait_for("1 changed")
        (notes / "picture.png").write_bytes(b"\x89PNG")
        (notes / "deep" / "b.md").unlink()
        shown.wait_for("1 removed")
        assert list_ids() == ["a.md"]
        moved = Path.cwd() / "moved"
        moved.mkdir()
        (moved / "c.md").write_text("# C\n\nThe third note.\n")
        moved.rename(notes / "moved")
        shown.wait_for("1 unchanged")
        assert list_ids() == ["a.md", "moved/c.md"]
        shown.process.send_signal(signal.SIGINT)
        assert shown.wait_for_end() == 130
    assert "Traceback" not in shown.shown
    assert "failed" not in shown.shown


def test_only_folders_can_be_watched(small_folder: Path) -> None:
    for wrong in ("nowhere", ""):
        with open_terminal("watch", wrong) as shown:
            assert shown.wait_for_end() == 2
        assert f"not a folder: {wrong!r}" in shown.shown


@pytest.mark.extended
def test_a_watched_folder_of_knowledge_stays_in_step_without_a_gateway(small_folder: Path) -> None:
    books = Path.cwd() / "books"
    books.mkdir()
    (books / "bees.md").write_text("# Bees\n\n## Hives\n\nA hive needs shade.\n")
    with open_terminal("watch", "books", "--as", "knowledge", "--poll") as shown:
        shown.wait_for("waiting for changes")
        (books / "tides.md").write_text("# Tides\n\n## Moons\n\nSpring tides come with the new moon.\n")
        shown.wait_for("1 added")
        (books / "bees.md").unlink()
        shown.wait_for("1 removed")
        shown.process.send_signal(signal.SIGINT)
        assert shown.wait_for_end() == 130
    assert [each["title"] for each in run_json("knowledge", "list")["sources"]] == ["Tides"]
