"""Skills over HTTP: defined, filled, suggested, proposed; and the errors of wrong requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item, ItemType, Suggestion
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("H-09")

SKILLS = "/api/v1/skills"
PAGE = Item("wiki", "file:///notes/a b", "A page about bees", type=ItemType.RESOURCE)
BEES = {"id": "bee_keeping", "name": "Bee Keeping", "description": "Hives.", "keywords": ["bee"], "examples": ["buzz"]}
TOOL = "calendar__create_event"


@asynccontextmanager
async def open_http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    await app.catalogue.sync.run([*load_demo_items(), PAGE])
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    async with open_http(app) as client:
        yield client


@pytest.fixture(scope="module")
async def unchanged(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """For requests that are refused, or only read."""
    settings = load_settings(variables={}, data_dir=tmp_path_factory.mktemp("unchanged"), search_model="hashed-64")
    async with open_app(settings) as app, open_http(app) as client:
        yield client


async def add_suggestion(app: App, name: str, tool: str | None = None) -> int:
    number = (await app.stores.skills.add_suggestion(Suggestion(name, "Why not", tool, keywords=("why",)))).number
    assert number is not None
    return number


@pytest.mark.req("H-13")
async def test_a_skill_has_its_tools_and_the_time_of_its_last_change_on_request(http: httpx.AsyncClient) -> None:
    await http.post(SKILLS, json=BEES)
    await http.put(f"/api/v1/tools/{PAGE.id}/skills", json={"skill_ids": ["bee_keeping"]})
    plain, detailed = [(await http.get(f"{SKILLS}/bee_keeping{query}")).json() for query in ("", "?details=true")]
    assert detailed == plain | {"tool_ids": [PAGE.id], "updated_at": detailed["updated_at"]}
    age = datetime.now(UTC) - datetime.fromisoformat(detailed["updated_at"])
    assert timedelta(seconds=-5) < age < timedelta(hours=1)


async def test_a_skill_is_created_replaced_and_removed(http: httpx.AsyncClient) -> None:
    made = await http.post(SKILLS, json=BEES)
    assert made.status_code == 201
    response = made.json()
    assert {k: response[k] for k in BEES} == BEES
    assert (response["parent_domain"], response["is_active"]) == (None, True)
    assert isinstance(response["tool_count"], int)
    assert (await http.get(f"{SKILLS}/bee_keeping")).json() == response

    changed = await http.put(f"{SKILLS}/bee_keeping", json={"name": "Bees", "parent_domain": "nature"})
    assert changed.status_code == 200
    assert (changed.json()["name"], changed.json()["parent_domain"], changed.json()["keywords"]) == (
        "Bees",
        "nature",
        [],
    )

    listed = (await http.get(SKILLS)).json()
    assert listed["total"] == len(listed["skills"])
    assert changed.json()["id"] in [s["id"] for s in listed["skills"]]

    gone = await http.delete(f"{SKILLS}/bee_keeping")
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await http.get(f"{SKILLS}/bee_keeping")).status_code == 404


async def test_an_id_that_is_taken_is_a_conflict(http: httpx.AsyncClient) -> None:
    await http.post(SKILLS, json=BEES)
    again = await http.post(SKILLS, json=BEES)
    assert again.status_code == 409
    assert again.json()["error"]["code"] == "CONFLICT"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{SKILLS}/nothing"),
        ("DELETE", f"{SKILLS}/nothing"),
        ("GET", f"{SKILLS}/nothing/tools"),
        ("POST", f"{SKILLS}/suggestions/4711/approve"),
        ("POST", f"{SKILLS}/suggestions/4711/reject"),
        ("DELETE", "/api/v1/tools/no__such/skills"),
    ],
)
async def test_unknown_skills_and_suggestions_are_a_404(unchanged: httpx.AsyncClient, method: str, path: str) -> None:
    answer = await unchanged.request(method, path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "NOT_FOUND"
    assert "no such" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": "Bees"}, "id"),
        ({"name": " "}, "name"),
        ({"description": "x" * 4001}, "description"),
        ({"keywords": "bee"}, "keywords"),
        ({"keywords": ["ok", ""]}, "1"),
        ({"is_active": "perhaps"}, "is_active"),
        ({"colour": "yellow"}, "colour"),
    ],
)
async def test_an_invalid_skill_is_refused_with_the_name_of_the_field(
    unchanged: httpx.AsyncClient, change: dict[str, Any], field: str
) -> None:
    answer = await unchanged.post(SKILLS, json={**BEES, **change})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["field"] == field


async def test_the_id_of_a_skill_cannot_change(http: httpx.AsyncClient) -> None:
    await http.post(SKILLS, json=BEES)
    answer = await http.put(f"{SKILLS}/bee_keeping", json={"id": "wasps", "name": "Wasps"})
    assert answer.status_code == 400
    assert answer.json()["error"]["details"]["field"] == "id"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{SKILLS}/suggestions?status=odd", None),
        ("POST", f"{SKILLS}/suggestions/0/reject", None),
        ("POST", f"{SKILLS}/suggestions/1/merge", {}),
        ("POST", f"{SKILLS}/suggestions/1/reject", {"why": "no"}),
        ("POST", f"{SKILLS}/propose", {"count": 0}),
        ("PUT", f"/api/v1/tools/{TOOL}/skills", {"skill_ids": []}),
    ],
)
async def test_numbers_out_of_range_are_refused(
    unchanged: httpx.AsyncClient, method: str, path: str, body: dict[str, Any] | None
) -> None:
    answer = await unchanged.request(method, path, json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "VALIDATION_ERROR"


@pytest.mark.req("H-10")
async def test_a_tool_is_assigned_to_a_skill_and_released(http: httpx.AsyncClient) -> None:
    await http.post(SKILLS, json=BEES)
    response = await http.put(f"/api/v1/tools/{TOOL}/skills", json={"skill_ids": ["bee_keeping"]})
    assert response.status_code == 200
    by_person = {"skill_id": "bee_keeping", "confidence": 1.0, "origin": "human", "is_primary": True}
    assert (response.json()["id"], response.json()["skills"]) == (TOOL, [by_person])

    inside = (await http.get(f"{SKILLS}/bee_keeping/tools")).json()
    found = next(t for t in inside["tools"] if t["id"] == TOOL)
    assert inside["total"] == len(inside["tools"])
    assert (found["server"], found["name"], found["type"]) == ("calendar", "create_event", "tool")
    assert (found["confidence"], found["origin"], found["is_primary"]) == (1.0, "human", True)

    back = await http.delete(f"/api/v1/tools/{TOOL}/skills")
    assert back.status_code == 200
    assert all(s["origin"] != "human" for s in back.json()["skills"])


@pytest.mark.req("H-10")
async def test_an_id_with_slashes_and_spaces_is_one_id(http: httpx.AsyncClient) -> None:
    await http.post(SKILLS, json=BEES)
    response = await http.put(f"/api/v1/tools/{PAGE.id}/skills", json={"skill_ids": ["bee_keeping"]})
    assert (response.status_code, response.json()["id"]) == (200, PAGE.id)


@pytest.mark.req("H-11")
async def test_a_suggestion_is_approved_once_and_becomes_a_skill(http: httpx.AsyncClient, app: App) -> None:
    number = await add_suggestion(app, "Bee Keeping", TOOL)
    pending = (await http.get(f"{SKILLS}/suggestions", params={"status": "pending"})).json()
    response = next(s for s in pending["suggestions"] if s["id"] == number)
    assert (response["name"], response["description"], response["keywords"]) == ("Bee Keeping", "Why not", ["why"])
    assert (response["source_tool_id"], response["status"], response["reviewed_by"]) == (TOOL, "pending", None)

    made = await http.post(f"{SKILLS}/suggestions/{number}/approve", json={"name": "Bees", "reviewed_by": "ada"})
    assert (made.status_code, made.json()["id"], made.json()["name"]) == (201, "bees", "Bees")
    assert TOOL in [t["id"] for t in (await http.get(f"{SKILLS}/bees/tools")).json()["tools"]]
    again = await http.post(f"{SKILLS}/suggestions/{number}/approve")
    assert again.status_code == 409
    decided = (await http.get(f"{SKILLS}/suggestions", params={"status": "approved"})).json()["suggestions"]
    assert [(s["id"], s["reviewed_by"]) for s in decided] == [(number, "ada")]


@pytest.mark.req("H-11", "W-01")
async def test_a_skill_is_suggested_for_chosen_tools_which_its_approval_puts_into_it(http: httpx.AsyncClient) -> None:
    wanted = {"name": "Bee Keeping", "description": "Why not", "tool_ids": [TOOL, PAGE.id, TOOL]}
    made = await http.post(f"{SKILLS}/suggestions", json=wanted)
    assert (made.status_code, made.json()["tool_ids"], made.json()["status"]) == (201, [TOOL, PAGE.id], "pending")
    assert (await http.post(f"{SKILLS}/suggestions", json=wanted | {"name": "bee keeping"})).status_code == 409
    approved = await http.post(f"{SKILLS}/suggestions/{made.json()['id']}/approve")
    assert (approved.status_code, approved.json()["id"]) == (201, "bee_keeping")
    tools = (await http.get(f"{SKILLS}/bee_keeping/tools")).json()["tools"]
    assert {(tool["id"], tool["origin"]) for tool in tools} == {(TOOL, "human"), (PAGE.id, "human")}
    assert (await http.post(f"{SKILLS}/suggestions", json=wanted)).status_code == 409


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"tool_ids": []}, 422),
        ({"tool_ids": ["no__such"]}, 404),
        ({"name": " "}, 422),
        ({"tool_ids": ["x"] * 201}, 422),
    ],
)
async def test_a_suggestion_needs_a_name_and_tools_that_there_are(
    unchanged: httpx.AsyncClient, changed: dict[str, Any], status: int
) -> None:
    wanted = {"name": "Bee Keeping", "tool_ids": [TOOL]} | changed
    assert (await unchanged.post(f"{SKILLS}/suggestions", json=wanted)).status_code == status


@pytest.mark.req("H-11")
async def test_a_suggestion_is_rejected_or_merged(http: httpx.AsyncClient, app: App) -> None:
    await http.post(SKILLS, json=BEES)
    declined, merged = await add_suggestion(app, "Wasps"), await add_suggestion(app, "Honey", TOOL)
    response = (await http.post(f"{SKILLS}/suggestions/{declined}/reject", json={"reviewed_by": "ada"})).json()
    assert (response["id"], response["status"], response["reviewed_by"]) == (declined, "rejected", "ada")
    nowhere = await http.post(f"{SKILLS}/suggestions/{merged}/merge", json={"skill_id": "nothing"})
    assert nowhere.status_code == 404
    response = (await http.post(f"{SKILLS}/suggestions/{merged}/merge", json={"skill_id": "bee_keeping"})).json()
    assert (response["id"], response["status"]) == (merged, "merged")
    assert TOOL in [t["id"] for t in (await http.get(f"{SKILLS}/bee_keeping/tools")).json()["tools"]]
    every = (await http.get(f"{SKILLS}/suggestions", params={"status": "all"})).json()
    assert {declined, merged} <= {s["id"] for s in every["suggestions"]}
    pending = (await http.get(f"{SKILLS}/suggestions")).json()
    assert not {declined, merged} & {s["id"] for s in pending["suggestions"]}
    assert {s["status"] for s in pending["suggestions"]} <= {"pending"}


@pytest.mark.req("H-12")
async def test_skills_are_proposed_and_queued_on_request(http: httpx.AsyncClient) -> None:
    before = (await http.get(f"{SKILLS}/suggestions")).json()["total"]
    response = (await http.post(f"{SKILLS}/propose")).json()
    assert response["total"] == len(response["proposals"]) > 0
    first = response["proposals"][0]
    assert {"id", "name", "description", "keywords", "examples", "tools", "tool_count", "cohesion"} <= first.keys()
    assert {"nearest_skill", "nearness"} <= first.keys()
    assert (await http.get(f"{SKILLS}/suggestions")).json()["total"] == before

    queued = (await http.post(f"{SKILLS}/propose", json={"count": 4, "queue": True})).json()["proposals"]
    pending = (await http.get(f"{SKILLS}/suggestions", params={"status": "pending"})).json()["suggestions"]
    assert {p["name"] for p in queued} <= {s["name"] for s in pending}
