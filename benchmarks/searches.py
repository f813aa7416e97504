"""Times whole tool searches, in a running process and from the command line, beside the minimum each must cost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.embedding import find_packaged_model
from benchmarks.texts import make_catalogue, make_queries
from benchmarks.timing import Row, Sample, Table, compare_table, measure_seconds, side_by_side
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.onnx.model_folders import PACKAGED
from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item
from toolscript.domain.profiles import ItemRules, Profile
from toolscript.domain.requests import RequestContext, use_request
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.settings import PREFIX, load_settings

REPEATED = 20
FEW = 50
NOTE = (
    "One client; the embedded index and store, the packaged model; the demo catalogue and larger ones made from it. "
    "New queries are beside embedding the same queries and nothing else; repeated ones, whose vectors are "
    "remembered, beside new ones in the same catalogue; those of a caller whose profile shows 50 tools, beside those "
    "of one who sees all."
)
COMMAND_NOTE = (
    "`toolscript search` on the demo catalogue as a process of its own: with an empty data folder, where the "
    "catalogue is indexed first, and once everything is indexed (warm). Medians of five runs, of three in a quick run."
)


async def run(quick: bool) -> list[Table]:
    """Searches in the demo catalogue and larger ones, then the command line."""
    catalogues = [load_demo_items(), make_catalogue(1_000), *([] if quick else [make_catalogue(5_000)])]
    rows: list[Row] = []
    for items in catalogues:
        rows += await _in_process(items, 80 if quick else 400)
    return [
        compare_table("Whole tool searches", rows, NOTE),
        compare_table("The command line", await _commands(3 if quick else 5), COMMAND_NOTE),
    ]


async def _in_process(items: list[Item], count: int) -> list[Row]:
    with TemporaryDirectory() as folder:
        settings = load_settings(variables={}, data_dir=folder, search_model=PACKAGED, search_device="cpu")
        async with open_app(settings) as app:
            await app.catalogue.sync.run(items)
            visible = tuple(item.id for item in items[:: max(1, len(items) // FEW)][:FEW])
            app.access.profiles.replace([Profile("few", allow=ItemRules(tools=visible))])
            return await _searches(app, f"{len(items):,} tools", count)


async def _searches(app: App, size: str, count: int) -> list[Row]:
    alone = OnnxEmbedder(find_packaged_model(), device="cpu")
    for query in make_queries(REPEATED, seed=5):
        await app.tools.search.search(query)
        await alone.embed_query(query)
    queries = make_queries(count, seed=6)
    new, embedding = await side_by_side(queries, app.tools.search.search, alone.embed_query)
    await alone.close()
    again = queries[:REPEATED] * (count // REPEATED)
    repeated = Sample([await measure_seconds(app.tools.search.search, query) for query in again])
    few, everything = await side_by_side(again, partial(_search_few, app), app.tools.search.search)
    return [
        Row("New queries", size, new, "embedding alone", embedding),
        Row("Repeated queries", size, repeated, "new queries", new),
        Row(f"Repeated queries, profile of {FEW} tools", size, few, "without a profile", everything),
    ]


async def _search_few(app: App, query: str) -> None:
    with use_request(RequestContext(profile="few")):
        await app.tools.search.search(query)


async def _commands(times: int) -> list[Row]:
    with TemporaryDirectory() as folder:
        folders = [Path(folder) / f"fresh-{n}" for n in range(times)]
        first, bare = await side_by_side(folders, _search_command, _nothing)
        warm, bare_again = await side_by_side([folders[0]] * times, _search_command, _nothing)
    size = f"{len(load_demo_items())} tools"
    return [
        Row("`toolscript search`, first", size, first, "`python -c pass`", bare),
        Row("`toolscript search`, warm", size, warm, "`python -c pass`", bare_again),
    ]


async def _search_command(data_dir: Path) -> None:
    arguments = ["search", "put my changes into version control", "--model", PACKAGED, "--data-dir", str(data_dir)]
    await _python("-m", "toolscript", *arguments)


async def _nothing(_: Path) -> None:
    await _python("-c", "pass")


async def _python(*arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    command = [sys.executable, *arguments]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, env=environment)
