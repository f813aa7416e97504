"""Several gateways on one PostgreSQL and one configuration file give the same answers, whatever happens to them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fixtures.examples import choose
from tests.servers import make_scripted_spec
from tests.servers.gateway_process import Gateway, start_gateway, wait_until

pytestmark = pytest.mark.req("X-02", "H-14", "G-20")

# The promise is 2 s; a busy machine may take much longer.
AGREE_SECONDS = 60.0
QUERIES = ("echo", "read a note", "water the plants", "process id", "sleep slowly")
SECRET = "a-secret-for-the-tokens-of-the-tests"
PLANS = "[plans.default]\nrequests_per_minute = 1\n"


class Replicas:
    """Gateways that share a database and a configuration file."""

    def __init__(self, folder: Path, store: str, stack: ExitStack, count: int) -> None:
        self.folder, self._stack = folder, stack
        self.garden = folder / "garden.json"
        self.shared = folder / "shared.json"
        plans = folder / "plans.toml"
        plans.write_text(PLANS)
        self._variables = {
            "TOOLSCRIPT_STORE": store,
            "TOOLSCRIPT_INDEX": store,
            "TOOLSCRIPT_PLANS": str(plans),
            "TOOLSCRIPT_JWT_SECRET": SECRET,
        }
        self.offer("water_the_plants")
        self.configure(base=make_scripted_spec(tools=["echo", "pid"]))
        self.gateways = [self.start(n) for n in range(count)]
        wait_until(lambda: all(gateway.is_ready() for gateway in self.gateways))

    def start(self, number: int) -> Gateway:
        return self._stack.enter_context(start_gateway(self.folder / str(number), self.shared, **self._variables))

    def configure(self, **servers: Any) -> None:
        draft = self.shared.with_suffix(".new")
        draft.write_text(json.dumps({"mcpServers": servers}))
        draft.replace(self.shared)

    def offer(self, *tools: str) -> None:
        """What the server `garden` offers; it announces changes."""
        listed = [{"name": name, "description": name.replace("_", " "), "inputSchema": {}} for name in tools]
        draft = self.garden.with_suffix(".new")
        draft.write_text(json.dumps({"tools": listed}))
        draft.replace(self.garden)

    def answers(self, gateway: Gateway) -> list[Any]:
        found = [gateway.http.get("/search", params={"q": q, "threshold": 0, "limit": 20}).json() for q in QUERIES]
        skills = gateway.http.post("/api/v1/search", json={"query": QUERIES[2]}).json()
        tools = gateway.http.get("/tools").json()["tools"]
        return [*found, [hit["id"] for hit in skills["tools"]], tools]

    def agree(self, *tools: str, among: int | None = None) -> None:
        """Waits until all gateways know exactly these tools and give the same answers."""

        def have_agreed() -> bool:
            answers = [self.answers(gateway) for gateway in self.gateways[:among]]
            known = [[tool["toolId"] for tool in answer[-1]] for answer in answers]
            return known == [sorted(tools)] * len(answers) and all(answer == answers[0] for answer in answers)

        def is_found() -> bool:
            """A search that a stall of the machine has degraded says so, and need not find anything."""
            first = self.gateways[0].http.get("/search", params={"q": tools[-1]}).json()
            assert "degraded" in first or first["results"][0]["toolId"] == tools[-1]
            return "degraded" not in first

        wait_until(have_agreed, AGREE_SECONDS)
        wait_until(is_found, AGREE_SECONDS)


@pytest.fixture
def replicas(tmp_path: Path, postgres: str, request: pytest.FixtureRequest) -> Iterator[Replicas]:
    """Three gateways, or as many as a test asks for."""
    drop_index(postgres)  # other tests leave theirs
    with ExitStack() as stack:
        yield Replicas(tmp_path, postgres, stack, getattr(request, "param", 3))
    drop_index(postgres)


def drop_index(postgres: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS toolscript_index CASCADE")


@pytest.mark.extended
def test_three_gateways_agree_after_every_change_and_after_one_was_killed(replicas: Replicas) -> None:
    base = make_scripted_spec(tools=["echo", "pid"])
    garden = make_scripted_spec(watch=str(replicas.garden))
    replicas.agree("base__echo", "base__pid")

    replicas.configure(base=base, garden=garden)  # a new server
    replicas.agree("base__echo", "base__pid", "garden__water_the_plants")

    replicas.offer("water_the_plants", "read_a_note")  # a server with another tool
    replicas.agree("base__echo", "base__pid", "garden__water_the_plants", "garden__read_a_note")

    changed = {"id": "plants", "name": "Plants", "description": "Gardens and all that grows in them."}
    assert replicas.gateways[1].http.post("/api/v1/skills", json=changed).status_code == 201
    put = replicas.gateways[1].http.put("/api/v1/tools/base__echo/skills", json={"skill_ids": ["plants"]})
    assert put.status_code == 200, put.text

    def knows_skill(gateway: Gateway) -> bool:
        return bool(gateway.http.get("/api/v1/skills/plants/tools").json().get("tools"))

    wait_until(lambda: all(map(knows_skill, replicas.gateways)), AGREE_SECONDS)
    replicas.agree("base__echo", "base__pid", "garden__water_the_plants", "garden__read_a_note")

    replicas.gateways[2].end(signal.SIGKILL)
    replicas.offer("prune_the_roses")  # while one is gone
    replicas.agree("base__echo", "base__pid", "garden__prune_the_roses", among=2)
    replicas.gateways[2] = replicas.start(2)
    wait_until(replicas.gateways[2].is_ready)
    replicas.agree("base__echo", "base__pid", "garden__prune_the_roses")

    replicas.configure(base=base)  # a server leaves
    replicas.agree("base__pid", "base__echo")
    _check_shared_limits(replicas)
    assert all(gateway.end() == 0 for gateway in replicas.gateways)


def _check_shared_limits(replicas: Replicas) -> None:
    """A plan's requests are counted over all gateways together."""
    jwt = pytest.importorskip("jwt")
    token = jwt.encode({"tenant_id": "acme", "exp": 4_000_000_000, "sub": "tests"}, SECRET, "HS256")
    headers = {"Authorization": f"Bearer {token}"}
    statuses = [
        gateway.http.post("/search", json={"query": "x"}, headers=headers).status_code
        for _ in range(3)
        for gateway in replicas.gateways
    ]
    assert 0 < statuses.count(200) < len(replicas.gateways), statuses  # a minute may pass meanwhile


