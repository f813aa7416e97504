"""The catalogue that comes with the package: something to search before anything is configured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from toolscript.domain.catalog import Item


def load_demo_items() -> list[Item]:
    """The tools of the demo catalogue."""
    return [parse_item(told) for told in _lines("tools.jsonl")]


def load_demo_pairs() -> list[tuple[str, str]]:
    """Plain questions about the demo catalogue, each with the id of the one tool that answers it."""
    plain = (q for q in _lines("queries.jsonl") if q["kind"] == "plain")
    return [(q["query"], q["relevant"][0]) for q in plain if len(q["relevant"]) == 1]


def parse_item(told: Mapping[str, Any]) -> Item:
    """A tool from an object with server, name, description and input_schema."""
    return Item(
        server=told["server"],
        name=told["name"],
        description=told.get("description") or "",
        input_schema=told.get("input_schema"),
    )


def _lines(name: str) -> list[dict[str, Any]]:
    text = resources.files("toolscript").joinpath(f"data/demo/{name}").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
