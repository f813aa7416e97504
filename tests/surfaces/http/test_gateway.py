"""The gateway's routes over HTTP: servers, tools, calls, clients, and the errors while servers are still connecting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.fixtures.limits import set_limits
from tests.fixtures.waiting import until
from tests.servers import make_scripted_spec
from toolscript.app.app import App, open_app
from toolscript.app.engines import Servers
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.services.servers.gateway import Gateway
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.input_limits import MAX_BODY_BYTES
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp.definitions import SearchToolsArguments
from toolscript.surfaces.mcp.search_tools import search_tools

TIMEOUT_SECONDS = 30.0
# Names that must be encoded in a path: each is found and called by its percent-encoded id.
ODD_NAMES = ("files/read:all", "/lead", "trail/", "a//b", "..", "a b", "50%", "q?x#y", "naïve", "%2F", "x&y=z", "__")


def spec(name: str, **behaviour: Any) -> ServerSpec:
    entry = make_scripted_spec(**behaviour)
    return ServerSpec(name, Transport.STDIO, command=entry["command"], args=tuple(entry["args"]))


def settings_in(folder: Any, **chosen: Any) -> Settings:
    return load_settings(variables={}, data_dir=folder, search_model="hashed-64", **chosen)


def states(app: App) -> dict[str, str]:
    return {s.name: s.state.value for s in app.servers.gateway.statuses}


@asynccontextmanager
async def open_client(serving: ServedApp) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_http_app(serving))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="module")
async def gateway(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """An application with servers that work, that crash, that offer invalid tools, and that have odd names."""
    folder = tmp_path_factory.mktemp("gateway")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    lists = folder / "lists.json"
    lists.write_text(json.dumps({"tools": [{"name": n, "description": n, "inputSchema": schema} for n in ODD_NAMES]}))
    async with open_app(settings_in(folder / "data")) as app:
        await app.servers.gateway.apply(
            [
                spec("good", prompts=True, resources=True),
                spec("other", tools=["echo", "pid"]),
                spec("odd", watch=str(lists)),
                spec("sloppy", tools=[], sloppy=True),
                spec("crash", crash=True),
                ServerSpec("absent", Transport.STDIO, "no-such-command"),
            ]
        )
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        ready = {n for n, state in states(app).items() if state == "ready"}
        assert ready == {"good", "other", "odd", "sloppy"}
        yield app


@pytest.fixture
async def http(gateway: App) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(ServedApp(gateway.settings, gateway)) as client:
        yield client


def refusal(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error of a response, which must be the envelope."""
    assert answer.status_code == status, answer.text
    response = answer.json()
    assert response.keys() == {"error"}
    error: dict[str, Any] = response["error"]
    assert error.keys() == {"code", "message", "details"}
    assert error["code"] == code
    assert error["message"]
    assert isinstance(error["details"], dict)
    return error


