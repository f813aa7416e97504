"""Hierarchical search over HTTP: the format of responses, errors, and token counts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.fixtures.limits import set_limits
from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item, ItemType, Skill
from toolscript.domain.servers import TrustPolicy
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.input_limits import MAX_BODY_BYTES
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("H-01")

SEARCH = "/api/v1/search"
REQUEST = {"query": "read a file", "skill_threshold": 0.0, "tool_threshold": 0.0}
TIMES = {
    "query_embedding_time_ms",
    "skill_search_time_ms",
    "tool_search_time_ms",
    "schema_load_time_ms",
    "total_time_ms",
}
PROMPT = Item("wiki", "file_summary", "Read a file and sum it up", type=ItemType.PROMPT)
PAGE = Item("wiki", "file:///notes", "Read a file about bees", type=ItemType.RESOURCE)
ITEMS = (*load_demo_items(), PROMPT, PAGE)


@pytest.fixture(scope="module")
async def filled(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """An application that no test here changes."""
    folder = tmp_path_factory.mktemp("filled")
    async with open_app(load_settings(variables={}, data_dir=folder, search_model="hashed-64")) as app:
        await app.catalogue.sync.run(ITEMS)
        await app.catalogue.sync.index_catalogue()
        yield app


@pytest.fixture
async def http(filled: App) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(ServedApp(filled.settings, filled)) as client:
        yield client


@pytest.fixture
async def changing(app: App) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that the test may change."""
    await app.catalogue.sync.run(ITEMS)
    await app.catalogue.sync.index_catalogue()
    async with open_client(ServedApp(app.settings, app)) as client:
        yield client


def open_client(serving: ServedApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_http_app(serving)), base_url="http://127.0.0.1")


