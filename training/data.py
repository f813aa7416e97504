"""Reads the prepared file. Apart from `prepare`, because that needs the product and this runs where only PyTorch is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def read_prepared(path: Path) -> dict[str, Any]:
    """The tools, queries, tasks, passages and evaluation sets that `prepare` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found
