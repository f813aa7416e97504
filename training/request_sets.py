"""Writes the requests of this room as evaluation sets, with the tools that they are asked of, for `toolscript eval`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolscript.domain.catalog import Item
from toolscript.services.catalogue.demo import parse_item
from training.prepare import FIGURES_ONLY, read_rows, read_servers

# The seven servers that everyday requests are asked of.
EVERYDAY_SERVERS = (
    "mcp-server-fetch",
    "mcp-server-git",
    "mcp-server-time",
    "modelcontextprotocol__server-everything",
    "modelcontextprotocol__server-filesystem",
    "modelcontextprotocol__server-memory",
    "modelcontextprotocol__server-sequential-thinking",
)
MAX_API_OPERATIONS = 6_000


def write_request_sets(
    out: Path, requests: Path, *, servers: Path, tools: Sequence[Path], catalogue: Sequence[Path]
) -> list[Path]:
    """Writes a folder for each set, and returns the folders. `servers` has the answers of servers to `tools/list`;
    `tools` those of the training queries; `catalogue` the operations of APIs."""
    everyday = list(read_rows([requests / "everyday.jsonl"]))
    written = [_write_set(out / "everyday", read_servers(servers, EVERYDAY_SERVERS), everyday)]
    operations = list(read_rows([requests / "api_operations.jsonl"]))
    written.append(_write_set(out / "api_operations", _choose_operations(operations, catalogue), operations))
    translated = [row for row in read_rows([requests / "translated.jsonl"]) if row["split"] == FIGURES_ONLY]
    items = [parse_item(row) for row in read_rows(tools)]
    for language in sorted({row["language"] for row in translated}):
        rows = [row | {"relevant": [f"{row['server']}__{row['name']}"]} for row in translated]
        own = [row for row in rows if row["language"] == language]
        written.append(_write_set(out / f"translated_{language}", items, own))
        english = [row | {"query": row["original"]} for row in own]
        written.append(_write_set(out / f"translated_{language}_in_english", items, english))
    return written


def _choose_operations(requests: Iterable[Mapping[str, Any]], catalogue: Sequence[Path]) -> list[Item]:
    """All operations of the APIs that are asked for, and others in the order of the file, 6 000 in all."""
    wanted = {row["api"] for row in requests}
    unique = {(row["server"], row["name"]): row for row in read_rows(catalogue)}
    rows = sorted(unique.values(), key=lambda row: row["server"] not in wanted)
    return [parse_item(row) for row in rows[:MAX_API_OPERATIONS]]


def _write_set(folder: Path, items: Iterable[Item], requests: Iterable[Mapping[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / "tools.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(_write_lines(map(_describe, items)))
    rows = ({"id": str(n), "query": row["query"], "relevant": row["relevant"]} for n, row in enumerate(requests))
    (folder / "queries.jsonl").write_text("".join(_write_lines(rows)), encoding="utf-8")
    return folder


def _describe(item: Item) -> dict[str, Any]:
    return {
        "id": f"{item.server}__{item.name}",
        "server": item.server,
        "name": item.name,
        "description": item.description,
        "input_schema": item.input_schema,
    }


def _write_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