@pytest.mark.req("G-15")
@pytest.mark.parametrize("replicas", choose([2, 3], 2), indirect=True)
def test_gateways_agree_on_what_is_in_quarantine_and_on_an_approval(replicas: Replicas) -> None:
    tool = "garden__water_the_plants"
    replicas.configure(garden=make_scripted_spec(watch=str(replicas.garden)))
    replicas.agree(tool)

    def read(key: str) -> set[str | None]:
        return {gateway.http.get(f"/tools/{tool}").json().get(key) for gateway in replicas.gateways}

    changed = {"name": "water_the_plants", "description": "Waters and sells the plants.", "inputSchema": {}}
    replicas.garden.write_text(json.dumps({"tools": [changed]}))
    wait_until(lambda: read("quarantined") == {"its description changed after it was approved"}, AGREE_SECONDS)
    assert read("description") == {"water the plants"}
    for gateway in replicas.gateways:
        assert gateway.http.post(f"/tools/{tool}", json={}).status_code == 409
    approved = replicas.gateways[1].http.post("/api/v1/quarantine/approve", json={"tool_ids": [tool]})
    assert approved.json() == {"tool_ids": [tool]}
    wait_until(lambda: read("quarantined") == {None}, AGREE_SECONDS)
    assert read("description") == {"Waters and sells the plants."}
