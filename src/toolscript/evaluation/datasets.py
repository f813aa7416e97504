"""Reads evaluation sets: tools, documents or books, with queries and their relevant results."""

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
    """A query with its relevant results: grades by id, and groups, of each of which one member must be found."""

    text: str
    grades: Mapping[str, float]
    groups: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class ToolSet:
    """Tools by their id in the set, queries with an answer, and the texts of queries without one."""

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
    """The folder of the packaged set."""
    return Path(str(resources.files("toolscript").joinpath("data/demo")))


AnySet = ToolSet | DocumentSet | BookSet


def read_set(folder: Path) -> AnySet:
    """Reads a folder with `queries.jsonl` and one of `tools.jsonl[.gz]`, `documents.jsonl`, `books.toml`. Raises
    Invalid."""
    if not folder.is_dir():
        raise Invalid(f"not a folder: {folder}", details={"field": "DIR"})
    rows = list(read_rows(folder, "queries.jsonl", QUERY))
    if not rows:
        raise Invalid(f"no queries.jsonl in {folder}", details={"field": "DIR"})
    if (folder / BOOKS).is_file():
        return read_book_set(folder, rows)
    negatives = list(read_rows(folder, "negatives.jsonl", QUERY))
    judged = [_parse_query(row) for row in [*rows, *negatives]]
    answerable = [j for j in judged if j.grades]
    if not answerable:
        raise Invalid(f"no query with an answer in {folder}/queries.jsonl", details={"field": "DIR"})
    documents = list(read_rows(folder, "documents.jsonl", {"id": (str, int), "text": str}))
    if documents:
        return DocumentSet(
            folder.name, [Document(str(d["id"]), d["text"], d.get("title") or "") for d in documents], answerable
        )
    tools = list(read_rows(folder, "tools.jsonl", TOOL))
    if not tools:
        raise Invalid(
            f"no tools.jsonl, tools.jsonl.gz, documents.jsonl or books.toml in {folder}", details={"field": "DIR"}
        )
    items = {str(tool["id"]): parse_item(tool) for tool in tools}
    return ToolSet(folder.name, items, answerable, [j.text for j in judged if not j.grades])


def _parse_query(row: Mapping[str, Any]) -> JudgedQuery:
    relevant = row["relevant"]
    pairs = relevant.items() if isinstance(relevant, dict) else ((i, 1.0) for i in relevant)
    grades = {str(i): float(grade) for i, grade in pairs if float(grade) > 0}
    groups = row.get("groups") or [[i] for i in grades]
    return JudgedQuery(row["query"], grades, tuple(frozenset(map(str, group)) for group in groups))
