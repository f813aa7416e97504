"""The demo catalogue of the package, to search before any server is configured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from toolscript.domain.catalog import Item


def load_demo_items() -> list[Item]:
    return [parse_item(row) for row in _read_lines("tools.jsonl")]


def load_demo_pairs() -> list[tuple[str, str]]:
    """Plain queries for the demo catalogue, each with the id of the one tool that fits."""
    plain = (q for q in _read_lines("queries.jsonl") if q["kind"] == "plain")
    return [(q["query"], q["relevant"][0]) for q in plain if len(q["relevant"]) == 1]


def parse_item(row: Mapping[str, Any]) -> Item:
    """Builds a tool from an object with server, name, description and input_schema."""
    return Item(
        server=row["server"],
        name=row["name"],
        description=row.get("description") or "",
        input_schema=row.get("input_schema"),
    )


def _read_lines(name: str) -> list[dict[str, Any]]:
    text = resources.files("toolscript").joinpath(f"data/demo/{name}").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
