"""`toolscript search` and `eval`: what they print, and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolscript.services.skills.skills_file import load_skills
from toolscript.surfaces.cli.commands.search import show
from toolscript.surfaces.cli.main import run

Toolscript = Callable[..., Result]


@pytest.fixture
def toolscript(demo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Toolscript:
    monkeypatch.setenv("COLUMNS", "120")

    def invoke(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["toolscript", *arguments])
        return CliRunner().invoke(run, list(arguments))

    return invoke


@pytest.mark.slow
def test_a_search_beside_a_gateway_imports_no_numpy() -> None:
    """It would take a quarter of the command's time, and a gateway has the vectors."""
    code = (
        "import sys, toolscript.surfaces.cli.commands.search, toolscript.domain.search\n"
        "print(sorted({'numpy', 'fastapi', 'pydantic'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.req("S-01", "S-05")
def test_a_task_gets_a_column_with_the_part_that_each_tool_is_for(toolscript: Toolscript) -> None:
    task = (
        "Send an email with the report of this week to the whole team and to the people who asked for it on Monday. "
        "Restart the docker container of the shop afterwards, because it has been slow since Monday, and take "
        "a screenshot of the first page to see whether it is there again."
    )
    result = toolscript("search", task, "--threshold", "0", "--limit", "5")
    assert result.stdout.splitlines()[0].split() == ["Tool", "Confidence", "Reason", "For", "Server"]
    assert "Restart the docker container" in result.stdout


@pytest.mark.req("Q-06")
def test_close_tools_are_shown_below_the_confident_ones(
    toolscript: Toolscript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_THRESHOLD", "1")
    first, _, *closest = toolscript("search", "read the contents of a file", "--limit", "2").stdout.splitlines()
    assert first == "No tool is a confident match. Closest:"
    assert [line.split()[0] for line in closest if "__" in line][:1] == ["filesystem__read_file"]
    assert sum("__" in line for line in closest) == 2
    answer = json.loads(toolscript("search", "read the contents of a file", "--json").stdout)
    assert (answer["results"], len(answer["closest"])) == ([], 3)
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_THRESHOLD", "0.35")
    assert "Less sure:" in toolscript("search", "read the contents of a file", "--limit", "50").stdout


@pytest.mark.req("X-03", "D-11")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["search", " "], 2, "blank"),
        (["search", "x", "--limit", "many"], 2, "invalid value --limit=many: expected a whole number from 1 to 100"),
        (["search", "x", "--threshold", "7"], 2, "invalid value --threshold=7: expected a number from 0 to 1"),
        (["search", "x", "--model", "no-such"], 2, "no-such"),
        (["eval", "/no/such/folder"], 2, "not a folder"),
        (["gateway", "start", "--host", "0.0.0.0"], 2, "loopback"),
        (["gateway", "start", "--port", "99999"], 2, "0 to 65535"),
        (["nonsense"], 2, "nonsense"),
        (["search", "x", "--data-dir", "/dev/null/x"], 3, "--data-dir"),
        (["search", "x", "--data-dir", "~nobody-here/x"], 2, "invalid data folder"),
    ],
)
def test_invalid_input_is_one_message_and_an_exit_code(
    toolscript: Toolscript, arguments: list[str], code: int, message: str
) -> None:
    result = toolscript(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


@pytest.mark.req("H-15")
def test_the_index_is_rebuilt_with_another_model(toolscript: Toolscript) -> None:
    toolscript("search", "read_file")
    answer = json.loads(toolscript("index", "rebuild", "--model", "hashed-32", "--json").stdout)
    counts = {"tools": 56, "skills": len(load_skills()), "documents": 0, "knowledge": 0}
    assert answer == {"model": "hashed-32", "text_model": "hashed-32", **counts}
    assert toolscript("search", "read_file", "--model", "hashed-32").exit_code == 0
    assert "Indexed 56 tools" in toolscript("index", "rebuild").stdout


def test_eval_measures_the_demo_set_and_prints_every_metric(toolscript: Toolscript) -> None:
    answer = json.loads(toolscript("eval", "--pipeline", "keyword", "--against", "rrf", "--json").stdout)
    (row,) = answer["sets"].values()
    assert {"hit@1", "r@5", "r@10", "ndcg@10", "c@10", "mrr", "queries"} <= row.keys()
    assert list(answer["sets"]) == ["demo"]
    assert row["queries"] == 98
    assert row["no_match"]["queries"] == 20
    assert 0.5 < row["r@5"] <= row["r@10"] <= 1
    low, mean, high = (answer["against"]["difference"]["demo"]["r@5"][i] for i in (1, 0, 2))
    assert low <= mean <= high
    assert mean == pytest.approx(row["r@5"] - answer["against"]["sets"]["demo"]["r@5"])


@pytest.mark.extended
def test_eval_shows_a_table_and_the_difference(toolscript: Toolscript, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    tool = {"id": "read", "server": "disk", "name": "read_file", "description": "Read a file", "input_schema": None}
    (folder / "tools.jsonl").write_text(json.dumps(tool), encoding="utf-8")
    (folder / "queries.jsonl").write_text(json.dumps({"query": "read a file", "relevant": ["read"]}), encoding="utf-8")
    shown = toolscript("eval", str(folder), "--against", "keyword").stdout
    assert "pipeline hybrid" in shown
    assert "hybrid minus keyword" in shown


@pytest.mark.extended
@pytest.mark.req("D-02")
def test_eval_measures_documents_with_grades(toolscript: Toolscript, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    documents = [{"id": i, "title": "", "text": t} for i, t in enumerate(["red wine", "rent law", "white wine"])]
    (folder / "documents.jsonl").write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    (folder / "queries.jsonl").write_text(
        json.dumps({"id": "q", "query": "red wine", "relevant": {"0": 2, "2": 1}}), encoding="utf-8"
    )
    for ours, theirs in (("hybrid", "rrf"), ("zscore", "keyword"), ("semantic", "keyword")):
        answer = json.loads(toolscript("eval", str(folder), "--pipeline", ours, "--against", theirs, "--json").stdout)
        for sets in (answer["sets"], answer["against"]["sets"]):
            assert sets["library"]["ndcg@10"] == pytest.approx(1.0), (ours, theirs)


def test_zscore_is_refused_for_tools(toolscript: Toolscript) -> None:
    result = toolscript("eval", "--pipeline", "zscore")
    assert result.exit_code == 2
    assert "not available for tools" in result.stderr


@pytest.mark.req("X-03")
def test_a_query_with_invalid_unicode_is_searched(toolscript: Toolscript) -> None:
    result = toolscript("search", "\udcff read_file", "--json")
    assert json.loads(result.stdout)["results"][0]["toolId"] == "filesystem__read_file"


def test_a_bug_is_one_line_and_exit_code_1(toolscript: Toolscript, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolscript.surfaces.cli.client.session.load_settings", lambda **_: 1 / 0)
    result = toolscript("search", "x")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ZeroDivisionError")
    assert len(result.stderr.splitlines()) == 1


def test_sets_of_one_name_are_distinguished_by_their_paths(toolscript: Toolscript, tmp_path: Path) -> None:
    for place, text in (("p", "red wine"), ("q", "white wine")):
        folder = tmp_path / place / "docs"
        folder.mkdir(parents=True)
        (folder / "documents.jsonl").write_text(json.dumps({"id": place, "text": text}), encoding="utf-8")
        (folder / "queries.jsonl").write_text(json.dumps({"query": text, "relevant": {place: 1}}), encoding="utf-8")
    folders = [str(tmp_path / place / "docs") for place in "pq"]
    answer = json.loads(toolscript("eval", *folders, "--pipeline", "keyword", "--json").stdout)["sets"]
    assert list(answer) == folders
    assert [row["ndcg@10"] for row in answer.values()] == [1.0, 1.0]


@pytest.mark.req("H-04", "G-02")
@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (
            {"results": [], "degraded": ["catalogue"]},
            "not every tool is indexed yet: there may be more results in a moment",
        ),
        ({"tools": [], "metadata": {"degraded": ["catalogue"]}}, "not every tool is indexed yet"),
        ({"results": [], "degraded": ["embedder"]}, "found by words and names only"),
        ({"tools": [], "metadata": {"degraded": ["index"]}}, "incomplete results: index failed"),
        ({"results": []}, ""),
        ({"tools": [], "metadata": {"degraded": []}}, ""),
    ],
)
def test_a_degraded_search_prints_a_note(
    answer: dict[str, object], note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(answer)
    printed = capsys.readouterr()
    assert "No tools found matching query" in printed.out
    assert note in printed.err if note else not printed.err
