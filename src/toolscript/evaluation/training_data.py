"""Tools and judged queries in the form that `python -m training` reads: docs/guide/training.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolscript.evaluation.datasets import JudgedQuery

TOOLS, QUERIES, TASKS = "tools.jsonl", "queries.jsonl", "tasks.jsonl"
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The lines of each file, and the ids in queries that are no tools."""

    tools: Sequence[Row]
    queries: Sequence[Row]
    tasks: Sequence[Row]
    unknown: Sequence[str]


def build_training_data(tools: Mapping[str, Row], judged: Iterable[JudgedQuery]) -> TrainingData:
    """Sorts queries by their tool. `tools` are rows with server, name, description and input_schema, by id. A query
    with several tools becomes a task, which counts for each of them. Tools that do not exist are left out."""
    by_tool: dict[str, list[str]] = {}
    tasks: list[Row] = []
    unknown: dict[str, None] = {}
    for query in judged:
        unknown |= dict.fromkeys(tool for tool in query.grades if tool not in tools)
        served = [tool for tool in query.grades if tool in tools]
        if len(served) == 1:
            by_tool.setdefault(served[0], []).append(query.text)
        elif served:
            tasks.append({"task": query.text, "tools": [_name(tools[tool]) for tool in served]})
    queries = [{**_name(tools[tool]), "queries": list(dict.fromkeys(texts))} for tool, texts in by_tool.items()]
    return TrainingData(list(tools.values()), queries, tasks, list(unknown))


def _name(tool: Row) -> Row:
    return {"server": tool["server"], "name": tool["name"]}
