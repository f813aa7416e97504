"""Reads files with one JSON object per line, and names the line that is invalid."""

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
    """Yields the JSON objects of a file or of its .gz version; none if neither exists. Raises Invalid with the line."""
    plain, packed = folder / name, folder / f"{name}.gz"
    file = plain if plain.is_file() else packed
    if not file.is_file():
        return
    number = 0
    try:
        with plain.open(encoding="utf-8") if file is plain else gzip.open(packed, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):  # noqa: B007  (the error message needs it)
                yield _row(json.loads(line), keys)
    except (ValueError, OSError, EOFError) as error:
        raise Invalid(f"{file}, line {number or 1}: {error}", details={"file": str(file), "line": number}) from error


def _row(row: Any, keys: Keys) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  (caught with the other errors)
    for key, kind in keys.items():
        if key not in row and key not in OPTIONAL:
            raise ValueError(f"missing key: {key}")
        if not isinstance(row.get(key), kind) and not (key in OPTIONAL and row.get(key) is None):
            raise ValueError(f"invalid value of {key}")
    return row
