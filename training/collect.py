"""Collects the tools of a running gateway, with judged queries for them, in the form that `prepare` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from toolscript.evaluation.datasets import JudgedQuery, read_judged_queries

TIMEOUT_SECONDS = 60.0
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Collection:
    """The lines of each file, and the ids in queries that are no tools."""

    tools: Sequence[Row]
    queries: Sequence[Row]
    tasks: Sequence[Row]
    unknown: Sequence[str]


def collect(folder: Path, gateway: str, files: Iterable[Path], key: str | None = None) -> Collection:
    """Writes `tools.jsonl`, `queries.jsonl` and `tasks.jsonl` into a new folder. Raises FileExistsError."""
    folder.mkdir(parents=True)
    judged = [query for file in files for query in read_judged_queries(file)]
    collection = sort_queries(read_tools(gateway, key), judged)
    for name in ("tools", "queries", "tasks"):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in getattr(collection, name))
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return collection


def read_tools(gateway: str, key: str | None = None) -> dict[str, Row]:
    """The tools of a gateway by id, with their schemas. Raises httpx.HTTPError."""
    headers = {"X-API-Key": key} if key else {}
    with httpx.Client(base_url=gateway, headers=headers, timeout=TIMEOUT_SECONDS) as client:

        def get(path: str) -> Any:
            return client.get(path).raise_for_status().json()

        ids = [tool["toolId"] for tool in get("/tools")["tools"] if tool["type"] == "tool"]
        found = [get(f"/tools/{quote(each, safe='')}") for each in ids]
    return {
        tool["toolId"]: {
            "server": tool["serverName"],
            "name": tool["toolName"],
            "description": tool["description"],
            "input_schema": tool["inputSchema"],
        }
        for tool in found
    }


def sort_queries(tools: Mapping[str, Row], judged: Iterable[JudgedQuery]) -> Collection:
    """Sorts queries by their tool. A query with several tools becomes a task, which counts for each of them. Tools that
    do not exist are left out."""
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
    return Collection(list(tools.values()), queries, tasks, list(unknown))


def _name(tool: Row) -> Row:
    return {"server": tool["server"], "name": tool["name"]}
