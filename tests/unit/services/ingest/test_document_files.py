"""Files of strangers as documents: read in bounded time and memory, beside the event loop."""

from __future__ import annotations

import json
import os
import threading
import tracemalloc
from pathlib import Path

import pytest

from toolscript.adapters.files.reader import FileBooks
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.services.ingest import document_files
from toolscript.services.ingest.document_files import MAX_PROBLEMS, DocumentFileReader

pytestmark = [pytest.mark.req("F-01", "F-02")]


async def read(path: Path) -> tuple[list[Document], DocumentFileReader]:
    reader = DocumentFileReader(FileBooks(max_in_process_bytes=32_000), {})
    return [document async for document in reader.read(path, path.name, str(path))], reader


async def refusal(path: Path) -> str:
    with pytest.raises(Invalid) as caught:
        await read(path)
    return caught.value.message


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".md", ".unknown", ""])
async def test_a_pipe_and_a_device_are_refused_at_once(tmp_path: Path, ending: str) -> None:
    """Opening a pipe waited for its writer, in the event loop for unknown endings; a device has no end."""
    pipe, device = tmp_path / f"pipe{ending}", tmp_path / f"device{ending}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    for path in (pipe, device):
        assert "not a regular file" in (await refusal(path)).lower()


async def test_a_file_that_became_a_folder_or_a_loop_or_vanished_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    (tmp_path / "b.json").symlink_to(tmp_path / "b.json")
    for name in ("a.json", "b.json", "c.json"):
        assert (await refusal(tmp_path / name)).strip()


async def test_a_line_larger_than_a_document_is_left_out_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_files, "MAX_FILE_BYTES", 1_000)
    lines = [{"id": "a", "text": "one"}, {"id": "b", "text": "x" * 5_000}, {"id": "c", "text": "three"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    documents, reader = await read(tmp_path / "a.jsonl")
    assert [document.id for document in documents] == ["a", "c"]
    assert reader.problems == ["line 2: larger than 0.001 MB"]


async def test_files_of_json_lines_are_bounded_in_bytes_and_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = tmp_path / "endless.jsonl"
    endless.write_text('{"id": "a", "text": "one"}\n')
    with endless.open("ab") as file:
        file.truncate(10**12)
    assert await refusal(endless) == "larger than 2,000 MB: split it"
    monkeypatch.setattr(document_files, "MAX_FILE_DOCUMENTS", 2)
    (tmp_path / "many.jsonl").write_text('{"id": "a", "text": "one"}\n' * 3)
    assert await refusal(tmp_path / "many.jsonl") == "holds more than 2 documents: split it"


async def test_the_problems_of_a_million_bad_lines_are_counted_and_not_kept(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "one"}\n' + "{\n" * 3_000)
    documents, reader = await read(tmp_path / "a.jsonl")
    assert len(documents) == 1
    assert (len(reader.problems), reader.problem_count) == (MAX_PROBLEMS, 3_000)


@pytest.mark.slow
async def test_json_of_many_small_values_does_not_fill_the_memory(tmp_path: Path) -> None:
    """Forty megabytes of empty objects took a gigabyte in the process that answers searches."""
    (tmp_path / "a.json").write_text('[{"text": "one"}' + ",{}" * 3_000_000 + "]")
    tracemalloc.start()
    try:
        assert await refusal(tmp_path / "a.json") == "holds more than 2,000,000 values: split it"
        assert tracemalloc.get_traced_memory()[1] < 60 * 10**6
    finally:
        tracemalloc.stop()


async def test_a_file_is_never_read_in_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    parse, decode = document_files._parse_json, document_files._decode

    def parse_noting(text: str) -> object:
        threads.append(threading.current_thread())
        return parse(text)

    def decode_noting(content: bytes) -> str:
        threads.append(threading.current_thread())
        return decode(content)

    monkeypatch.setattr(document_files, "_parse_json", parse_noting)
    monkeypatch.setattr(document_files, "_decode", decode_noting)
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "one"}\n')
    (tmp_path / "a.json").write_text('{"id": "a", "text": "one"}\n')
    (tmp_path / "a.unknown").write_text("one")
    for name in ("a.jsonl", "a.json", "a.unknown"):
        documents, _ = await read(tmp_path / name)
        assert documents[0].text == "one"
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(("seconds", "day"), [(4_291_747_200, "2106-01-01"), (-2_145_916_800, "1902-01-01")])
async def test_a_file_of_another_century_is_read(tmp_path: Path, seconds: int, day: str) -> None:
    (tmp_path / "a.unknown").write_text("one")
    os.utime(tmp_path / "a.unknown", (seconds, seconds))
    documents, _ = await read(tmp_path / "a.unknown")
    assert str(documents[0].metadata["modified"]).startswith(day)


async def test_a_file_of_a_year_that_no_calendar_has_is_read(tmp_path: Path) -> None:
    """Some file systems, such as tmpfs, keep such a time; it ended with `year 34843 is out of range`."""
    (tmp_path / "a.unknown").write_text("one")
    os.utime(tmp_path / "a.unknown", (2**40, 2**40))
    documents, _ = await read(tmp_path / "a.unknown")
    assert documents[0].text == "one"
