"""Times a gateway with the operations of all public APIs that there are packages of, beside a tenth of them."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.client import Client
from benchmarks.embedding import find_packaged_model
from benchmarks.gateway import SEARCH_NOTE, RunningGateway, start_gateway, time_searches
from benchmarks.texts import make_queries
from benchmarks.timing import Row, Table, compare_table, format_duration, format_number, side_by_side
from tests.servers import make_scripted_spec
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.domain.catalog import Item
from toolscript.retrieval.text.item_text import build_item_text

OPERATIONS = os.environ.get("TOOLSCRIPT_TEST_OPERATIONS", "")
SMALL = 5_792
PER_SERVER = 8_000
START_NOTE = (
    "`toolscript gateway start` as a process of its own, with servers that list up to 8,000 operations each, in pages "
    "of 500: from the start of the process until everything is indexed, then again with what is there (until the "
    "catalogue of the last run is open). The reference of the first start is embedding 2,000 of the same texts and "
    "nothing else, times their number; of the others, the start with 5,792 operations. Memory is what is resident then."
)


async def run(quick: bool) -> list[Table]:
    """Two sizes of one catalogue. Raises FileNotFoundError without a folder of operations."""
    items = _read_operations(Path(OPERATIONS))
    items = items[:3_000] if quick else items
    starts: list[tuple[str, ...]] = []
    rows: list[Row] = []
    again_small = 0.0
    for count in (min(SMALL, len(items) // 2), len(items)):
        chosen, size = items[:count], f"{count:,} operations"
        seconds = await _embed_alone(chosen[: 200 if quick else 2_000]) * count
        with TemporaryDirectory() as folder:
            place = Path(folder)
            _write_servers(place, chosen)
            with start_gateway(place, count) as first:
                pass
            with start_gateway(place, count) as again:
                rows.append(await time_searches(again, size, 40 if quick else 400))
                rows.append(await _time_searches_by_skills(again, size, 40 if quick else 400))
        again_small = again_small or again.ready_seconds
        starts.append(_describe("first start", size, first, "embedding alone", seconds))
        starts.append(_describe("started again", size, again, "started with the fewer", again_small))
    columns = ("What", "Size", "Ready after", "Memory", "Reference", "Its time", "Time ÷ reference")
    return [
        Table("Starting with operations", columns, starts, START_NOTE),
        compare_table("Searches among operations", rows, SEARCH_NOTE),
    ]


def _describe(what: str, size: str, started: RunningGateway, reference: str, seconds: float) -> tuple[str, ...]:
    took = started.ready_seconds
    return (
        what,
        size,
        format_duration(took),
        f"{started.resident / 2**20:.0f} MiB",
        reference,
        format_duration(seconds),
        format_number(took / seconds),
    )


def _read_operations(folder: Path) -> list[Item]:
    """The operations of all `*.jsonl` files of a folder, one of each name of a server, in an order by chance."""
    rows = [
        json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text("utf-8").splitlines()
    ]
    if not rows:
        raise FileNotFoundError("TOOLSCRIPT_TEST_OPERATIONS names no folder with operations as JSON lines")
    items = {(row["server"], row["name"]): Item(**row) for row in rows}
    return random.Random(1).sample(list(items.values()), len(items))


def _write_servers(place: Path, items: Sequence[Item]) -> None:
    servers = {}
    for start in range(0, len(items), PER_SERVER):
        name = f"apis-{start // PER_SERVER}"
        fields = ("server", "name", "description", "input_schema")
        lines = [json.dumps({f: getattr(item, f) for f in fields}) for item in items[start : start + PER_SERVER]]
        file = place / f"{name}.jsonl.gz"
        file.write_bytes(gzip.compress("\n".join(lines).encode()))
        servers[name] = make_scripted_spec(catalog=str(file), page_size=500)
    (place / ".toolscript.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


async def _embed_alone(items: Sequence[Item]) -> float:
    """The seconds per text."""
    embedder = OnnxEmbedder(find_packaged_model(), device="cpu")
    texts = [build_item_text(item) for item in items]
    await embedder.embed_documents(texts[:64])
    began = time.perf_counter()
    await embedder.embed_documents(texts)
    took = time.perf_counter() - began
    await embedder.close()
    return took / len(texts)


async def _time_searches_by_skills(gateway: RunningGateway, size: str, count: int) -> Row:
    alone, client = OnnxEmbedder(find_packaged_model(), device="cpu"), Client(gateway.url, "/api/v1/search")
    for query in make_queries(20, seed=6):
        await client.search(query)
        await alone.embed_query(query)
    ours, beside = await side_by_side(make_queries(count, seed=8), client.search, alone.embed_query)
    await alone.close()
    client.close()
    return Row("`POST /api/v1/search`, new queries", size, ours, "embedding alone", beside)
