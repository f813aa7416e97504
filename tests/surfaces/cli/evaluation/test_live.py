"""`toolscript eval --live` gives the figures of `toolscript eval`, where both have the same tools and queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.servers import make_scripted_spec
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("X-03", "W-01")

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = {
    "read_file": "Read a text file from the disk",
    "delete_file": "Delete a file from the disk",
    "send_mail": "Send a mail to somebody",
}
QUERIES: list[dict[str, Any]] = [
    {"query": "read a text file", "relevant": ["one__read_file", "two__read_file"]},
    {"query": "send a mail", "relevant": {"two__send_mail": 1, "one__delete_file": 0}},
    {"query": "read a text file and delete it", "relevant": ["one__read_file", "two__read_file", "two__delete_file"]},
    {"query": "delete a file", "relevant": ["two__delete_file"], "groups": [["one__delete_file", "two__delete_file"]]},
    {"query": "?!?!", "relevant": ["one__read_file"]},
    {"query": "qwxz vbnm", "relevant": []},
]
NEGATIVES = [{"query": "fly to the moon", "relevant": []}]


def write_lines(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(run, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def folder(small_folder: Path, tmp_path: Path) -> Path:
    """A set with two servers whose tools are the same, and an installation with these servers."""
    definitions = [{"name": n, "description": text, "inputSchema": SCHEMA} for n, text in TOOLS.items()]
    (tmp_path / "listing.json").write_text(json.dumps({"tools": definitions}), encoding="utf-8")
    servers = {name: make_scripted_spec(listing=str(tmp_path / "listing.json")) for name in ("one", "two")}
    Path(".toolscript.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    folder = tmp_path / "own"
    folder.mkdir()
    tools = [
        {"id": f"{server}__{n}", "server": server, "name": n, "description": text, "input_schema": SCHEMA}
        for server in servers
        for n, text in TOOLS.items()
    ]
    write_lines(folder / "tools.jsonl", tools)
    write_lines(folder / "queries.jsonl", QUERIES)
    write_lines(folder / "negatives.jsonl", NEGATIVES)
    return folder


@pytest.mark.extended
def test_the_same_file_gives_the_same_figures_with_and_without_live(folder: Path) -> None:
    invoke("sync")
    offline = json.loads(invoke("eval", str(folder), "--curve", "--json"))
    live = json.loads(invoke("eval", str(folder), "--curve", "--live", "--json"))
    assert live == offline
    row = live["sets"]["own"]
    assert (row["queries"], row["no_match"]["queries"], row["not_searched"]["queries"]) == (5, 2, 1)


def test_all_variants_of_a_hit_count_as_found(folder: Path) -> None:
    write_lines(folder / "queries.jsonl", QUERIES[:1])
    (folder / "negatives.jsonl").unlink()
    invoke("sync")
    for options in ([], ["--live"]):
        row = json.loads(invoke("eval", str(folder), *options, "--json"))["sets"]["own"]
        assert {name: row[name] for name in ("hit@1", "r@5", "ndcg@10", "c@10", "mrr")} == dict.fromkeys(
            ("hit@1", "r@5", "ndcg@10", "c@10", "mrr"), 1.0
        )


def test_queries_that_no_tool_serves_are_not_enough(folder: Path) -> None:
    write_lines(folder / "queries.jsonl", NEGATIVES)
    result = CliRunner().invoke(run, ["eval", str(folder), "--live"])
    assert (result.exit_code, "no query with an answer" in result.output) == (2, True)
