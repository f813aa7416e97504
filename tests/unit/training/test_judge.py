"""Judged requests run through the product's ranking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.judge import LARGE, Catalogue, judge, read_catalogues

MAIL = {"server": "mail", "name": "send_letter", "description": "Send a letter to somebody."}
FILES = {"server": "files", "name": "read_paper", "description": "Read the paper on the desk."}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read(folder: Path) -> list[Catalogue]:
    tools = [{**MAIL, "id": "1", "input_schema": {}}, {**FILES, "id": "2", "input_schema": {}}]
    write(folder / "set" / "tools.jsonl", tools)
    write(folder / "set" / "queries.jsonl", [{"query": "send a letter", "relevant": ["1"]}])
    served = {"catalogue": ["desk"], "query": "read the paper", "relevant": ["desk__read_paper"]}
    chat = {"catalogue": ["desk"], "query": "good morning to you", "kind": "chat"}
    near = {"catalogue": ["desk"], "query": "burn the paper", "kind": "near miss"}
    write(folder / "requests" / "answerable.jsonl", [served])
    write(folder / "requests" / "unanswerable.jsonl", [chat, near])
    write(folder / "servers" / "desk.json", [{"tools": [{"name": "read_paper", "description": FILES["description"]}]}])
    write(folder / "more.jsonl", [{**MAIL, "id": "9", "server": "post", "input_schema": {}}])
    return list(read_catalogues([folder / "set"], folder / "requests", folder / "servers", [folder / "more.jsonl"]))


def test_requests_are_judged_in_their_catalogue_and_in_one_of_all_tools(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert [(c.name, c.group, len(c.items)) for c in found] == [
        ("set", "set", 2),
        ("desk", "desk", 1),
        (LARGE, "set", 3),
        (LARGE, LARGE, 3),
    ]
    assert [text for text, _ in found[-1].requests] == ["good morning to you"]


@pytest.mark.slow
def test_a_judgement_says_whether_the_first_hit_is_right(tmp_path: Path) -> None:
    judged = judge(read(tmp_path), "hashed-64")
    assert judged.keys() == {"hybrid", "words"}
    for each in judged.values():
        assert [j.is_served for j in each] == [True, True, False, False, True, False]
    assert judged["words"][0].is_right
    assert judged["words"][0].signals.coverage > judged["words"][2].signals.coverage