def ids(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    response = answer.json()
    assert response["totalTools"] == len(response["tools"])
    return [tool["toolId"] for tool in response["tools"]]


# --- servers ---


@pytest.mark.req("G-04")
async def test_a_working_server_is_listed_with_what_it_offers(http: httpx.AsyncClient) -> None:
    response = (await http.get("/servers")).json()
    assert [s["name"] for s in response["servers"]] == ["absent", "crash", "good", "odd", "other", "sloppy"]
    assert response["configurationError"] is None
    good = next(s for s in response["servers"] if s["name"] == "good")
    assert good.pop("attempts") >= 1
    assert good == {
        "name": "good",
        "transport": "stdio",
        "state": "ready",
        "reason": None,
        "tools": 8,
        "prompts": 2,
        "resources": 3,
        "agentSkills": 0,
        "problems": [],
        "retryInSeconds": None,
        "callsPausedSeconds": None,
        "needsLogin": False,
        "loginPerUser": False,
        "sandbox": None,
        "restarts": 0,
        "restartReason": None,
        "recentCalls": [],
        "logLines": 1,
    }


@pytest.mark.req("G-02", "G-04")
async def test_a_failed_server_is_listed_with_the_reason_and_the_time_of_the_next_attempt(
    http: httpx.AsyncClient, gateway: App
) -> None:
    await until(lambda: states(gateway)["crash"] == "failed" == states(gateway)["absent"])
    response = {s["name"]: s for s in (await http.get("/servers")).json()["servers"]}
    assert (response["crash"]["state"], response["absent"]["state"]) == ("failed", "failed")
    assert "exited with code 3: It crashed at the start, as scripted." in response["crash"]["reason"]
    assert "command not found: no-such-command" in response["absent"]["reason"]
    for name in ("crash", "absent"):
        assert response[name]["attempts"] >= 1
        assert response[name]["retryInSeconds"] >= 0
        assert response[name]["tools"] == 0


@pytest.mark.req("G-02", "G-04")
async def test_unusable_items_of_a_server_are_listed_and_do_not_affect_others(http: httpx.AsyncClient) -> None:
    sloppy = next(s for s in (await http.get("/servers")).json()["servers"] if s["name"] == "sloppy")
    assert (sloppy["state"], sloppy["reason"]) == ("ready", None)
    response = "\n".join(sloppy["problems"])
    for part in ("'twice' is listed twice", "without a usable name", "not an object", "200000 characters"):
        assert part in response
    assert sloppy["tools"] == 7
    assert "sloppy__no_schema" in ids(await http.get("/tools", params={"filter": "sloppy"}))


@pytest.mark.req("G-01", "G-04")
async def test_a_configuration_that_could_not_be_applied_is_reported(http: httpx.AsyncClient, gateway: App) -> None:
    gateway.servers.gateway.configuration_error = "file.json, line 3: wrong"
    try:
        assert (await http.get("/servers")).json()["configurationError"] == "file.json, line 3: wrong"
    finally:
        gateway.servers.gateway.configuration_error = None


@pytest.mark.req("G-04")
async def test_readiness_counts_the_servers_by_state(http: httpx.AsyncClient) -> None:
    counts = (await http.get("/ready")).json()["servers"]
    assert counts.pop("ready") == 4
    assert sum(counts.values()) == 2
    assert counts.keys() <= {"failed", "connecting"}


# --- tools ---


@pytest.mark.req("G-04")
async def test_tools_are_listed_with_their_signatures(http: httpx.AsyncClient) -> None:
    response = (await http.get("/tools")).json()["tools"]
    assert {tool["serverName"] for tool in response} == {"good", "other", "odd", "sloppy"}
    echo = next(tool for tool in response if tool["toolId"] == "good__echo")
    assert echo == {
        "toolId": "good__echo",
        "serverName": "good",
        "toolName": "echo",
        "type": "tool",
        "description": "Returns its arguments, as text and structured.",
        "signature": "echo(text: string, times?: number) -> object",
    }
    kinds = {tool["toolId"]: tool["type"] for tool in response}
    assert kinds["good__prompt:summarise"] == "prompt"
    assert kinds["good__resource:memos"] == "resource"


@pytest.mark.req("G-04")
@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("other", ["other__echo", "other__pid"]),
        ("good__prompt:greet", ["good__prompt:greet"]),
        ("other,good__pid", ["good__pid", "other__echo", "other__pid"]),
        (" other__pid , good__echo ,, other__pid", ["good__echo", "other__pid"]),
        ("nobody", []),
        ("GOOD", []),
    ],
)
async def test_a_filter_names_servers_and_tools(http: httpx.AsyncClient, wanted: str, found: list[str]) -> None:
    assert ids(await http.get("/tools", params={"filter": wanted})) == found


@pytest.mark.req("G-04")
async def test_an_empty_filter_is_no_filter(http: httpx.AsyncClient) -> None:
    everything = ids(await http.get("/tools"))
    assert len(everything) > 20
    assert ids(await http.get("/tools", params={"filter": ""})) == everything


