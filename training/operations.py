"""Measures searches with requests that differ in the operation only: is the right tool first, or its near miss?"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item
from toolscript.services.catalogue.demo import parse_item
from toolscript.settings import load_settings
from training.prepare import read_rows, read_servers

Request = Mapping[str, Any]


def measure_operations(
    requests: Sequence[Path], *, servers: Path, tools: Sequence[Path], model: str | None = None
) -> dict[str, float]:
    """Shares of the requests that a tool serves, and of those that none serves."""
    by_catalogue: dict[tuple[str, ...], list[Request]] = defaultdict(list)
    for row in read_rows(requests):
        by_catalogue[tuple(row["catalogue"])].append(row)
    known: dict[str, list[Item]] = defaultdict(list)
    for row in read_rows(tools):
        known[row["server"]].append(parse_item(row))
    return asyncio.run(_measure(by_catalogue, known, servers, model))


async def _measure(
    by_catalogue: Mapping[tuple[str, ...], Sequence[Request]],
    known: Mapping[str, Sequence[Item]],
    servers: Path,
    model: str | None,
) -> dict[str, float]:
    counts: Counter[str] = Counter()
    changed: dict[str, Any] = {"search_model": model} if model else {}
    with tempfile.TemporaryDirectory() as folder:
        async with open_app(load_settings(data_dir=Path(folder), **changed)) as app:
            for names, rows in by_catalogue.items():
                items = [item for n in names for item in _find_tools(n, servers, known)]
                await app.catalogue.sync.run(items)
                for row in rows:
                    counts.update(await _judge(app, row, {f"{i.server}__{i.name}": i.id for i in items}))
    served, refused = counts["served"], counts["refused"]
    shares = {name: counts[name] / served for name in ("right first", "right in three", "near miss first", "empty")}
    return shares | {name: counts[name] / refused for name in ("refused: empty", "refused: near miss first")}


def _find_tools(server: str, servers: Path, known: Mapping[str, Sequence[Item]]) -> Sequence[Item]:
    """All tools of a server: those of its own answer, where there is one."""
    return read_servers(servers, [server]) if (servers / f"{server}.json").is_file() else known[server]


async def _judge(app: App, row: Request, ids: Mapping[str, str]) -> list[str]:
    results = await app.tools.search.search(row["query"], recorded=False)
    found = [hit.id for hit in results.hits]
    right, near = ({ids[key] for key in row[kind]} for kind in ("relevant", "near_miss"))
    is_near_first = bool(found) and found[0] in near
    if not right:
        return ["refused", *["refused: empty"] * (not found), *["refused: near miss first"] * is_near_first]
    outcomes = {
        "right first": bool(found) and found[0] in right,
        "right in three": bool(right & set(found[:3])),
        "near miss first": is_near_first,
        "empty": not found,
    }
    return ["served", *(name for name, is_so in outcomes.items() if is_so)]
