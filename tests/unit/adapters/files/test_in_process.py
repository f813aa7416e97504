"""Small text files that are read without a worker process, for commands that read thousands of them."""

from __future__ import annotations

import time
from io import BytesIO
from pathlib import Path

import pytest

from tests.fixtures.book_files import Typed, pdf
from toolscript.adapters.files.parts import BookLimits
from toolscript.adapters.files.reader import FileBooks
from toolscript.adapters.files.worker import build_answer
from toolscript.domain.errors import Invalid

pytestmark = [pytest.mark.req("D-09", "K-06"), pytest.mark.slow]

NOTE = "# Bees\n\n## Hives\n\nA hive needs shade.\n\n- water\n- flowers\n"


@pytest.fixture
def worker_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    run_worker = FileBooks._run_worker

    async def record(self: FileBooks, file: object, ending: str) -> bytes:
        calls.append(ending)
        return await run_worker(self, file, ending)  # type: ignore[arg-type]

    monkeypatch.setattr(FileBooks, "_run_worker", record)
    return calls


async def test_a_small_text_file_is_the_same_book_with_and_without_a_worker(
    tmp_path: Path, worker_calls: list[str]
) -> None:
    for name, text in {
        "bees.md": NOTE,
        "bees.html": "<h1>Bees</h1><p>Shade.</p>",
        "bees.txt": "Bees\n\nShade.",
    }.items():
        file = tmp_path / name
        file.write_text(text)
        worker_calls.clear()
        without = await FileBooks(max_in_process_bytes=1000).read(file)
        assert worker_calls == []
        assert without == await FileBooks().read(file)
        assert worker_calls == [file.suffix]


async def test_large_and_binary_files_are_read_by_a_worker(tmp_path: Path, worker_calls: list[str]) -> None:
    large, binary = tmp_path / "large.md", tmp_path / "really_a_pdf.txt"
    large.write_text(NOTE * 100)
    binary.write_bytes(pdf([[Typed(72, 700, "Text.")]]))
    reader = FileBooks(max_in_process_bytes=binary.stat().st_size)
    assert (await reader.read(large)).title == "large"
    assert [block.text for block in (await reader.read(binary)).blocks] == ["Text."]
    assert worker_calls == [".md", ".txt"]


async def test_a_small_file_that_may_take_long_is_read_by_a_worker(tmp_path: Path, worker_calls: list[str]) -> None:
    for name, bracket in {"links.md": "[", "tags.html": "<a "}.items():
        file = tmp_path / name
        file.write_text(f"Text. {bracket * 101}")
        assert (await FileBooks(max_in_process_bytes=10_000).read(file)).title == name.partition(".")[0]
    assert worker_calls == [".md", ".html"]


async def test_an_empty_file_is_refused_without_a_worker(tmp_path: Path, worker_calls: list[str]) -> None:
    (tmp_path / "empty.md").write_text(" ")
    with pytest.raises(Invalid):
        await FileBooks(max_in_process_bytes=1000).read(tmp_path / "empty.md")
    assert worker_calls == []


def test_a_row_of_colons_is_read_quickly() -> None:
    """A text of 31 kB, which is read in the process that answers searches, took five seconds."""
    data = b":" * 1_000_000
    began = time.process_time()
    build_answer(BytesIO(data), ".rst", BookLimits())
    assert time.process_time() - began < 20
