"""The catalogue that comes with the package: something to search before anything is configured."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import resources

from toolscript.domain.catalog import Item


def demo_items() -> list[Item]:
    """The tools of the demo catalogue."""
    text = resources.files("toolscript").joinpath("data/demo/tools.jsonl").read_text(encoding="utf-8")
    return items_from_jsonl(text.splitlines())


def demo_pairs() -> list[tuple[str, str]]:
    """Plain questions about the demo catalogue, each with the id of the one tool that answers it."""
    text = resources.files("toolscript").joinpath("data/demo/queries.jsonl").read_text(encoding="utf-8")
    told = map(json.loads, text.splitlines())
    return [(q["query"], q["relevant"][0]) for q in told if q["kind"] == "plain" and len(q["relevant"]) == 1]


def items_from_jsonl(lines: Iterable[str]) -> list[Item]:
    """Tools from lines of JSON with server, name, description and input_schema."""
    told = (json.loads(line) for line in lines if line.strip())
    return [
        Item(
            server=entry["server"],
            name=entry["name"],
            description=entry.get("description") or "",
            input_schema=entry.get("input_schema"),
        )
        for entry in told
    ]