async def search(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await http.post(SEARCH, json={**REQUEST, **fields})
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


async def describe_request(http: httpx.AsyncClient) -> dict[str, Any]:
    """The OpenAPI description of the body of a search."""
    body = (await http.get("/openapi.json")).json()["paths"][SEARCH]["post"]["requestBody"]
    schema: dict[str, Any] = body["content"]["application/json"]["schema"]
    return schema


def expect_422(answer: httpx.Response, status: int, field: str | None = None) -> str:
    """The message of an envelope with that status, about that field."""
    assert answer.status_code == status, answer.text
    (to_envelope,) = answer.json().values()
    assert to_envelope.keys() == {"code", "message", "details"}
    assert to_envelope["code"] == "VALIDATION_ERROR"
    if field is not None:
        assert to_envelope["details"]["field"] == field
    return str(to_envelope["message"])


@pytest.mark.req("H-06")
async def test_the_response_has_exactly_the_specified_format(http: httpx.AsyncClient) -> None:
    response = await search(http)
    assert response.keys() == {"query", "tools", "matched_skills", "metadata"}
    assert response["query"] == "read a file"
    assert len(response["tools"]) == 5
    for tool in response["tools"]:
        assert tool.keys() == {
            *(
                "id",
                "db_id",
                "type",
                "name",
                "description",
                "score",
                "skill_ids",
                "skill_confidence",
                "primary_skill_id",
            ),
            *("input_schema", "output_schema", "annotations"),
        }
        assert isinstance(tool["db_id"], int)
        assert tool["primary_skill_id"] in tool["skill_ids"]
        assert list(tool["skill_confidence"]) == tool["skill_ids"]
        assert all(0.5 <= confidence <= 1 for confidence in tool["skill_confidence"].values())
    assert any(tool["input_schema"] for tool in response["tools"])
    assert 1 <= len(response["matched_skills"]) <= 3
    for skill in response["matched_skills"]:
        assert skill.keys() == {"id", "name", "description", "score", "tool_count"}
    metadata = response["metadata"]
    assert metadata.keys() == TIMES | {
        *("strategy_used", "skill_ids_used", "stage1_skill_count", "stage2_candidate_count", "final_count", "degraded"),
    }
    assert all(metadata[name] >= 0 for name in TIMES)
    assert (metadata["strategy_used"], metadata["final_count"], metadata["degraded"]) == ("hierarchical", 5, [])
    assert metadata["stage1_skill_count"] == len(response["matched_skills"])
    assert metadata["stage2_candidate_count"] >= 5
    assert set(metadata["skill_ids_used"]) <= {skill["id"] for skill in response["matched_skills"]}


@pytest.mark.req("H-02", "H-06")
async def test_ten_skills_are_returned_if_ten_are_requested_of_whatever_score(http: httpx.AsyncClient) -> None:
    response = await search(http, skill_limit=10, skill_threshold=0)
    assert len({skill["id"] for skill in response["matched_skills"]}) == 10
    assert response["metadata"]["stage1_skill_count"] == 10


async def test_defaults_are_as_documented(http: httpx.AsyncClient) -> None:
    explicit_fields = {
        "query": "read a file",
        "item_type": None,
        "limit": 5,
        "skill_limit": 3,
        "skill_threshold": 0.4,
        "tool_threshold": 0.3,
        "closest": None,
        "include_schemas": True,
        "strategy": "hierarchical",
        "count_tokens": False,
    }
    silent, explicit = (
        await http.post(SEARCH, json={"query": "read a file"}),
        await http.post(SEARCH, json=explicit_fields),
    )
    assert silent.status_code == explicit.status_code == 200
    for part in ("tools", "matched_skills"):
        assert silent.json()[part] == explicit.json()[part]
    schema = (await describe_request(http))["properties"]
    assert {name: response.get("default") for name, response in schema.items() if name != "query"} == {
        name: value for name, value in explicit_fields.items() if name != "query"
    }


@pytest.mark.req("H-05")
async def test_schemas_are_left_out_unless_requested(http: httpx.AsyncClient) -> None:
    response = await search(http, include_schemas=False)
    assert not {"input_schema", "output_schema", "annotations"} & response["tools"][0].keys()
    assert response["metadata"]["schema_load_time_ms"] == 0


@pytest.mark.req("H-03")
@pytest.mark.parametrize("strategy", ["hierarchical", "direct", "hybrid"])
async def test_every_strategy_can_search_one_type(http: httpx.AsyncClient, strategy: str) -> None:
    response = await search(http, strategy=strategy, item_type="prompt", skill_limit=10)
    assert response["metadata"]["strategy_used"] == strategy
    assert {tool["type"] for tool in response["tools"]} <= {"prompt"}
    if strategy != "hierarchical":
        assert response["tools"]
    if strategy == "direct":
        assert (response["matched_skills"], response["metadata"]["skill_ids_used"]) == ([], None)


@pytest.mark.req("H-02", "X-03", "D-11")
@pytest.mark.parametrize("query", ["", " ", "\n\t "])
async def test_a_blank_query_is_a_400(http: httpx.AsyncClient, query: str) -> None:
    assert "blank" in expect_422(await http.post(SEARCH, json={"query": query}), 400, "query")
    for path in ("skills", "tools"):
        expect_422(await http.get(f"{SEARCH}/{path}", params={"query": query}), 400, "query")


@pytest.mark.req("H-02", "X-03", "D-11")
async def test_a_query_that_is_too_long_is_a_422(http: httpx.AsyncClient) -> None:
    assert (await http.post(SEARCH, json={"query": "é" * 1000})).status_code == 200
    message = expect_422(await http.post(SEARCH, json={"query": "é" * 1001}), 422, "query")
    assert "1001 characters, at most 1000" in message
    for path in ("skills", "tools"):
        expect_422(await http.get(f"{SEARCH}/{path}", params={"query": "x" * 1001}), 422, "query")


@pytest.mark.req("H-02", "X-03", "D-11")
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ('{"limit": 51}', "limit"),
        ('{"limit": 1' + "0" * 400 + "}", "limit"),
        ('{"limit": true}', "limit"),
        ('{"skill_threshold": NaN}', "skill_threshold"),
        ('{"tool_threshold": 1e9}', "tool_threshold"),
        ('{"strategy": "fast"}', "strategy"),
        ('{"item_type": "tools"}', "item_type"),
        ('{"include_schemas": "perhaps"}', "include_schemas"),
        ('{"query": 5}', "query"),
        ('{"threshold": 0.5}', "threshold"),
    ],
)
async def test_an_invalid_request_is_a_422_that_names_the_field(
    http: httpx.AsyncClient, wrong: str, field: str
) -> None:
    body = '{"query": "read a file", ' + wrong.removeprefix("{")
    answer = await http.post(SEARCH, content=body, headers={"Content-Type": "application/json"})
    assert expect_422(answer, 422, field)


