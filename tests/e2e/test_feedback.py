"""A gateway learns from use: what was searched and then called ranks before near equals for similar requests, until it
is reset."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import make_scripted_spec
from tests.servers.gateway import run_gateway

PACKAGED = "all-MiniLM-L6-v2"
DEADLINE_SECONDS = 60.0
TOOLS = {
    "run_pipeline": "Publish the software with the continuous delivery system",
    "send_parcel": "Hand a parcel over to the carrier",
    "track_parcel": "Show where a parcel is",
    "publish_page": "Publish a page of the web site for everybody",
    "send_newsletter": "Send the newsletter to all customers",
    "list_pipelines": "List the pipelines of the continuous delivery system",
}
TOOL = "ops__run_pipeline"
REQUESTS = [
    "send the new version out into the world",
    "bring version 2.1 to all customers",
    "get the release out today",
    "let everybody have what we have built",
]
PARAPHRASE = "get version 2.2 out to the people"


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx.Client]:
    tools = [{"name": n, "description": d, "inputSchema": {"type": "object"}} for n, d in TOOLS.items()]
    (tmp_path / "lists.json").write_text(json.dumps({"tools": tools}))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"ops": make_scripted_spec(watch=str(tmp_path / "lists.json"))}}))
    arguments = ("--config", str(config), "--data-dir", str(tmp_path / "data"))
    with (
        run_gateway(tmp_path, *arguments, SEARCH_MODEL=PACKAGED) as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        yield client


def search(http: httpx.Client, query: str) -> dict[str, dict[str, Any]]:
    """The hits, best first."""
    found = http.get("/search", params={"q": query, "limit": 10, "threshold": 0}).json()["results"]
    return {hit["toolId"]: hit for hit in found}


def wait_for_successes(http: httpx.Client, successes: int) -> None:
    """Waits until so many successes of the tool are written."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while [tool["successes"] for tool in list_feedback(http)] != [successes]:
        assert time.monotonic() < deadline, list_feedback(http)
        time.sleep(0.05)


def list_feedback(http: httpx.Client) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = http.get("/api/v1/feedback").json()["tools"]
    return tools


# tests/unit/services/catalogue/test_learning.py and tests/surfaces/http/test_feedback.py show it in parts.
@pytest.mark.extended
@pytest.mark.req("Q-05", "Q-08")
def test_a_tool_that_was_called_is_before_near_equals_for_a_paraphrase_until_it_is_reset(http: httpx.Client) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while TOOL not in (before := search(http, PARAPHRASE)):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    for request in REQUESTS:
        assert TOOL in search(http, request)
        assert http.post(f"/tools/{TOOL}", json={}).status_code == 200
    wait_for_successes(http, len(REQUESTS))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while next(iter(after := search(http, PARAPHRASE))) != TOOL:  # steps are computed within half a minute
        assert time.monotonic() < deadline, list_feedback(http)
        time.sleep(0.5)
    assert [tool["state"] for tool in list_feedback(http)] == ["moved"]
    assert next(iter(before)) == "ops__publish_page"
    assert after[TOOL]["reason"] == f"{before[TOOL]['reason']} + used for similar requests"
    confidences = [{tool: hit["confidence"] for tool, hit in hits.items()} for hits in (before, after)]
    assert confidences[0] == confidences[1]

    assert http.delete(f"/api/v1/feedback/{TOOL}").json() == {"removed": len(REQUESTS)}
    assert list(search(http, PARAPHRASE).items()) == list(before.items())
