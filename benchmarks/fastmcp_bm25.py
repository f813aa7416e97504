"""Quality of FastMCP's BM25 search transform on evaluation sets of tools, by the metrics of `toolscript eval`.

    python -m venv build/fastmcp && build/fastmcp/bin/pip install --editable . fastmcp==4.1.2
    build/fastmcp/bin/python -m benchmarks.fastmcp_bm25 DATA/azure_mcp DATA/metatool …

FastMCP is in none of our lock files: it has an environment of its own. Each set becomes a FastMCP server, and each
query a call of its `search_tools`, as a client would make it.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from toolscript.evaluation.datasets import ToolSet, read_set
from toolscript.evaluation.metrics import Scores, intervals, score_by_group

NAMES = ("hit@1", "r@5", "ndcg@10")
# As deep as the metrics look; FastMCP's default of 5 would cost NDCG@10 a little.
MAX_RESULTS = 10

try:
    from fastmcp import Client, FastMCP
    from fastmcp.server.transforms.search import BM25SearchTransform
    from fastmcp.tools import Tool
except ImportError as error:
    raise SystemExit(f"fastmcp is missing ({error}): install it in an environment of its own.\n\n{__doc__}") from None


async def measure(data: ToolSet) -> list[Scores]:
    """Searches for every query. Tools are named by their ids, as names of several servers are not unique; FastMCP also
    puts the names of mounted servers before those of tools."""
    server = FastMCP(data.name, transforms=[BM25SearchTransform(max_results=MAX_RESULTS)])
    for item in data.items.values():
        schema = item.input_schema or {"type": "object"}
        server.add_tool(Tool(name=item.id, description=item.description, parameters=schema))
    set_ids = {item.id: set_id for set_id, item in data.items.items()}
    scores = []
    async with Client(server) as client:
        for judged in data.queries:
            found = await client.call_tool("search_tools", {"query": judged.text})
            hits = (found.structured_content or {})["result"]
            scores.append(score_by_group(judged, [set_ids[hit["name"]] for hit in hits]))
    return scores


def print_row(name: str, queries: str, *sets: Sequence[Scores]) -> None:
    found = intervals(*sets)
    cells = [f"{found[n].mean:.3f} ({found[n].low:.3f} to {found[n].high:.3f})" for n in NAMES]
    print(f"| {name} | {queries} | {' | '.join(cells)} |", flush=True)


async def run(folders: Sequence[Path]) -> None:
    sets = [read_set(folder) for folder in folders]
    others = [data.name for data in sets if not isinstance(data, ToolSet)]
    if others:
        raise SystemExit(f"not a set of tools: {', '.join(others)}")
    print(f"FastMCP {version('fastmcp')}\n\n| set | queries | {' | '.join(NAMES)} |\n|---|---|---|---|---|", flush=True)
    scores = []
    for data in sets:
        if isinstance(data, ToolSet):
            scores.append(await measure(data))
            print_row(data.name, f"{len(data.queries):,}", scores[-1])
    print_row("mean of the sets", "", *scores)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a set, as `toolscript eval` reads it")
    asyncio.run(run(parser.parse_args().folders))