@pytest.mark.req("G-04")
async def test_one_tool_is_described_with_its_schemas(http: httpx.AsyncClient) -> None:
    response = (await http.get("/tools/good__echo")).json()
    assert response["toolId"] == "good__echo"
    assert response["inputSchema"]["required"] == ["text"]
    assert response["inputSchema"]["properties"]["times"] == {"type": "integer", "minimum": 1}
    assert response["outputSchema"] == {"type": "object"}
    assert {"title", "annotations", "signature", "description", "type", "serverName", "toolName"} <= response.keys()
    prompt = (await http.get("/tools/good__prompt:summarise")).json()
    assert prompt["inputSchema"]["required"] == ["text"]
    assert prompt["inputSchema"]["properties"].keys() == {"text", "words"}


@pytest.mark.req("G-04", "G-05")
@pytest.mark.parametrize("name", ODD_NAMES)
async def test_a_tool_of_any_name_is_described_and_called_by_its_encoded_id(http: httpx.AsyncClient, name: str) -> None:
    path = f"/tools/{quote(f'odd__{name}', safe='')}"
    described = await http.get(path)
    assert described.status_code == 200, described.text
    assert described.json()["toolName"] == name
    called = await http.post(path, json={"n": 1})
    assert called.status_code == 200, called.text
    assert json.loads(called.json()["content"][0]["text"]) == {"tool": name, "arguments": {"n": 1}}


@pytest.mark.req("G-04")
async def test_slashes_and_colons_of_an_id_need_no_encoding(http: httpx.AsyncClient) -> None:
    assert (await http.get("/tools/odd__files/read:all")).json()["toolName"] == "files/read:all"
    assert (await http.post("/tools/good__resource:welcome")).status_code == 200


@pytest.mark.req("G-05", "D-11")
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_unknown_tool_is_a_404_with_the_nearest_names(http: httpx.AsyncClient, method: str) -> None:
    error = refusal(await http.request(method, "/tools/good__ecoh"), 404, "NOT_FOUND")
    assert error["details"]["nearest"][0] == "good__echo"
    assert len(error["details"]["nearest"]) <= 3
    assert "good__ecoh" in error["message"]
    assert "did you mean good__echo" in error["message"]


@pytest.mark.req("G-05", "D-11", "X-03")
@pytest.mark.parametrize("wanted", ["x" * 3000, "__", "%F0%9F%A6%84"])
async def test_an_unknown_id_is_a_404(http: httpx.AsyncClient, wanted: str) -> None:
    refusal(await http.get(f"/tools/{wanted}"), 404, "NOT_FOUND")
    refusal(await http.post(f"/tools/{wanted}", json={}), 404, "NOT_FOUND")


# --- calls ---


@pytest.mark.req("G-03", "G-05")
async def test_prompts_return_their_messages_and_resources_their_contents(http: httpx.AsyncClient) -> None:
    prompt = (await http.post("/tools/good__prompt:summarise", json={"text": "long", "words": "5"})).json()
    assert '"words": "5"' in prompt["messages"][0]["content"]["text"]
    resource = (await http.post("/tools/good__resource:memos", json={"year": "2026", "month": "1"})).json()
    assert resource["contents"][0]["uri"] == "memo://2026/1"


@pytest.mark.req("G-05")
@pytest.mark.parametrize("body", [b"", b"  \n", b"{}"])
async def test_an_empty_body_means_no_arguments(http: httpx.AsyncClient, body: bytes) -> None:
    answer = await http.post("/tools/good__pid", content=body)
    assert answer.json()["pid"] > 0


@pytest.mark.req("G-05", "X-03")
@pytest.mark.parametrize(
    "body",
    [
        b"text=x",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"text": NaN}',
    ],
)
async def test_a_body_that_is_not_valid_json_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    error = refusal(await http.post("/tools/good__echo", content=body), 422, "VALIDATION_ERROR")
    assert "JSON" in error["message"]
    assert "field" in error["details"]


