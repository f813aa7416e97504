"""Tables, JSON and logs: rows stay with their header, records with their title, entries with what continues them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

import pytest

from toolscript.adapters.files.parts import build_book
from toolscript.adapters.files.worker import parse_file
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BlockKind, Book
from toolscript.retrieval.text.book_chunks import cut

pytestmark = pytest.mark.req("K-06")


def read(text: str, ending: str, encoding: str = "utf-8") -> Book:
    return build_book(parse_file(text.encode(encoding), ending))


def write_csv(rows: Sequence[Sequence[object]], delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_table_is_read_whatever_divides_its_cells(delimiter: str) -> None:
    rows = [["name", "note"], ["bolt", f"long{delimiter} thin"], ["nut", "two\nlines"]]
    [block] = read(write_csv(rows, delimiter), ".csv").blocks
    assert block.kind is BlockKind.TABLE
    note = "long; thin" if delimiter == ";" else f"long{delimiter} thin".replace("\t", "")
    assert block.text == f"name | note\nbolt | {note}\nnut | two lines"


def test_every_block_of_a_long_table_begins_with_the_header() -> None:
    rows: list[Sequence[object]] = [["part", "stock"], *([f"part number {n}", n] for n in range(1_000))]
    blocks = read(write_csv(rows), ".csv").blocks
    assert len(blocks) > 5
    assert {block.text.split("\n")[0] for block in blocks} == {"part | stock"}
    assert [line for block in blocks for line in block.text.split("\n")[1:]] == [
        f"part number {n} | {n}" for n in range(1_000)
    ]


def test_every_chunk_of_a_table_begins_with_the_header() -> None:
    rows: list[Sequence[object]] = [["part", "stock"], *([f"part number {n}", n] for n in range(200))]
    pieces = cut(read(write_csv(rows), ".csv").blocks, size=300, overlap=60, measure=len)
    assert len(pieces) > 10
    assert {piece.text.split("\n")[0] for piece in pieces} == {"part | stock"}
    assert pieces[0].position.line == 2


def test_numbers_in_the_first_row_are_not_taken_for_names_of_columns() -> None:
    assert [block.text for block in read("1;2,5\n3;4,7\n", ".csv").blocks] == ["column 1 | column 2\n1 | 2,5\n3 | 4,7"]


def test_lone_cells_above_a_table_are_captions() -> None:
    blocks = read("Report of bees,\n,\nhive,count\nold,7\n", ".csv").blocks
    assert [(block.kind, block.text) for block in blocks] == [
        (BlockKind.PROSE, "Report of bees"),
        (BlockKind.TABLE, "hive | count\nold | 7"),
    ]
    assert [block.text for block in read("only one line\n", ".csv").blocks] == ["only one line"]
    assert [block.text for block in read("name\nbolt\nnut\n", ".csv").blocks] == ["name\nbolt\nnut"]


def test_a_table_in_utf_16_is_read() -> None:
    assert [block.text for block in read("größe\tname\n1\tä\n", ".tsv", "utf-16").blocks] == ["größe | name\n1 | ä"]


def test_a_record_of_json_lines_is_a_chapter_named_by_its_title() -> None:
    lines = [{"title": "Bees", "tags": ["insects", "honey"]}, {"id": 7, "text": "word " * 100}]
    book = read("\n".join(map(json.dumps, lines)), ".jsonl")
    assert [(block.position.chapter, block.text) for block in book.blocks] == [
        ("Bees", "tags: insects; honey"),
        ("", "id: 7"),
        ("", "text: " + ("word " * 100).strip()),
    ]


def test_a_json_file_is_a_list_of_records_or_one() -> None:
    records = [{"name": "A", "n": 1}, {"name": "B", "n": 2}]
    assert [block.position.chapter for block in read(json.dumps(records), ".json").blocks] == ["A", "B"]
    assert [block.text for block in read('{"a": {"b": [1, true]}}', ".json").blocks] == ["a: b: 1; true"]
    assert [block.text for block in read('["one", "two"]', ".json").blocks] == ["one", "two"]


def test_damaged_json_is_refused_and_a_few_damaged_lines_are_left_out() -> None:
    good = "\n".join('{"a": 1}' for _ in range(20))
    assert len(read(f'{good}\n{{"cut', ".jsonl").blocks) == 20
    for text in ('{"a": 1', '{"a": 1}\n{"cut', "words"):
        with pytest.raises(Invalid, match="not valid JSON"):
            read(text, ".jsonl")
    with pytest.raises(Invalid, match="nested too deeply"):
        read("[" * 100_000, ".json")


def test_an_entry_of_a_log_stays_with_its_stack_trace_and_days_are_chapters() -> None:
    log = (
        "2026-01-01 10:00:01 INFO start\n"
        "2026-01-01 10:00:02 ERROR \x1b[31mfailed\x1b[0m\n"
        "Traceback (most recent call last):\n"
        '  File "a.py", line 1\n'
        "2026-01-02 00:00:00 INFO stop\n"
    )
    assert [(block.position.chapter, block.text) for block in read(log, ".log").blocks] == [
        (
            "2026-01-01",
            "2026-01-01 10:00:01 INFO start\n2026-01-01 10:00:02 ERROR failed\n"
            'Traceback (most recent call last):\n  File "a.py", line 1',
        ),
        ("2026-01-02", "2026-01-02 00:00:00 INFO stop"),
    ]


@pytest.mark.parametrize(
    ("line", "day"),
    [
        ("Nov 17 18:00:01 host sshd[1]: accepted", "Nov 17"),
        ("[2026-11-17T18:00:01Z] started", "2026-11-17"),
        ("INFO 2026/11/17 18:00 started", "2026/11/17"),
        ("started", ""),
    ],
)
def test_days_are_recognised_as_logs_write_them(line: str, day: str) -> None:
    assert [block.position.chapter for block in read(f"{line}\n", ".log").blocks] == [day]


@pytest.mark.slow
def test_a_log_of_a_million_lines_is_cut_into_blocks() -> None:
    blocks = read("2026-11-17 18:00 same line again\n" * 100_000, ".log").blocks
    assert sum(block.text.count("\n") + 1 for block in blocks) == 100_000
    assert max(len(block.text) for block in blocks) < 2_500
