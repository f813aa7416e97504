"""Calls that wait for approval over HTTP: who may see them and decide, and what a decision is good for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.serving import replace_parts
from tests.servers import make_scripted_server
from toolscript.app.access import create_sign_in_code
from toolscript.app.app import App, local_token, open_app
from toolscript.domain.access import PendingState, Scope
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("G-13", "X-04")

API_KEY = "the-key-of-the-operator-of-this-gateway"
PATH = "/api/v1/approvals"
ECHO = "/tools/box__echo"
Headers = dict[str, str]


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    settings = load_settings(
        variables={}, data_dir=tmp_path_factory.mktemp("approvals"), search_model="hashed-64", approval="writes"
    )
    async with open_app(settings, serving=True) as opened:
        await opened.servers.gateway.apply([make_scripted_server("box", tools=["echo"])])
        await opened.servers.gateway.settle(60.0)
        yield opened


@asynccontextmanager
async def connect(app: App, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client on the gateway's own machine."""
    app = replace_parts(app, settings=replace(app.settings, **settings))
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)), client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


def sign_in(app: App) -> Headers:
    """What a page sends that `toolscript open` has signed in."""
    return {"Authorization": f"Bearer {app.access.sign_ins.redeem(create_sign_in_code(app.access.local_key))}"}


async def create_key(app: App, name: str, *scopes: Scope) -> Headers:
    _, secret = await app.access.keys.create(name, scopes)
    return {"X-API-Key": secret}


async def wait(client: httpx.AsyncClient, text: str, headers: Headers | None = None) -> str:
    """The id under which a call waits."""
    refused = await client.post(ECHO, json={"text": text}, headers=headers)
    assert refused.status_code == 403, refused.text
    assert refused.json()["error"]["code"] == "APPROVAL_REQUIRED"
    return str(refused.json()["error"]["details"]["approval"])


async def test_a_call_without_credentials_waits_until_the_signed_in_owner_decides(app: App) -> None:
    async with connect(app) as client:
        owner, call_id = sign_in(app), await wait(client, "a")
        listed = (await client.get(PATH, headers=owner)).json()
        (call,) = listed["calls"]
        assert listed["total"] == 1
        assert call.items() >= {"id": call_id, "tool_id": "box__echo", "server": "box", "state": "waiting"}.items()
        assert (call["caller"], call["profile"], call["arguments"]) == (
            "address 127.0.0.1",
            None,
            '{\n  "text": "a"\n}',
        )
        approved = await client.post(f"{PATH}/{call_id}/approve", headers=owner)
        assert (approved.status_code, approved.json()["state"]) == (200, "approved")
        assert (await client.post(f"{PATH}/{call_id}/decline", headers=owner)).status_code == 409
        assert (await client.get(PATH, headers=owner)).json() == {"calls": [], "total": 0}
        assert (await client.post(ECHO, json={"text": "a"})).json() == {"text": "a"}
        missing = await client.post(f"{PATH}/{call_id}/approve", headers=owner)
        assert missing.status_code == 404
        assert "`toolscript approvals` lists those that wait" in missing.json()["error"]["message"]
        again = await wait(client, "a")
        assert again != call_id
        assert (await client.post(f"{PATH}/{again}/decline", headers=owner)).json()["state"] == "declined"
        declined = await client.post(ECHO, json={"text": "a"})
        assert (declined.status_code, declined.json()["error"]["code"]) == (403, "APPROVAL_DECLINED")


async def test_the_owner_of_a_machine_without_credentials_decides_about_nothing(app: App) -> None:
    """It may be an agent that sends the request."""
    page = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
    async with connect(app) as client:
        call_id = await wait(client, "keyless")
        for headers in ({}, page, {"Authorization": "Bearer nonsense"}):
            for method, path in (("GET", PATH), ("POST", f"{PATH}/{call_id}/approve"), ("POST", f"{PATH}/x/decline")):
                refused = await client.request(method, path, headers=headers)
                assert refused.status_code in {401, 403}, (headers, path, refused.text)
        assert "`toolscript open`" in (await client.get(PATH, headers=page)).json()["error"]["message"]
        await app.tools.approvals.pending.decide(call_id, PendingState.DECLINED, decider=None)


async def test_a_key_needs_the_scope_admin_and_decides_about_no_call_of_its_own(app: App) -> None:
    agent = await create_key(app, "agent", Scope.SEARCH, Scope.CALL)
    admin = await create_key(app, "admin", Scope.ADMIN, Scope.CALL)
    async with connect(app) as client:
        call_id, own = await wait(client, "b", agent), await wait(client, "b", admin)
        assert call_id != own
        for path in (call_id, own):
            assert (await client.post(f"{PATH}/{path}/approve", headers=agent)).status_code == 403
        assert (await client.get(PATH, headers=agent)).status_code == 403
        refused = await client.post(f"{PATH}/{own}/approve", headers=admin)
        assert refused.status_code == 403
        assert "cannot decide about its own calls" in refused.json()["error"]["message"]
        assert (await client.post(f"{PATH}/{call_id}/approve", headers=admin)).status_code == 200
        assert await wait(client, "b", admin) == own
        assert (await client.post(ECHO, json={"text": "b"}, headers=agent)).json() == {"text": "b"}
        token = {"Authorization": f"Bearer {local_token(app.access.local_key, 'default')}"}
        assert (await client.post(f"{PATH}/{own}/decline", headers=token | admin)).status_code == 200


async def test_the_operator_decides_about_the_calls_of_others(app: App) -> None:
    agent = await create_key(app, "other-agent", Scope.CALL)
    operator = {"X-API-Key": API_KEY}
    async with connect(app, api_key=API_KEY) as client:
        call_id, own = await wait(client, "c", agent), await wait(client, "c", operator)
        assert (await client.post(f"{PATH}/{own}/approve", headers=operator)).status_code == 403
        assert (await client.post(f"{PATH}/{call_id}/decline", headers=operator)).status_code == 200
        # A command on the machine sends both.
        token = {"Authorization": f"Bearer {local_token(app.access.local_key, 'default')}"}
        assert (await client.post(f"{PATH}/{own}/decline", headers=operator | token)).status_code == 200


async def test_gateways_that_share_a_store_share_decisions(tmp_path: Path) -> None:
    shared = {"store": f"sqlite:///{tmp_path / 'store.db'}", "search_model": "hashed-64", "approval": "writes"}
    server = make_scripted_server("box", tools=["echo"])
    call_id = ""
    for name in ("one", "two"):
        settings = load_settings(variables={}, data_dir=tmp_path / name, index="memory:", **shared)
        async with open_app(settings) as app, connect(app) as client:
            await app.servers.gateway.apply([server])
            await app.servers.gateway.settle(60.0)
            if name == "one":
                call_id = await wait(client, "d")
            else:
                assert (await client.post(f"{PATH}/{call_id}/approve", headers=sign_in(app))).status_code == 200
                assert (await client.post(ECHO, json={"text": "d"})).json() == {"text": "d"}
