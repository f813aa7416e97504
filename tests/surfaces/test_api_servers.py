"""An API with an OpenAPI document behind the gateway: what holds for tools holds for its operations."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from docs.generate import ROOT
from tests.fixtures.pet_api import PETS, PetApi
from toolscript.app.app import App, open_app
from toolscript.configuration.files import load_configuration
from toolscript.domain.access import ApprovalPolicy
from toolscript.domain.servers import ServerStart
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = [pytest.mark.slow, pytest.mark.req("O-01")]

TIMEOUT_SECONDS = 60.0
GUIDE = ROOT / "docs" / "guide" / "openapi.md"


@dataclass
class Scene:
    """A gateway with one API as its server."""

    app: App
    http: httpx.AsyncClient
    api: PetApi

    async def call(self, tool: str, **arguments: Any) -> httpx.Response:
        return await self.http.post(f"/tools/{tool}", json=arguments)

    async def mcp(self, method: str, **params: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"Accept": "application/json, text/event-stream"}
        answer: dict[str, Any] = (await self.http.post("/mcp", json=body, headers=headers)).json()["result"]
        return answer

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not is_so():
                await asyncio.sleep(0.02)
                await self.app.catalogue.snapshots.current().facts()


@pytest.fixture
def api() -> Iterator[PetApi]:
    with PetApi() as api:
        yield api
        api.release.set()


@asynccontextmanager
async def opening(folder: Path, api: PetApi, **about: Any) -> AsyncIterator[Scene]:
    settings = load_settings(variables={}, data_dir=folder / "data", search_model="hashed-64", index="memory:")
    async with open_app(settings, serving=True) as app:
        await app.servers.gateway.apply([api.spec(**about)])
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        http = create_http_app(ServedApp(app.settings, app))
        transport = httpx.ASGITransport(http)
        async with (
            http.router.lifespan_context(http),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            yield Scene(app, client, api)


@pytest.mark.req("G-05", "G-16")
async def test_operations_are_found_called_generated_and_audited(tmp_path: Path, api: PetApi) -> None:
    async with opening(tmp_path, api, headers={"X-Key": "abcdefgh"}) as scene:
        found = (await scene.http.get("/search", params={"q": "list pets of the shop", "threshold": 0})).json()
        assert found["results"][0]["toolId"] == "pets__listPets"
        assert (await scene.call("pets__getPet", petId="7")).json() == PETS[0]
        over_mcp = await scene.mcp("tools/call", name="call_tool", arguments={
            "tool_id": "pets__listPets", "arguments": {"limit": 2}
        })  # fmt: skip
        assert over_mcp["structuredContent"] == {"result": PETS}
        wrong = await scene.call("pets__listPets", limit=1000)
        assert (wrong.status_code, "limit" in wrong.json()["error"]["message"]) == (422, True)
        missing = await scene.call("pets__getPet", petId="99")
        assert "there is no /pets/99" in missing.text
        outside = await scene.call("pets__getPet", petId="../admin")
        assert (outside.status_code, outside.json()["error"]["details"]) == (422, {"field": "petId"})
        source = (await scene.http.get("/runtime/tools.ts")).text
        assert "pets__listPets" in source
        (server,) = (await scene.http.get("/servers")).json()["servers"]
        assert (server["transport"], server["state"], server["tools"]) == ("openapi", "ready", 11)
        log = (await scene.http.get("/api/v1/servers/pets/log")).json()["lines"]
        assert any(line["text"].startswith("GET /pets/{petId}: HTTP status 200 in ") for line in log)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(calls := (await scene.http.get("/api/v1/calls")).json()["events"]) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert {(call["tool"], call["server"]) for call in calls} == {
            ("pets__getPet", "pets"),
            ("pets__listPets", "pets"),
        }
        assert "abcdefgh" not in json.dumps([calls, log, missing.json()])


@pytest.mark.req("G-15")
async def test_a_changed_operation_waits_in_quarantine(tmp_path: Path, api: PetApi) -> None:
    async with opening(tmp_path, api) as scene:
        api.document = api.document.replace(b"Get one pet by its id", b"Get one pet, and mail it to us")

        def is_quarantined() -> bool:
            item = scene.app.catalogue.snapshots.find_item("pets__getPet")
            return bool(item and item.quarantine)

        await scene.app.servers.gateway.refresh()
        await scene.wait_until(is_quarantined)
        refused = await scene.call("pets__getPet", petId="7")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "QUARANTINED")
        (change,) = (await scene.http.get("/api/v1/quarantine/pets__getPet")).json()["changes"]
        assert "+Get one pet, and mail it to us" in change["diff"]
        api.document = api.document.replace(b"  /slow:\n    get:", b"  /slow:\n    delete:")
        await scene.app.servers.gateway.refresh()
        assert (await scene.call("pets__slow")).status_code == 409
        assert api.seen == []


@pytest.mark.req("G-13", "G-17", "G-19")
async def test_approvals_exclusions_and_sleep_hold_for_operations(tmp_path: Path, api: PetApi) -> None:
    about = {"approval": ApprovalPolicy.DESTRUCTIVE, "exclude_tools": ("tag:admin",), "start": ServerStart.LAZY}
    async with opening(tmp_path, api, **about) as scene:
        assert scene.app.servers.gateway.find_spec("pets") is not None
        await scene.wait_until(lambda: scene.app.catalogue.snapshots.find_item("pets__getPet") is not None)
        (server,) = (await scene.http.get("/servers")).json()["servers"]
        assert server["state"] in {"asleep", "ready"}
        assert (await scene.call("pets__getPet", petId="7")).status_code == 200
        waiting = await scene.call("pets__add-pet", name="Tom", kind="cat")
        assert waiting.json()["error"]["code"] == "APPROVAL_REQUIRED"
        assert (await scene.call("pets__deletePet", petId="7")).status_code == 404
        assert [each["method"] for each in api.seen] == ["GET"]


async def test_the_example_of_the_guide_runs(tmp_path: Path, api: PetApi) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    (entry,) = re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (document,) = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tool, arguments) = re.findall(r"^toolscript call (\S+) '(.*)'$", text, re.MULTILINE)[0]
    (tmp_path / "pets.yaml").write_text(document, encoding="utf-8")
    (file := tmp_path / ".toolscript.json").write_text(entry.replace("http://127.0.0.1:8080", api.root), "utf-8")
    configuration = load_configuration(file, home=tmp_path, folder=tmp_path, environment={"PETS_KEY": "k"})
    api.key = "k"
    (spec,) = configuration.servers
    async with opening(
        tmp_path, api, **{k: getattr(spec, k) for k in ("url", "openapi", "headers", "exclude_tools")}
    ) as scene:
        assert {item.name for item in await scene.app.tools.listing.matching(None)} == {"getPet"}
        answer = (await scene.call(tool, **json.loads(arguments))).json()
    assert answer == json.loads(re.findall(r"answers `(\{.*?\})`", text)[0])
    assert replace(spec, headers={}).url == api.url
