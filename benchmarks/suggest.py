"""How often `toolscript suggest` speaks, and how often it is right: on each set of tools, for its own requests, and for
requests of other sets, which no tool of the set serves.

python -m benchmarks.suggest FOLDER...              (folders with tools.jsonl and queries.jsonl)
python -m benchmarks.suggest --process DATA_DIR     (how long a process takes beside the gateway of that folder)
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from toolscript.app.app import App, open_app
from toolscript.evaluation.datasets import ToolSet, read_set
from toolscript.pipe.suggest import MAX_PROMPT_CHARACTERS, MAX_TOOLS
from toolscript.settings import load_settings

QUERIES = 150
ROUNDS = 30
PROMPT = "return an environment variable"
THRESHOLDS = (0.35, 0.7, 0.8, 0.85, 0.9, 0.95)


async def measure(folders: list[Path]) -> None:
    """Prints a line for each set and threshold."""
    read = {folder.name: read_set(folder) for folder in folders}
    sets = {name: data for name, data in read.items() if isinstance(data, ToolSet)}
    print("| set | threshold | speaks | right when it speaks | silent for requests of other sets |")
    print("|---|---|---|---|---|")
    for name, data in sets.items():
        ids = {item.id: known for known, item in data.items.items()}
        step = max(1, len(data.queries) // QUERIES)
        own = [(query.text, set(query.grades)) for query in data.queries[::step]]
        others = [
            query.text
            for other, each in sets.items()
            if other != name
            for query in each.queries[:: max(1, len(each.queries) * (len(sets) - 1) // QUERIES)]
        ]
        with tempfile.TemporaryDirectory() as folder:
            async with open_app(load_settings(data_dir=Path(folder))) as app:
                await app.catalogue.sync.run(list(data.items.values()))

                served = [(await find(app, ids, text), right) for text, right in own]
                unserved = [await find(app, ids, text) for text in others]
        for threshold in THRESHOLDS:
            spoken = [
                any(each & right for confidence, each in hits if confidence >= threshold)
                for hits, right in served
                if hits and hits[0][0] >= threshold
            ]
            silent = sum(not hits or hits[0][0] < threshold for hits in unserved)
            right = sum(spoken) / max(1, len(spoken))
            row = f"{len(spoken) / len(served):.3f} of {len(served)} | {right:.3f}"
            print(f"| {name} | {threshold:.2f} | {row} | {silent / len(unserved):.3f} of {len(unserved)} |", flush=True)


def time_processes(data: Path) -> None:
    """Prints what a suggestion takes as a process, and what Python's own start takes of it."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "toolscript suggest": [sys.executable, "-m", "toolscript", "suggest", "--data-dir", str(data)],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(ROUNDS):
        for name, command in commands.items():
            begin = time.perf_counter()
            subprocess.run(command, input=f"{PROMPT} {number}".encode(), capture_output=True, check=True)
            times[name].append(1000 * (time.perf_counter() - begin))
    for name, taken in times.items():
        print(f"{name}: p50 {statistics.median(taken):.0f} ms, p90 {statistics.quantiles(taken, n=10)[-1]:.0f} ms")


async def find(app: App, ids: Mapping[str, str], text: str) -> list[tuple[float, set[str]]]:
    """The confidences of the first tools, each with the ids that the set has for the tool and its copies."""
    query = text[:MAX_PROMPT_CHARACTERS]
    found = await app.tools.search.search(query, limit=MAX_TOOLS, threshold=min(THRESHOLDS), recorded=False)
    return [(hit.confidence, {ids[each] for each in hit.ids}) for hit in found.hits]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--process"]:
        time_processes(Path(sys.argv[2]))
    else:
        asyncio.run(measure([Path(each) for each in sys.argv[1:]]))