@pytest.mark.req("H-02", "X-03", "D-11")
@pytest.mark.parametrize("body", ["", "[]", "{", "{}", "\0"])
async def test_a_body_of_another_type_is_a_422(http: httpx.AsyncClient, body: str) -> None:
    assert expect_422(await http.post(SEARCH, content=body, headers={"Content-Type": "application/json"}), 422)


@pytest.mark.req("H-02", "D-11")
@pytest.mark.parametrize("body", [b'{"query": "\xff\xfe"}', b"[" * 100_000], ids=["not UTF-8", "too deep"])
async def test_a_body_that_cannot_be_parsed_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    answer = await http.post(SEARCH, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in {400, 422}
    assert answer.json()["error"]["message"]
    assert (await http.post(SEARCH, json=REQUEST)).status_code == 200


@pytest.mark.req("H-02")
@pytest.mark.parametrize(
    "query",
    [
        "'; DROP TABLE mcp.tools; --",
        "📅 read 👩‍👩‍👧",
        "اقرأ \u202eالملف\u202c",
        "nul \0 inside",
    ],
)
async def test_special_characters_are_searched_unchanged(http: httpx.AsyncClient, query: str) -> None:
    response = await search(http, query=query)
    assert response["query"] == query
    assert 1 <= len(response["tools"]) <= 5
    assert (await http.get(f"{SEARCH}/skills", params={"query": query, "threshold": 0})).json()
    assert len((await http.get(f"{SEARCH}/tools", params={"query": query, "threshold": 0})).json()) == 10
    assert len((await http.get("/tools")).json()["tools"]) == 58


@pytest.mark.req("H-02")
async def test_a_lone_surrogate_is_refused_or_replaced(http: httpx.AsyncClient) -> None:
    answer = await http.post(SEARCH, content=b'{"query": "half \\ud83d"}', headers={"Content-Type": "application/json"})
    assert answer.status_code in {200, 422}
    assert (await http.get(f"{SEARCH}/tools?query=half%ED%A0%BD")).status_code == 200


@pytest.mark.req("H-08")
async def test_a_body_without_a_length_is_read_up_to_the_limit(http: httpx.AsyncClient) -> None:
    read = 0

    async def pieces(whole: bytes, size: int) -> AsyncIterator[bytes]:
        nonlocal read
        for start in range(0, len(whole), size):
            read += 1
            yield whole[start : start + size]

    fields = json.dumps(REQUEST).encode()
    at_once = (await http.post(SEARCH, content=fields)).json()
    assert (await http.post(SEARCH, content=pieces(fields, 7))).json()["tools"] == at_once["tools"]
    read = 0
    refused = await http.post(SEARCH, content=pieces(b" " * (MAX_BODY_BYTES + 2 * 2**20), 2**20))
    assert (refused.status_code, refused.json()["error"]["details"]) == (413, {"field": "body"})
    assert read == MAX_BODY_BYTES // 2**20 + 1


async def test_a_search_of_skills_returns_a_list(http: httpx.AsyncClient) -> None:
    answer = await http.get(f"{SEARCH}/skills", params={"query": "read a file", "threshold": 0})
    skills = answer.json()
    assert len(skills) == 5
    assert all(s.keys() == {"id", "name", "description", "score", "tool_count"} for s in skills)
    assert [s["score"] for s in skills] == sorted((s["score"] for s in skills), reverse=True)
    matched = {skill["id"]: skill["score"] for skill in (await search(http, skill_limit=5))["matched_skills"]}
    assert all(matched.get(skill["id"], 1.0) >= skill["score"] for skill in skills)
    two = (await http.get(f"{SEARCH}/skills", params={"query": "read a file", "threshold": 0, "limit": 2})).json()
    assert two == skills[:2]
    nothing = await http.get(f"{SEARCH}/skills", params={"query": "read a file", "threshold": 1})
    assert (nothing.status_code, nothing.json()) == (200, [])


@pytest.mark.req("H-08")
async def test_a_search_of_tools_returns_a_list(http: httpx.AsyncClient) -> None:
    tools = (await http.get(f"{SEARCH}/tools", params={"query": "read a file", "threshold": 0})).json()
    assert len(tools) == 10
    for tool in tools:
        assert tool.keys() == {
            *(
                "id",
                "db_id",
                "type",
                "name",
                "description",
                "score",
                "skill_ids",
                "skill_confidence",
                "primary_skill_id",
            )
        }
    assert tools[:5] == [
        {k: v for k, v in tool.items() if k in tool.keys() & tools[0].keys()}
        for tool in (await search(http, strategy="direct"))["tools"]
    ]
    prompts = (
        await http.get(f"{SEARCH}/tools", params={"query": "read a file", "threshold": 0, "item_type": "prompt"})
    ).json()
    assert [p["id"] for p in prompts] == [PROMPT.id]


@pytest.mark.req("H-08", "H-03")
async def test_tools_are_found_in_any_of_the_given_skills(http: httpx.AsyncClient, filled: App) -> None:
    async def within(skill_ids: str) -> list[str]:
        fields: dict[str, Any] = {"query": "read a file", "threshold": 0, "limit": 50, "skill_ids": skill_ids}
        answer = await http.get(f"{SEARCH}/tools", params=fields)
        assert answer.status_code == 200
        return [tool["id"] for tool in answer.json()]

    members = {skill: {m.item_id for m in each} for skill, each in (await filled.stores.skills.get_members()).items()}
    one, two = sorted(members, key=lambda skill: len(members[skill]))[-2:]
    for named, wanted in (
        (one, members[one]),
        (f"{one},{two}", members[one] | members[two]),
        (f" {one} ,, {two},", members[one] | members[two]),
        (f"no_such_skill,{one}", members[one]),
        ("no_such_skill", set()),
        ("'; DROP TABLE x", set()),
    ):
        found_ids = await within(named)
        assert (set(found_ids), len(found_ids)) == (wanted, len(wanted)), named
    assert await within(" , ,") == await within("")
    assert len(await within("")) == 50


@pytest.mark.req("H-08", "X-03", "D-11")
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("skills", "query"),
        ("tools", "query"),
        ("skills?query=x&limit=many", "limit"),
        ("skills?query=x&threshold=nan", "threshold"),
        ("tools?query=x&limit=51", "limit"),
        ("tools?query=x&item_type=skill", "item_type"),
    ],
)
async def test_an_invalid_request_of_one_stage_is_a_422_that_names_the_field(
    http: httpx.AsyncClient, path: str, field: str
) -> None:
    expect_422(await http.get(f"{SEARCH}/{path}"), 422, field)


