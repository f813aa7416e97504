"""Requests that no tool of the demo serves find the servers that would, among all servers of the training catalogue.

The catalogue has no descriptions of servers: an entry is made of the server's name and of the names of its tools, as
many as the API allows a description to have characters.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.fixtures.databases import open_memory_database
from tests.servers.registry import RegistryDouble, describe_server
from toolscript.adapters.memory import MemoryIndex
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.registry.client import HttpRegistries
from toolscript.adapters.sql.registries import SqlRegistries
from toolscript.retrieval.text.words import split_identifier
from toolscript.services.registry.catalogue import RegistryCatalogue

pytestmark = [pytest.mark.extended, pytest.mark.slow, pytest.mark.req("O-02")]

MAX_DESCRIPTION = 100
MIN_FOUND = 0.8


def name_entry(server: str) -> str:
    """The name in a registry: `owner__name` is at an account, `docker:name` at a company."""
    account = server.removeprefix("smithery:")
    owner, _, name = account.replace("__", "/", 1).rpartition("/")
    clean = re.sub(r"[^A-Za-z0-9._-]", "-", name.removeprefix("docker:"))
    return f"io.github.{re.sub(r'[^A-Za-z0-9.-]', '-', owner) or 'someone'}/{clean}"


def read_servers(shared_data: Path) -> dict[str, str]:
    """The servers of the training catalogue with their descriptions."""
    tools = defaultdict(list)
    with gzip.open(shared_data / "training" / "tools.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            tools[row["server"]].append(split_identifier(row["name"]))
    return {server: ", ".join(names)[:MAX_DESCRIPTION] for server, names in tools.items()}


async def test_the_right_server_is_among_three(tool_model: OnnxEmbedder, shared_data: Path) -> None:
    rows = [json.loads(line) for line in (REPOSITORY / "training/requests/registry.jsonl").read_text().splitlines()]
    servers = read_servers(shared_data)
    catalogue = RegistryCatalogue(HttpRegistries(), SqlRegistries(open_memory_database()), MemoryIndex(), tool_model)
    with RegistryDouble(page_size=100) as registry:
        for server, description in servers.items():
            registry.publish(describe_server(name_entry(server), description))
        report = await catalogue.sync(registry.root)
    assert report.total >= len(servers) - len(report.withheld) - 10, "nearly all names differ"
    found = {row["query"]: [hit.entry.name for hit in await catalogue.search(row["query"])] for row in rows}
    missed = [row["query"] for row in rows if not {*map(name_entry, row["relevant"])} & {*found[row["query"]]}]
    assert len(rows) == 60
    assert len(missed) <= (1 - MIN_FOUND) * len(rows), missed
