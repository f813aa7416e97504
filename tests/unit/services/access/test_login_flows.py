"""Logins that are begun by one request and finished by another, at a real authorization server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.fixtures.catalogue import Events
from tests.fixtures.limits import set_limits
from tests.fixtures.requests import as_request
from tests.servers.logins import (
    Authorization,
    ProtectedServer,
    follow_redirects,
    serving_authorization,
    serving_protected,
)
from toolscript.adapters.mcp.oauth.servers import OAuthServers
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.logins import SqlLogins
from toolscript.adapters.storage.sealing import InstallationKey
from toolscript.domain.errors import Conflict, Forbidden, Invalid, NotFound, Unauthorized, Unavailable
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.services.access import login_flows as module
from toolscript.services.access.login_flows import LoginFlows
from toolscript.services.access.logins import Logins
from toolscript.services.support.server_changes import ServerChanges

pytestmark = [pytest.mark.req("G-11", "X-04"), pytest.mark.slow]

REDIRECT = "http://127.0.0.1:7777/callback"


@pytest.fixture(scope="module")
def authorization() -> Iterator[Authorization]:
    with serving_authorization(ttl=3600) as server:
        yield server


@pytest.fixture(scope="module")
def web(authorization: Authorization) -> Iterator[ProtectedServer]:
    with serving_protected(authorization.issuer) as server:
        yield server


@pytest.fixture
async def logins(tmp_path: Path) -> AsyncIterator[Logins]:
    database = Database("sqlite://")
    logins = Logins(SqlLogins(database, InstallationKey(None, tmp_path / "login.key")), OAuthServers())
    yield logins
    await logins.close()
    await database.close()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
async def flows(logins: Logins, events: Events) -> AsyncIterator[LoginFlows]:
    flows = LoginFlows(logins, ServerChanges(events))
    yield flows
    await flows.close()


async def log_in(url: str) -> str:
    return await asyncio.to_thread(follow_redirects, url)


async def test_a_new_login_at_the_same_server_ends_the_one_before(flows: LoginFlows, web: ProtectedServer) -> None:
    first = await flows.begin(web.make_spec(), REDIRECT)
    second = await flows.begin(web.make_spec(), REDIRECT)
    with pytest.raises(NotFound):
        await flows.finish(f"{REDIRECT}?state={first.state}&code=x", first.secret)
    assert (await flows.finish(await log_in(second.url), second.secret))[0] == "web"


async def test_logins_are_events_of_who_began_them(flows: LoginFlows, events: Events, web: ProtectedServer) -> None:
    with as_request(caller_name="ann"):
        begun = await flows.begin(replace(web.make_spec(), user="ann"), REDIRECT)
    # The redirect has no key.
    await flows.finish(await log_in(begun.url), begun.secret)
    (event,) = events.recorded
    assert (event["tool"], event["server"], event["caller"], event["about"], event["error"]) == (
        "log in",
        "web",
        "ann",
        "login of ann",
        None,
    )


async def test_the_end_of_the_gateway_ends_a_login_and_says_so(flows: LoginFlows, web: ProtectedServer) -> None:
    begun = await flows.begin(web.make_spec(), REDIRECT)
    waiting = asyncio.create_task(flows.finish(await log_in(begun.url), begun.secret))
    await asyncio.sleep(0)
    await flows.close()
    with pytest.raises(Conflict, match="the gateway is stopping"):
        await waiting


async def test_a_user_who_begins_many_logins_ends_none_of_others(
    flows: LoginFlows, web: ProtectedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FLOWS", 2)
    bobs = await flows.begin(replace(web.make_spec(), user="bob"), REDIRECT)
    for number in range(3):
        await flows.begin(replace(web.make_spec(name=f"web{number}"), user="ann"), REDIRECT)
    assert (await flows.finish(await log_in(bobs.url), bobs.secret))[0] == "web"


async def test_only_so_many_logins_wait_at_once(
    flows: LoginFlows, web: ProtectedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FLOWS", 2)
    begun = [await flows.begin(web.make_spec(name=f"web{n}"), REDIRECT) for n in range(3)]
    with pytest.raises(NotFound):
        await flows.finish(f"{REDIRECT}?state={begun[0].state}&code=x", begun[0].secret)
    assert (await flows.finish(await log_in(begun[1].url), begun[1].secret))[0] == "web1"


async def test_errors_are_reported_to_the_browser_that_waits(
    flows: LoginFlows, web: ProtectedServer, authorization: Authorization
) -> None:
    with pytest.raises(Invalid, match="needs no login"):
        await flows.begin(ServerSpec("local", Transport.STDIO, command="x"), REDIRECT)
    with pytest.raises(Unavailable):
        await flows.begin(ServerSpec("gone", Transport.HTTP, url="http://127.0.0.1:9/mcp"), REDIRECT)
    begun = await flows.begin(web.make_spec(), REDIRECT)
    refusal = urlencode({"state": begun.state, "error": "access_denied", "iss": authorization.issuer})
    with pytest.raises(Unauthorized, match="cancelled or refused"):
        await flows.finish(f"{REDIRECT}?{refusal}", begun.secret)
    for address in (REDIRECT, f"{REDIRECT}?state=", f"{REDIRECT}?state=\u20ac&code=1"):
        with pytest.raises(NotFound):
            await flows.finish(address, "")


async def test_a_login_that_takes_too_long_ends(
    flows: LoginFlows, web: ProtectedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, login=0.01)
    late = await flows.begin(web.make_spec(), REDIRECT)
    async with asyncio.timeout(60):
        while True:
            try:
                await flows.finish(f"{REDIRECT}?state={late.state}&code=x", "of another browser")
            except Forbidden:
                await asyncio.sleep(0.01)
            except NotFound:
                break
