"""The poisoned definitions of the suite, and honest ones that look suspicious."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from toolscript.domain.catalog import Item

FOLDER = Path(__file__).parents[3] / "fixtures" / "definitions"


class PoisonedDefinition(NamedTuple):
    """A definition, what kind of poison it has, and whether the rules were tuned on it."""

    item: Item
    kind: str
    is_for_tuning: bool


def load_poisoned() -> list[PoisonedDefinition]:
    rows = [json.loads(line) for line in (FOLDER / "poisoned.jsonl").read_text(encoding="utf-8").splitlines()]
    return [
        PoisonedDefinition(
            Item(
                row["server"],
                row["name"],
                row["description"],
                title=row["title"],
                input_schema=row["input_schema"],
                annotations=row["annotations"],
            ),
            row["kind"],
            row["set"] == "tune",
        )
        for row in rows
    ]


class UnseenDefinition(NamedTuple):
    """A definition that was written before the rules of its round were looked at."""

    item: Item
    is_poisoned: bool
    round: int
    """The rules were repaired with what they missed after each round."""


def load_unseen(file: str = "unseen.jsonl") -> list[UnseenDefinition]:
    rows = [json.loads(line) for line in (FOLDER / file).read_text(encoding="utf-8").splitlines()]
    fields = ("name", "description", "title", "input_schema", "output_schema")
    return [
        UnseenDefinition(
            Item("helper", **{name: row[name] for name in fields}), row["label"] == "poisoned", row["round"]
        )
        for row in rows
    ]
