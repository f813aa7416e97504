"""The prepared file: what training and measuring read."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from training.data import read_prepared
from training.prepare import prepare
from training.unlabelled import cut_sentences, make_requests

Sources = dict[str, Any]
SERVERS = [f"server{number}" for number in range(25)]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    tools = [
        {
            "server": server,
            "name": name,
            "description": f"Reads the {name}. It returns many rows.",
            "input_schema": None,
        }
        for server in SERVERS
        for name in ("ledger", "diary")
    ]
    queries = [{"server": tool["server"], "name": tool["name"], "queries": ["show it", "look"]} for tool in tools]
    queries.append({"server": "gone", "name": "away", "queries": ["nobody serves this"]})
    pair = [{"server": "server0", "name": name} for name in ("ledger", "diary")]
    tasks = [
        {"task": "Read the ledger first. Then compare it with the diary.", "tools": pair},
        {"task": "Needs a tool that is not there.", "tools": [*pair, {"server": "gone", "name": "away"}]},
    ]
    return {
        "tools": [write_lines(tmp_path / "tools.jsonl", tools)],
        "queries": [write_lines(tmp_path / "queries.jsonl", queries)],
        "tasks": [write_lines(tmp_path / "tasks.jsonl", tasks)],
    }


def test_queries_and_tasks_of_unknown_tools_are_left_out(sources: Sources, tmp_path: Path) -> None:
    prepare(tmp_path / "data.json.gz", **sources)
    data = read_prepared(tmp_path / "data.json.gz")
    assert len(data["tools"]) == 50
    assert len(data["queries"]) == 100
    assert [members for members, _ in data["tasks"]] == [[0, 1]]


def test_queries_for_figures_only_are_left_out(sources: Sources, tmp_path: Path) -> None:
    rows = [{"server": "server0", "name": "diary", "query": q, "split": q} for q in ("train", "held_out")]
    sources["queries"] = [write_lines(tmp_path / "translated.jsonl", rows)]
    prepare(tmp_path / "data.json.gz", **sources)
    assert read_prepared(tmp_path / "data.json.gz")["queries"] == [[1, "train"]]


def test_operations_name_their_tools_also_those_of_further_servers(sources: Sources, tmp_path: Path) -> None:
    tool = {"name": "clock", "description": "Tells the time.", "inputSchema": {"type": "object"}}
    (tmp_path / "time.json").write_text(json.dumps({"tools": [tool]}))
    rows = [
        {"catalogue": ["server0"], "query": "burn it", "relevant": [], "near_miss": ["server0__diary"]},
        {"catalogue": ["time"], "query": "now?", "relevant": ["time__clock"], "near_miss": ["time__gone"]},
    ]
    sources["operations"] = [write_lines(tmp_path / "operations.jsonl", rows)]
    with pytest.raises(SystemExit, match="--servers is required: the folder with the tools of time"):
        prepare(tmp_path / "data.json.gz", **sources)
    prepare(tmp_path / "data.json.gz", **sources, servers=tmp_path)
    data = read_prepared(tmp_path / "data.json.gz")
    assert data["operations"] == [["burn it", [], [1]], ["now?", [50], []]]
    assert data["tools"][50]["text"] == "time clock: Tells the time."


def test_tools_have_the_texts_that_the_product_embeds(sources: Sources, tmp_path: Path) -> None:
    prepare(tmp_path / "data.json.gz", **sources)
    first = read_prepared(tmp_path / "data.json.gz")["tools"][0]
    assert first["text"] == "server0 ledger: Reads the ledger. It returns many rows."


def test_whole_servers_are_left_for_validation(sources: Sources, tmp_path: Path) -> None:
    prepare(tmp_path / "data.json.gz", **sources)
    chosen = read_prepared(tmp_path / "data.json.gz")["validation_servers"]
    assert len(chosen) == 2
    assert set(chosen) <= set(SERVERS)


def test_the_same_data_give_the_same_bytes(sources: Sources, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        prepare(tmp_path / name / "data.json.gz", **sources)
    assert (tmp_path / "a" / "data.json.gz").read_bytes() == (tmp_path / "b" / "data.json.gz").read_bytes()


def test_requests_are_made_of_names_and_descriptions() -> None:
    tool = {"plain_name": "list users", "description": "Lists all users of the team. Accepts a page number or nothing."}
    found = make_requests(tool, random.Random(1))
    assert any("list users" in text for text in found)
    assert any("list all users of the team" in text for text in found)
    assert "Accepts a page number or nothing." in found


def test_sentences_are_neither_very_short_nor_very_long() -> None:
    assert cut_sentences("Stop! **Read the ledger first.**\n- " + "word " * 40) == ["Read the ledger first."]