@pytest.mark.req("H-17")
async def test_a_response_can_have_its_token_count_and_that_of_all_tools(changing: httpx.AsyncClient, app: App) -> None:
    assert "tokens" not in (await search(changing))["metadata"]
    response = await search(changing, count_tokens=True)
    tokens = response["metadata"].pop("tokens")
    assert tokens.keys() == {"answer", "all_tools"}
    assert tokens["answer"] == pytest.approx(len(json.dumps(response, ensure_ascii=False)) / 4, abs=1)
    assert 0 < tokens["answer"] < tokens["all_tools"]
    bare = (await search(changing, count_tokens=True, include_schemas=False))["metadata"]["tokens"]
    assert bare["answer"] < tokens["answer"]
    assert bare["all_tools"] == tokens["all_tools"]

    long = Item("more", "talkative", "word " * 4000)
    await app.catalogue.sync.run([*ITEMS, long])
    grown = (await search(changing, count_tokens=True))["metadata"]["tokens"]["all_tools"]
    assert grown == pytest.approx(tokens["all_tools"] + 5000, abs=20)


@pytest.mark.req("H-17")
async def test_a_response_without_tools_has_few_tokens(http: httpx.AsyncClient) -> None:
    """Skills and metadata of the response still have tokens."""
    response = await search(http, tool_threshold=1.0, strategy="direct", count_tokens=True)
    assert response["tools"] == []
    assert response["metadata"]["tokens"]["answer"] < 150


