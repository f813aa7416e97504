"""The poisoned definitions of the suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from toolscript.domain.catalog import Item

FILE = Path(__file__).parents[3] / "fixtures" / "definitions" / "poisoned.jsonl"


class PoisonedDefinition(NamedTuple):
    """A definition, what kind of poison it has, and whether the rules were tuned on it."""

    item: Item
    kind: str
    is_for_tuning: bool


def load_poisoned() -> list[PoisonedDefinition]:
    rows = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
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
