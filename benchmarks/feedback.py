"""What feedback gives: half of the queries of a set are traffic (searched, and each right tool among the first five
hits is called), the other half is measured before and after.

    python -m benchmarks.feedback --traffic DATA/metatool DATA/ultratool --untouched DATA/azure_mcp …

The untouched sets are measured in one catalogue with those of the traffic, so that tools that have moved could get
before theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from toolscript.app.app import App, open_app
from toolscript.domain.access import Caller
from toolscript.domain.catalog import Item
from toolscript.evaluation.datasets import JudgedQuery, ToolSet, read_set
from toolscript.evaluation.metrics import Scores, difference, mean, score_by_group
from toolscript.settings import load_settings

SEED = 20
HITS = 5
DEPTH = 100
MAX_CHARACTERS = 1000
NAMES = ("hit@1", "r@5", "ndcg@10")


@asynccontextmanager
async def open_catalogue(items: Sequence[Item]) -> AsyncIterator[App]:
    with tempfile.TemporaryDirectory(prefix="toolscript-feedback-") as folder:
        async with open_app(load_settings(data_dir=folder, index="memory:", store="sqlite://")) as app:
            await app.catalogue.sync.run(items)
            yield app


async def send_traffic(app: App, data: ToolSet, queries: Sequence[JudgedQuery]) -> None:
    """Searches, and calls the right tools among the hits, each query as another caller: a cap per caller would leave
    out some."""
    for number, judged in enumerate(queries):
        caller = Caller(key=f"caller {number}")
        found = await app.tools.search.search(judged.text[:MAX_CHARACTERS], limit=HITS)
        app.tools.feedback.note_search(caller, found.query, [hit.id for hit in found.hits])
        for set_id in judged.grades:
            app.tools.feedback.note_call(caller, data.items[set_id].id)
        await app.tools.feedback.close()  # waits for what is being written


async def measure(app: App, data: ToolSet, queries: Sequence[JudgedQuery]) -> list[Scores]:
    set_ids = {item.id: set_id for set_id, item in data.items.items()}
    scores = []
    for judged in queries:
        found = await app.tools.search.search(judged.text[:MAX_CHARACTERS], limit=DEPTH, threshold=0)
        scores.append(score_by_group(judged, [set_ids.get(hit.id, hit.id) for hit in found.hits]))
    return scores


def split(data: ToolSet) -> tuple[list[JudgedQuery], list[JudgedQuery]]:
    """Two halves, drawn at random."""
    queries = random.Random(SEED).sample(data.queries, len(data.queries))
    return queries[: len(queries) // 2], queries[len(queries) // 2 :]


def print_row(name: str, before: list[Scores], after: list[Scores]) -> None:
    gains, old, new = difference((after, before)), mean(before), mean(after)
    cells = [f"{old[n]:.3f} → {new[n]:.3f} ({gains[n].low:+.3f} to {gains[n].high:+.3f})" for n in NAMES]
    print(f"| {name} | {len(before)} | {' | '.join(cells)} |", flush=True)


async def report_steps(app: App) -> None:
    tools = await app.tools.feedback.list()
    states = [each.step.refusal if each.step else "waiting" for each in tools]
    moved = [each.step.cosine for each in tools if each.step and not each.step.refusal]
    print(
        f"{sum(len(each.requests) for each in tools)} successes of {len(tools)} tools, {len(moved)} moved "
        f"(mean cosine {sum(moved) / max(1, len(moved)):.3f}), {len(states) - len(moved)} refused",
        flush=True,
    )


async def measure_halves(sets: Sequence[ToolSet]) -> None:
    for data in sets:
        traffic, rest = split(data)
        async with open_catalogue(list(data.items.values())) as app:
            before = await measure(app, data, rest)
            await send_traffic(app, data, traffic)
            await app.tools.feedback.apply()
            print_row(data.name, before, await measure(app, data, rest))
            await report_steps(app)


async def measure_untouched(traffic: Sequence[ToolSet], untouched: Sequence[ToolSet]) -> None:
    items: Mapping[str, Item] = {item.id: item for data in [*traffic, *untouched] for item in data.items.values()}
    async with open_catalogue(list(items.values())) as app:
        print(f"all sets in one catalogue of {len(items)} tools", flush=True)
        before = [await measure(app, data, data.queries) for data in untouched]
        for data in traffic:
            await send_traffic(app, data, split(data)[0])
        await app.tools.feedback.apply()
        await report_steps(app)
        for data, old in zip(untouched, before, strict=True):
            print_row(data.name, old, await measure(app, data, data.queries))


def read_tools(folder: Path) -> ToolSet:
    data = read_set(folder)
    if not isinstance(data, ToolSet):
        raise SystemExit(f"{folder} is not a set of tools")
    return data


async def run(arguments: argparse.Namespace) -> None:
    traffic, untouched = ([read_tools(f) for f in folders] for folders in (arguments.traffic, arguments.untouched))
    print(f"| set | queries | {' | '.join(NAMES)} |\n|---|---|---|---|---|", flush=True)
    await measure_halves(traffic)
    if untouched:
        await measure_untouched(traffic, untouched)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traffic", nargs="+", type=Path, required=True, metavar="DIR")
    parser.add_argument("--untouched", nargs="*", type=Path, default=[], metavar="DIR")
    asyncio.run(run(parser.parse_args()))
