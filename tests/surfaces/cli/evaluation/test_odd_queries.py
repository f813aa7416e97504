"""`toolscript eval` with queries that no search accepts, or that hardly any user would write: they end no run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("X-03")

ODD = (
    *(
        "",
        " ",
        "\n\t\r",
        "?!?!",
        "...",
        "—",
        "\0",
        "a\0b",
        "\ud800",
        "read\udcff a file",
        "\u200b",
        "\ufeff",
        "😀",
        "👩‍👩‍👧‍👦",
    ),
    *(
        "\u202e elif a daer",
        "e\u0301" * 300,
        "\x1b[31m",
        "ファイルを読む",
        "прочитать файл",
        "اقرأ الملف",
        "ไฟล์",
        "%s {0} \\",
        "' OR 1=1 --",
    ),
    *("read a file " * 300, "x" * 20_000, "?" * 20_000, "[" * 500, "../../etc/passwd", "<script>", "NaN", "null", "0"),
)
TOOLS = [
    {"id": "read", "server": "disk", "name": "read_file", "description": "Read a file", "input_schema": None},
    {"id": "send", "server": "post", "name": "send_mail", "description": "Send a mail", "input_schema": None},
]
DOCUMENTS = [{"id": "read", "text": "How to read a file"}, {"id": "send", "text": "How to send a mail"}]
BOOK = "# Files\n\nTo read a file, open it first.\n\n# Mail\n\nTo send a mail, write it first.\n"


def write_lines(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


@pytest.fixture(params=["tools.jsonl", "documents.jsonl", "books.toml"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A set whose first query is a plain one, and all others odd ones."""
    folder = tmp_path / "odd"
    folder.mkdir()
    relevant: list[Any] = ["read"]
    if request.param == "books.toml":
        (folder / "book.md").write_text(BOOK, encoding="utf-8")
        (folder / "books.toml").write_text('[[book]]\ntitle = "Book"\nfiles = ["book.md"]\n', encoding="utf-8")
        relevant = [{"source": "Book", "section": "Files"}]
    else:
        write_lines(folder / request.param, TOOLS if request.param == "tools.jsonl" else DOCUMENTS)
    write_lines(folder / "queries.jsonl", [{"query": text, "relevant": relevant} for text in ("read a file", *ODD)])
    return folder


def evaluate(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(run, ["eval", str(folder), "--model", "hashed-64", *options])


# Every pipeline that has code of its own, two in each run.
PIPELINES = {
    "tools.jsonl": [("hybrid", "baseline"), ("hierarchical", "direct")],
    "documents.jsonl": [("hybrid", "keyword"), ("semantic", "zscore")],
    "books.toml": [("hybrid", "semantic")],
}


def test_a_run_survives_every_query_and_counts_those_that_cannot_be_searched(folder: Path) -> None:
    (kind,) = (name for name in PIPELINES if (folder / name).exists())
    for ours, theirs in PIPELINES[kind]:
        done = evaluate(folder, "--pipeline", ours, "--against", theirs, "--json")
        assert done.exit_code == 0, (ours, theirs, done.output)
        answer = json.loads(done.stdout)
        for row in (answer["sets"]["odd"], answer["against"]["sets"]["odd"]):
            assert row["queries"] == 1 + len(ODD)
            assert row["hit@1"] >= 1 / (1 + len(ODD)), (ours, theirs)
            refused = row["not_searched"]
            assert refused["queries"] == sum(refused["reasons"].values())
            assert 3 <= refused["queries"] < len(ODD), (ours, theirs, refused)
            assert any("blank" in reason for reason in refused["reasons"])


@pytest.mark.extended
@pytest.mark.parametrize("folder", ["tools.jsonl"], indirect=True)
def test_without_json_the_reasons_stand_below_the_table(folder: Path) -> None:
    write_lines(folder / "negatives.jsonl", [{"query": "?!?!", "relevant": []}])
    done = evaluate(folder, "--against", "direct", "--curve")
    assert done.exit_code == 0, done.output
    for pipeline in ("hybrid", "direct"):
        (line,) = re.findall(rf"odd, {re.escape(pipeline)}: (\d+) of {2 + len(ODD)} queries not searched", done.stdout)
        assert 0 < int(line) < len(ODD)
    assert "× the query is blank" in done.stdout


@pytest.mark.parametrize("folder", ["tools.jsonl"], indirect=True)
def test_a_query_that_cannot_be_searched_scores_zero(folder: Path) -> None:
    write_lines(folder / "queries.jsonl", [{"query": q, "relevant": ["read"]} for q in ("read_file", "?!?!")])
    plain = folder.parent / "plain"
    plain.mkdir()
    write_lines(plain / "tools.jsonl", TOOLS)
    write_lines(plain / "queries.jsonl", [{"query": "read_file", "relevant": ["read"]}])
    sets = json.loads(evaluate(folder, str(plain), "--json").stdout)["sets"]
    row = sets["odd"]
    assert (row["hit@1"], row["r@5"], row["mrr"], row["answered"]) == (0.5, 0.5, 0.5, 0.5)
    assert row["not_searched"]["queries"] == 1
    assert "not_searched" not in sets["plain"]
