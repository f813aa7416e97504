"""Reads evaluation sets: tools, documents or books, and queries with what is relevant to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from toolscript.domain.catalog import Item
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.evaluation.book_sets import BOOKS, BookSet, read_book_set
from toolscript.evaluation.rows import QUERY, Keys, read_rows
from toolscript.services.catalogue.demo import parse_item


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """A query and what answers it: grades by id, and groups of which each must be hit by any member."""

    text: str
    grades: Mapping[str, float]
    groups: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class ToolSet:
    """Tools with their id in the set, and queries. Queries without an answer stand apart."""

    name: str
    items: Mapping[str, Item]
    queries: list[JudgedQuery]
    unanswerable: list[str]


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """Documents and queries with graded relevance."""

    name: str
    documents: list[Document]
    queries: list[JudgedQuery]


TOOL: Keys = {"id": (str, int), "server": str, "name": str, "description": str, "input_schema": dict}


def demo_folder() -> Path:
    """The set that comes with the package."""
    return Path(str(resources.files("toolscript").joinpath("data/demo")))


AnySet = ToolSet | DocumentSet | BookSet


def read_set(folder: Path) -> AnySet:
    """Reads a folder with `queries.jsonl` and one of `tools.jsonl[.gz]`, `documents.jsonl`, `books.toml`. Raises
    Invalid."""
    if not folder.is_dir():
        raise Invalid(f"{folder} is not a folder", details={"field": "DIR"})
    rows = list(read_rows(folder, "queries.jsonl", QUERY))
    if not rows:
        raise Invalid(f"{folder} has no queries.jsonl: there is nothing to measure", details={"field": "DIR"})
    if (folder / BOOKS).is_file():
        return read_book_set(folder, rows)
    negatives = list(read_rows(folder, "negatives.jsonl", QUERY))
    judged = [_judged(q) for q in [*rows, *negatives]]
    answerable = [j for j in judged if j.grades]
    if not answerable:
        raise Invalid(f"{folder}/queries.jsonl has no query with an answer", details={"field": "DIR"})
    documents = list(read_rows(folder, "documents.jsonl", {"id": (str, int), "text": str}))
    if documents:
        return DocumentSet(
            folder.name, [Document(str(d["id"]), d["text"], d.get("title") or "") for d in documents], answerable
        )
    tools = list(read_rows(folder, "tools.jsonl", TOOL))
    if not tools:
        raise Invalid(
            f"{folder} has neither tools.jsonl, tools.jsonl.gz, documents.jsonl nor books.toml",
            details={"field": "DIR"},
        )
    items = {str(tool["id"]): parse_item(tool) for tool in tools}
    return ToolSet(folder.name, items, answerable, [j.text for j in judged if not j.grades])


def _judged(row: Mapping[str, Any]) -> JudgedQuery:
    relevant = row["relevant"]
    graded = relevant.items() if isinstance(relevant, dict) else ((i, 1.0) for i in relevant)
    grades = {str(i): float(grade) for i, grade in graded if float(grade) > 0}
    groups = row.get("groups") or [[i] for i in grades]
    return JudgedQuery(row["query"], grades, tuple(frozenset(map(str, group)) for group in groups))