@pytest.mark.req("G-05", "X-03")
@pytest.mark.parametrize("body", ["[]", "null"])
async def test_a_body_that_is_not_an_object_is_refused(http: httpx.AsyncClient, body: str) -> None:
    error = refusal(await http.post("/tools/good__echo", content=body), 422, "VALIDATION_ERROR")
    assert "good__echo must be a JSON object" in error["message"]


@pytest.mark.req("G-05", "X-03")
@pytest.mark.parametrize(
    ("arguments", "field"),
    [({}, "text"), ({"text": "x", "times": 0}, "times")],
)
async def test_invalid_arguments_are_a_422_that_names_the_field(
    http: httpx.AsyncClient, arguments: dict[str, Any], field: str
) -> None:
    error = refusal(await http.post("/tools/good__echo", json=arguments), 422, "VALIDATION_ERROR")
    assert error["details"]["field"] == field
    assert error["details"]["tool"] == "good__echo"
    assert error["message"].startswith(f"{field}: ")


@pytest.mark.req("X-03")
async def test_a_body_that_is_too_large_is_refused_and_the_next_call_works(http: httpx.AsyncClient) -> None:
    body = b'{"text": "' + b"x" * MAX_BODY_BYTES + b'"}'
    error = refusal(await http.post("/tools/good__echo", content=body), 413, "VALIDATION_ERROR")
    assert "16 MiB" in error["message"]
    assert (await http.post("/tools/good__echo", json={"text": "x"})).status_code == 200


@pytest.mark.req("G-05", "X-03")
@pytest.mark.parametrize(
    ("body", "sent"), [(rb'{"t": "\ud800"}', {"t": "\ud800"}), (b'{"t": 1e999}', {"t": float("inf")})]
)
async def test_unusual_json_arguments_are_passed_on_unchanged_or_refused(
    http: httpx.AsyncClient, body: bytes, sent: dict[str, Any]
) -> None:
    answer = await http.post("/tools/odd__a b", content=body)
    if answer.status_code != 422:
        assert answer.status_code == 200, answer.text
        assert json.loads(answer.json()["content"][0]["text"])["arguments"] == sent
    else:
        refusal(answer, 422, "VALIDATION_ERROR")
    attempts = {s["name"]: s["attempts"] for s in (await http.get("/servers")).json()["servers"]}
    assert attempts["odd"] == 1  # the connection is still open


@pytest.mark.req("G-05", "D-11")
async def test_a_protocol_error_is_a_502_with_its_message(http: httpx.AsyncClient) -> None:
    answer = await http.post("/tools/good__error", json={"message": "out of paper", "code": -32099})
    error = refusal(answer, 502, "UPSTREAM_ERROR")
    assert "out of paper" in error["message"]
    assert error["details"] == {"server": "good", "upstream_code": -32099}


@pytest.mark.req("G-05", "D-11")
async def test_a_server_that_dies_during_a_call_is_a_502_and_reconnects_for_the_next(
    http: httpx.AsyncClient,
) -> None:
    pids = [(await http.post("/tools/good__pid")).json()["pid"]]
    for _ in range(3):
        error = refusal(await http.post("/tools/good__die"), 502, "UPSTREAM_ERROR")
        assert "exited with code 7: It died in the middle of a call, as scripted." in error["message"]
        assert error["details"] == {"server": "good"}
        again = await http.post("/tools/good__pid")
        assert again.status_code == 200, again.text
        pids.append(again.json()["pid"])
    assert len(set(pids)) == 4


