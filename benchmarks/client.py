"""HTTP clients of the gateway for benchmarks: one connection each, kept open."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Client:
    """One connection to a search route. `fields` are sent beside the query."""

    def __init__(self, url: str, path: str, *, token: str = "", **fields: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"))
        self._path = path
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._fields = fields

    def fetch(self, query: str) -> bytes:
        """The body of the response; waits for it. Raises AssertionError for any status but 200."""
        body = json.dumps({"query": query, **self._fields})
        self._connection.request("POST", self._path, body, self._headers)
        response = self._connection.getresponse()
        content = response.read()
        assert response.status == http.client.OK, content
        return content

    async def search(self, query: str) -> Any:
        """The parsed response. Blocks the event loop: a benchmark has nothing else to do meanwhile."""
        return json.loads(self.fetch(query))

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


def measure_rate(url: str, path: str, queries_by_client: Sequence[Sequence[str]]) -> float:
    """Requests per second of concurrent clients, each in a thread: a client sends its next query when the last one is
    answered."""
    clients = [Client(url, path) for _ in queries_by_client]

    def send(client: Client, queries: Sequence[str]) -> None:
        for query in queries:
            client.fetch(query)

    with ThreadPoolExecutor(len(clients)) as threads:
        began = time.perf_counter()
        list(threads.map(send, clients, queries_by_client))
        took = time.perf_counter() - began
    for client in clients:
        client.close()
    return sum(map(len, queries_by_client)) / took
