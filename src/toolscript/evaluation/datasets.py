"""Reads evaluation sets: tools or documents, and queries with what is relevant to them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from toolscript.domain.catalog import Item
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.services.demo import item_from


@dataclass(frozen=True, slots=True)
class Judged:
    """A query and what answers it: grades by id, and groups of which each must be hit by any member."""

    text: str
    grades: Mapping[str, float]
    groups: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class ToolSet:
    """Tools with their id in the set, and queries. Queries without an answer stand apart."""

    name: str
    items: Mapping[str, Item]
    queries: list[Judged]
    unanswerable: list[str]


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """Documents and queries with graded relevance."""

    name: str
    documents: list[Document]
    queries: list[Judged]


Keys = Mapping[str, type | tuple[type, ...]]
QUERY: Keys = {"query": str, "relevant": (list, dict)}
TOOL: Keys = {"id": (str, int), "server": str, "name": str, "description": str, "input_schema": dict}
OPTIONAL = frozenset({"description", "input_schema"})


def demo_folder() -> Path:
    """The set that comes with the package."""
    return Path(str(resources.files("toolscript").joinpath("data/demo")))


def read_set(folder: Path) -> ToolSet | DocumentSet:
    """Reads a folder with `tools.jsonl[.gz]` or `documents.jsonl`, and `queries.jsonl`. Raises Invalid."""
    if not folder.is_dir():
        raise Invalid(f"{folder} is not a folder", details={"field": "DIR"})
    rows = list(_rows(folder, "queries.jsonl", QUERY))
    if not rows:
        raise Invalid(f"{folder} has no queries.jsonl: there is nothing to measure", details={"field": "DIR"})
    negatives = list(_rows(folder, "negatives.jsonl", QUERY))
    judged = [_judged(q) for q in [*rows, *negatives]]
    answerable = [j for j in judged if j.grades]
    if not answerable:
        raise Invalid(f"{folder}/queries.jsonl has no query with an answer", details={"field": "DIR"})
    documents = list(_rows(folder, "documents.jsonl", {"id": (str, int), "text": str}))
    if documents:
        return DocumentSet(
            folder.name, [Document(str(d["id"]), d["text"], d.get("title") or "") for d in documents], answerable
        )
    tools = list(_rows(folder, "tools.jsonl", TOOL))
    if not tools:
        raise Invalid(f"{folder} has neither tools.jsonl, tools.jsonl.gz nor documents.jsonl", details={"field": "DIR"})
    items = {str(tool["id"]): item_from(tool) for tool in tools}
    return ToolSet(folder.name, items, answerable, [j.text for j in judged if not j.grades])


def _judged(row: Mapping[str, Any]) -> Judged:
    relevant = row["relevant"]
    graded = relevant.items() if isinstance(relevant, dict) else ((i, 1.0) for i in relevant)
    grades = {str(i): float(grade) for i, grade in graded if float(grade) > 0}
    groups = row.get("groups") or [[i] for i in grades]
    return Judged(row["query"], grades, tuple(frozenset(map(str, group)) for group in groups))


def _rows(folder: Path, name: str, keys: Keys) -> Iterator[dict[str, Any]]:
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