@pytest.mark.req("G-05", "D-11")
async def test_a_call_that_times_out_is_a_504_and_delays_no_other_call(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    settings = settings_in(tmp_path_factory.mktemp("slow"), call_timeout=1)
    async with open_app(settings) as app, open_client(ServedApp(settings, app)) as http:
        await app.servers.gateway.apply([spec("good")])
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        patient = {"timeout": TIMEOUT_SECONDS}  # a busy machine may stand still for longer than a second
        slow = asyncio.create_task(http.post("/tools/good__slow", params=patient, json={"seconds": TIMEOUT_SECONDS}))
        quick = await http.post("/tools/good__pid", params=patient)
        assert not slow.done()
        slow.cancel()
        error = refusal(await http.post("/tools/good__slow", json={"seconds": TIMEOUT_SECONDS}), 504, "TIMED_OUT")
        assert error["message"] == "good__slow did not answer within 1 s"
        assert error["details"] == {"seconds": 1.0}
        assert (await http.post("/tools/good__pid", params=patient)).json() == quick.json()


# --- clients ---


@pytest.mark.req("G-06", "G-07")
@pytest.mark.parametrize(
    ("wanted", "calls"),
    [
        ("other,good__echo,good__slow", {"other__echo", "other__pid", "good__echo", "good__slow"}),
        ("good__echo,nobody,good__nothing", {"good__echo"}),
    ],
)
async def test_a_client_has_exactly_the_tools_of_the_filter(
    http: httpx.AsyncClient, wanted: str, calls: set[str]
) -> None:
    for language, kind in (("ts", "application/typescript"), ("py", "text/x-python")):
        answer = await http.get(f"/runtime/tools.{language}", params={"filter": wanted})
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
        mentioned = {each for each in ids(await http.get("/tools")) if f'"{each}"' in answer.text}
        assert mentioned == calls, language


@pytest.mark.req("G-06", "G-07")
async def test_a_filter_without_matches_gives_an_empty_module(http: httpx.AsyncClient) -> None:
    script = (await http.get("/runtime/tools.ts", params={"filter": "nobody,good__nothing"})).text
    assert script.splitlines()[2:] == ["", "export const tools = {};"]
    python = (await http.get("/runtime/tools.py", params={"filter": "nobody"})).text
    compile(python, "tools.py", "exec")
    assert "good" not in python


@pytest.mark.req("G-07")
async def test_the_python_client_of_everything_compiles(http: httpx.AsyncClient) -> None:
    source = (await http.get("/runtime/tools.py")).text
    compile(source, "tools.py", "exec")
    assert "class GoodEchoParams(TypedDict)" in source


# --- while the application is opening ---

ROUTES = [
    "/search?q=x",
    "/search/stats",
    "/ready",
    "/servers",
    "/tools",
    "/tools/good__echo",
    "/runtime/tools.ts",
    "/runtime/tools.py",
]


@pytest.mark.req("S-04", "D-11")
@pytest.mark.parametrize("path", ROUTES)
async def test_every_route_is_a_503_while_the_engine_is_opening(
    small: Settings, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, open_app=0.01)
    async with open_client(ServedApp(small)) as http:
        error = refusal(await http.get(path), 503, "UNAVAILABLE")
        assert "search engine is not ready" in error["message"]


@pytest.mark.req("S-04", "G-04")
async def test_while_the_engine_does_not_open_calls_are_refused_and_health_works(
    small: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, open_app=0.01)
    async with open_client(ServedApp(small)) as http:
        refusal(await http.post("/tools/good__echo", json={"text": "x"}), 503, "UNAVAILABLE")
        assert (await http.get("/health")).json()["status"] == "ok"


@pytest.mark.req("G-02", "G-04", "S-04")
async def test_while_servers_connect_readiness_names_them_and_search_works(app: App) -> None:
    serving = ServedApp(app.settings, app, ready=False)
    async with open_client(serving) as http:
        await app.servers.gateway.apply([spec("good"), spec("hang", hang=True)])
        await until(lambda: states(app) == {"good": "ready", "hang": "connecting"})
        error = refusal(await http.get("/ready"), 503, "UNAVAILABLE")
        assert "hang" in error["message"]
        assert error["details"] == {"servers": ["hang"]}
        found = (await http.get("/search", params={"q": "echo"})).json()
        assert found["results"][0]["toolId"] == "good__echo"
        serving.mark_ready()
        answer = await http.get("/ready")
        assert (answer.status_code, answer.json()["servers"]) == (200, {"ready": 1, "connecting": 1})


@pytest.mark.req("G-02", "D-11")
async def test_an_application_that_replaces_another_is_not_ready_before_its_servers(app: App) -> None:
    served = ServedApp(app.settings, app)
    async with open_client(served) as http:
        assert (await http.get("/ready")).status_code == 200
        served.current = None
        refusal(await http.get("/ready"), 503, "UNAVAILABLE")
        served.current = app
        await app.servers.gateway.apply([spec("hang", hang=True)])
        error = refusal(await http.get("/ready"), 503, "UNAVAILABLE")
        assert error["details"] == {"servers": ["hang"]}
        served.mark_ready()
        assert (await http.get("/ready")).status_code == 200


@pytest.mark.req("G-02", "H-04")
async def test_while_a_server_is_being_indexed_every_search_is_degraded(app: App) -> None:
    async with open_client(ServedApp(app.settings, app, ready=False)) as http:
        await app.servers.gateway.apply([spec("good"), spec("hang", hang=True)])
        await until(lambda: states(app) == {"good": "ready", "hang": "connecting"})
        found = (await http.get("/search", params={"q": "echo"})).json()
        assert (found["results"][0]["toolId"], found["degraded"]) == ("good__echo", ["catalogue"])
        query_fields = {"query": "echo", "skill_threshold": 0, "tool_threshold": 0}
        for _ in range(2):  # the second response is from the cache
            answer = (await http.post("/api/v1/search", json=query_fields)).json()
            assert answer["tools"]
            assert answer["metadata"]["degraded"] == ["catalogue"]
        nothing = await http.get("/api/v1/search/tools", params={"query": "make a loud noise", "threshold": 1})
        error = refusal(nothing, 503, "UNAVAILABLE")
        assert "tools are still being indexed (hang still starting): try again" in error["message"]
        assert error["details"] == {"degraded": ["catalogue"], "servers_starting": ["hang"]}
        for strategy in ("standard", "direct"):
            response = await search_tools(app, SearchToolsArguments.parse({"query": "echo", "strategy": strategy}))
            assert (
                response.splitlines()[-1]
                == "Still starting: hang. Their tools are not included yet: search again in a few seconds."
            )

        await app.servers.gateway.apply([spec("good")])
        assert "degraded" not in (await http.get("/search", params={"q": "echo"})).json()
        assert (await http.post("/api/v1/search", json=query_fields)).json()["metadata"]["degraded"] == []
        quiet = {"query": "make a loud noise", "threshold": "1"}
        assert (await http.get("/api/v1/search/tools", params=quiet)).json() == []


@pytest.mark.req("G-02", "H-04")
async def test_a_server_that_reconnects_keeps_its_indexed_tools(app: App) -> None:
    async with open_client(ServedApp(app.settings, app)) as http:
        await app.servers.gateway.apply([spec("good")])
        await until(lambda: states(app) == {"good": "ready"})
        await app.servers.gateway.apply([spec("good", hang=True)])
        assert states(app) == {"good": "connecting"}
        found = (await http.get("/search", params={"q": "echo"})).json()
        assert found["results"][0]["toolId"] == "good__echo"
        assert "degraded" not in found


@pytest.mark.req("G-02", "H-14")
async def test_the_catalogue_is_incomplete_while_it_is_being_indexed_again(app: App) -> None:
    await app.servers.gateway.apply([spec("good")])
    await until(lambda: states(app) == {"good": "ready"})
    again = Gateway(Servers(2**26), app.catalogue.sync)
    assert not again.is_incomplete
    opening = asyncio.create_task(again.apply([spec("good")]))
    was_incomplete = False
    while not opening.done():
        was_incomplete |= again.is_incomplete
        await asyncio.sleep(0)
    assert (was_incomplete, again.is_incomplete) == (True, False)
    await again.close()
