"""A store and an index that stop answering: every request is answered within its bound, honestly and without details,
tools can be called throughout, and everything works again by itself."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import make_scripted_spec
from tests.servers.gateway import RunningGateway, run_gateway
from tests.servers.postgres import freeze, run_postgres
from tests.servers.processes import ServerFailed
from toolscript.app.app import local_token

# A server that is silent for 10 s counts as lost; threads that wait for it are busy for another 10 s.
BOUND_SECONDS = 45.0
RECOVERY_SECONDS = 60.0
DOCUMENT = {"text": "The lease ends in May."}


@dataclass
class Outage:
    """A gateway whose store and index are in a PostgreSQL of its own."""

    uri: str
    gateway: RunningGateway
    folder: Path

    def open_client(self) -> httpx.Client:
        note = json.loads((self.folder / "data" / "gateway.json").read_text())
        headers = {"Authorization": f"Bearer {local_token(note['key'], 'acme')}"}
        return httpx.Client(base_url=self.gateway.url, headers=headers, timeout=2 * BOUND_SECONDS)

    def log_lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.gateway.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]


@pytest.fixture(scope="module")
def outage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outage]:
    folder = tmp_path_factory.mktemp("outage")
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"up": make_scripted_spec(tools=["echo", "slow"])}}))
    with ExitStack() as stack:
        try:
            uri = stack.enter_context(run_postgres())
        except ServerFailed as error:
            pytest.skip(str(error))
        data = str(folder / "data")
        yield Outage(
            uri,
            stack.enter_context(run_gateway(folder, "--config", str(config), STORE=uri, INDEX=uri, DATA_DIR=data)),
            folder,
        )


def send(outage: Outage, requests: Mapping[str, dict[str, Any]]) -> dict[str, tuple[httpx.Response, float]]:
    """Sends all requests at once; the responses, and how many seconds each took."""
    with outage.open_client() as client, ThreadPoolExecutor(len(requests)) as threads:

        def work(request: dict[str, Any]) -> tuple[httpx.Response, float]:
            began = time.monotonic()
            return client.request(**{"method": "GET"} | request), time.monotonic() - began

        return dict(zip(requests, threads.map(work, requests.values()), strict=True))


HEALTH: dict[str, Any] = {"url": "/search/health"}
READS: dict[str, dict[str, Any]] = {
    "ready": {"url": "/ready"},
    "search": {"url": "/search?q=echo&threshold=0"},
    "hierarchical": {"url": "/api/v1/search", "method": "POST", "json": {"query": "echo"}},
    "tools": {"url": "/tools"},
    "stats": {"url": "/search/stats"},
    "skills": {"url": "/api/v1/skills"},
    "document": {"url": "/documents/lease"},
    "documents": {"url": "/documents"},
    "search of documents": {"url": "/search", "method": "POST", "json": {"query": "lease"}},
    "health of documents": HEALTH,
    "knowledge": {"url": "/search_knowledge?query=lease", "method": "POST"},
}
WRITES: dict[str, dict[str, Any]] = {
    "put": {"url": "/documents/lease", "method": "PUT", "json": DOCUMENT},
    "post": {"url": "/documents", "method": "POST", "json": {"documents": [{"id": "lease", **DOCUMENT}]}},
    "sync": {"url": "/api/v1/sync", "method": "POST"},
}
CALLS: dict[str, dict[str, Any]] = {
    "call": {"url": "/tools/up__echo", "method": "POST", "json": {"text": "hello"}},
    "description": {"url": "/tools/up__echo"},
    "slow call": {"url": "/tools/up__slow?timeout=1", "method": "POST", "json": {"seconds": 60}},
}


@pytest.mark.extended
@pytest.mark.req("X-03", "G-05", "D-09")
def test_while_postgresql_is_frozen_every_request_is_answered_and_afterwards_all_work(outage: Outage) -> None:
    before = send(outage, {"put": WRITES["put"]}) | send(outage, READS)
    assert {name: r.status_code for name, (r, _) in before.items() if r.status_code not in (200, 201)} == {}
    with freeze(outage.uri):
        calls = send(outage, CALLS)
        others = send(outage, READS | WRITES)
        calls_later = send(outage, CALLS)
        others |= send(outage, {"health of documents": HEALTH})  # a result from before the outage is no longer used
    for answers in (calls, calls_later):
        assert {name: r.status_code for name, (r, _) in answers.items()} == {
            "call": 200,
            "description": 200,
            "slow call": 504,
        }
    assert {name: took for name, (_, took) in (calls | others | calls_later).items() if took > BOUND_SECONDS} == {}
    answered = {name for name, (r, _) in others.items() if r.status_code == 200}
    # Results of searches are known from before.
    assert answered <= {"search", "hierarchical", "sync"}, {n: r.text for n, (r, _) in others.items()}
    assert {r.status_code for name, (r, _) in others.items() if name not in answered} == {503}
    for response, _ in others.values():
        assert not any(secret in response.text for secret in (outage.uri, "postgres", "socket", "/tmp"))
    logged = Counter(line["adapter"] for line in outage.log_lines("not_available"))
    assert logged["store"] == logged["index"] == 1, outage.gateway.log.read_text()
    end = time.monotonic() + RECOVERY_SECONDS
    while failing := {n: r.text for n, (r, _) in send(outage, READS | WRITES).items() if r.status_code >= 400}:
        assert time.monotonic() < end, failing
    assert {line["adapter"] for line in outage.log_lines("available_again")} == {"store", "index"}