async def test_responses_follow_changes_of_the_catalogue(changing: httpx.AsyncClient, app: App) -> None:
    first = (await search(changing))["tools"][0]
    rest = [item for item in ITEMS if item.id != first["id"]]
    await app.catalogue.sync.run(rest)
    assert first["id"] not in [tool["id"] for tool in (await search(changing))["tools"]]
    item = next(item for item in ITEMS if item.id == first["id"])
    await app.catalogue.sync.run([*rest, replace(item, annotations={"title": "Anew"})], policy=TrustPolicy.OPEN)
    again = (await search(changing))["tools"][0]
    assert (again["id"], again["annotations"]) == (first["id"], {"title": "Anew"})


@pytest.mark.req("H-05")
async def test_a_schema_is_returned_unchanged_even_with_numbers_beyond_64_bits(
    changing: httpx.AsyncClient, app: App
) -> None:
    odd = {"maximum": 2**70, "minimum": -(2**63) - 1, "default": "größer 🚀 \u2028", "deep": [[[{}]]]}
    first = (await search(changing))["tools"][0]
    changed = [replace(item, input_schema=odd) if item.id == first["id"] else item for item in ITEMS]
    await app.catalogue.sync.run(changed, policy=TrustPolicy.OPEN)
    again = (await search(changing))["tools"][0]
    assert (again["id"], again["input_schema"]) == (first["id"], odd)


@pytest.mark.req("H-01", "H-14")
@pytest.mark.parametrize("body", [None, '{"reclassify": false}'])
async def test_a_sync_reports_what_it_changed(changing: httpx.AsyncClient, app: App, body: str | None) -> None:
    await app.stores.skills.save_skills([Skill("new_one", "New one")])
    sent = {"content": body, "headers": {"Content-Type": "application/json"}} if body else {}
    answer = await changing.post("/api/v1/sync", **sent)  # type: ignore[arg-type]
    assert answer.status_code == 200
    response = answer.json()
    assert response.keys() >= {"servers", "items", "classified", "refined", "waiting"}
    assert (response["servers"], response["items"], response["refined"]) == ([], 58, 0)
    assert "new_one" in [p.payload["skill_id"] for p in await app.index.scroll("mcp_skills")]


@pytest.mark.req("H-14")
async def test_a_sync_reclassifies_everything_on_request(changing: httpx.AsyncClient) -> None:
    assert (await changing.post("/api/v1/sync")).json()["classified"] == 0
    assert (await changing.post("/api/v1/sync", json={"reclassify": True})).json()["classified"] == 58
    assert (await changing.post("/api/v1/sync", json={"force": True})).json()["classified"] == 58
    assert (await changing.post("/api/v1/sync")).json()["classified"] == 0


@pytest.mark.req("H-14", "X-03")
@pytest.mark.parametrize(
    ("body", "field"), [({"reclassify": "perhaps"}, "reclassify"), ({"all": True}, "all"), ({"force": None}, "force")]
)
async def test_an_invalid_sync_is_refused(http: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    expect_422(await http.post("/api/v1/sync", json=body), 422, field)


@pytest.mark.req("D-11")
async def test_while_the_application_is_being_opened_every_route_is_a_503(
    small: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, open_app=0.01)
    async with open_client(ServedApp(small, None, ready=False)) as http:
        for answer in (
            await http.post(SEARCH, json={"query": "x"}),
            await http.get(f"{SEARCH}/skills?query=x"),
            await http.get(f"{SEARCH}/tools?query=x"),
            await http.post("/api/v1/sync"),
        ):
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "UNAVAILABLE"
            assert "try again" in answer.json()["error"]["message"]


async def test_the_map_has_a_place_for_every_tool(http: httpx.AsyncClient) -> None:
    response = (await http.get("/api/v1/map")).json()
    tools = (await http.get("/tools")).json()["tools"]
    assert {each["id"] for each in response["tools"]} == {tool["toolId"] for tool in tools}
    assert all(-1 <= each[axis] <= 1 for each in response["tools"] for axis in ("x", "y"))
    assert len({(each["x"], each["y"]) for each in response["tools"]}) > 1
    assert (await http.get("/api/v1/map")).json() == response
