"""Reads files of one JSON object a line, and says which line is not what it should be."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid

Keys = Mapping[str, type | tuple[type, ...]]
QUERY: Keys = {"query": str, "relevant": (list, dict)}
OPTIONAL = frozenset({"description", "input_schema"})


def read_rows(folder: Path, name: str, keys: Keys) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file or its gzipped twin, none when there is neither. Raises Invalid, naming the line."""
    plain, packed = folder / name, folder / f"{name}.gz"
    file = plain if plain.is_file() else packed
    if not file.is_file():
        return
    number = 0
    try:
        with plain.open(encoding="utf-8") if file is plain else gzip.open(packed, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):  # noqa: B007  (told when reading fails)
                yield _row(json.loads(line), keys)
    except (ValueError, OSError, EOFError) as error:
        raise Invalid(f"{file}, line {number or 1}: {error}", details={"file": str(file), "line": number}) from error


def _row(row: Any, keys: Keys) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  (caught with the other ways to be wrong)
    for key, kind in keys.items():
        if key not in row and key not in OPTIONAL:
            raise ValueError(f"{key} missing")
        if not isinstance(row.get(key), kind) and not (key in OPTIONAL and row.get(key) is None):
            raise ValueError(f"{key} is not what it should be")
    return row
