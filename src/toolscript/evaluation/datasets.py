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
from toolscript.services.demo import items_from_jsonl


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


def demo_folder() -> Path:
    """The set that comes with the package."""
    return Path(str(resources.files("toolscript").joinpath("data/demo")))


def read_set(folder: Path) -> ToolSet | DocumentSet:
    """Reads a folder with `tools.jsonl[.gz]` or `documents.jsonl`, and `queries.jsonl`. Raises Invalid."""
    if not folder.is_dir():
        raise Invalid(f"{folder} is not a folder", details={"field": "DIR"})
    rows = list(_rows(folder, "queries.jsonl"))
    negatives = list(_rows(folder, "negatives.jsonl")) if (folder / "negatives.jsonl").is_file() else []
    if not rows:
        raise Invalid(f"{folder} has no queries.jsonl: there is nothing to measure", details={"field": "DIR"})
    if (folder / "documents.jsonl").is_file():
        documents = [Document(str(d["id"]), d["text"], d.get("title") or "") for d in _rows(folder, "documents.jsonl")]
        return DocumentSet(folder.name, documents, [_judged(q) for q in rows])
    lines = [json.dumps(row) for row in _rows(folder, "tools.jsonl")]
    if not lines:
        raise Invalid(f"{folder} has neither tools.jsonl, tools.jsonl.gz nor documents.jsonl", details={"field": "DIR"})
    ids = [json.loads(line)["id"] for line in lines]
    items = dict(zip(ids, items_from_jsonl(lines), strict=True))
    return ToolSet(
        folder.name,
        items,
        [_judged(q) for q in rows if q["relevant"]],
        [q["query"] for q in [*rows, *negatives] if not q["relevant"]],
    )


def _judged(row: Mapping[str, Any]) -> Judged:
    relevant = row["relevant"]
    grades = (
        {str(i): float(g) for i, g in relevant.items()} if isinstance(relevant, dict) else dict.fromkeys(relevant, 1.0)
    )
    groups = row.get("groups") or [[i] for i in grades]
    return Judged(row["query"], grades, tuple(frozenset(g) for g in groups))


def _rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    plain, packed = folder / name, folder / f"{name}.gz"
    if not plain.is_file() and not packed.is_file():
        return
    with plain.open(encoding="utf-8") if plain.is_file() else gzip.open(packed, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise Invalid(
                    f"{folder / name}, line {number}: not JSON ({error})", details={"line": number}
                ) from error
