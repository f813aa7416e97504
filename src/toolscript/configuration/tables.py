"""Reads the TOML and JSON files that people write beside the configuration of servers: plans, skills, capabilities."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid
from toolscript.domain.spelling import suggest


def read_tables(file: Path, example: str) -> dict[str, Any]:
    """Reads a TOML file, or JSON with the suffix `.json`. Raises Invalid for a file that cannot be read, has a key
    twice, or has no tables, such as the example."""
    try:
        text = file.expanduser().read_text(encoding="utf-8")
        is_json = file.suffix.lower() == ".json"
        content = json.loads(text, object_pairs_hook=_refuse_duplicates) if is_json else tomllib.loads(text)
    except (OSError, ValueError, RecursionError, RuntimeError) as error:
        raise Invalid(f"{file} cannot be read: {error}", details={"file": str(file)}) from error
    if not isinstance(content, dict):
        raise Invalid(f"{file} has no tables: write {example}", details={"file": str(file)})
    return content


def check_keys(file: Path | str, keys: Collection[str], allowed: Collection[str], where: str = "") -> None:
    """Raises Invalid, naming the file and the key, for a key that is not allowed."""
    for key in sorted(set(keys) - set(allowed)):
        raise describe_problem(
            file, f"{where}{key}", f"is an unknown key: use {', '.join(allowed)}{suggest(key, allowed)}"
        )


def describe_problem(file: Path | str, key: str, problem: str) -> Invalid:
    """The error about a key of a file."""
    return Invalid(f"{file}: {key} {problem}", details={"file": str(file), "key": key.rstrip(":")})


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        duplicate = next(key for n, (key, _) in enumerate(pairs) if key in {k for k, _ in pairs[:n]})
        raise ValueError(f"duplicate key {duplicate!r}")
    return found
