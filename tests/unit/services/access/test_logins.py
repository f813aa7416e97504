"""Logins at a real authorization server: tokens are sent, renewed, revoked, and go nowhere else."""

from __future__ import annotations

import asyncio
import io
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures.limits import set_limits
from tests.servers import serving_http
from tests.servers.logins import (
    Authorization,
    ProtectedServer,
    UserWithBrowser,
    recording_requests,
    serving_authorization,
    serving_protected,
)
from toolscript.adapters.mcp.client import McpServers
from toolscript.adapters.mcp.oauth.servers import OAuthServers
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.logins import SqlLogins
from toolscript.adapters.storage.sealing import InstallationKey
from toolscript.domain.catalog import Item
from toolscript.domain.errors import Forbidden, Invalid, LoginRequired, Unauthorized, Unavailable, UpstreamFailed
from toolscript.domain.limits import Limits
from toolscript.domain.logins import Login, LoginName, StoredLogin, name_login
from toolscript.domain.servers import CallRelay, ServerSpec, ServerState, Transport
from toolscript.services.access.logins import Logins
from toolscript.services.servers.gateway import Gateway

pytestmark = [pytest.mark.req("G-11", "X-04"), pytest.mark.slow]

WITHIN = 60.0
TTL = 3600


@pytest.fixture(scope="module")
def authorization() -> Iterator[Authorization]:
    with serving_authorization(ttl=TTL) as server:
        yield server


@pytest.fixture(scope="module")
def web(authorization: Authorization) -> Iterator[ProtectedServer]:
    with serving_protected(authorization.issuer) as server:
        yield server


@pytest.fixture
def spec(web: ProtectedServer) -> ServerSpec:
    return web.make_spec()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlLogins]:
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    yield SqlLogins(database, InstallationKey(file=tmp_path / "login.key"))
    await database.close()


class Clock:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def _open(store: SqlLogins, clock: Clock | None = None) -> Logins:
    """What a process has: several of them are several gateways on one store."""
    clock = clock or Clock()
    return Logins(store, OAuthServers(clock=clock), clock)


async def _read(store: SqlLogins, spec: ServerSpec) -> StoredLogin:
    stored = await store.read(name_login(spec))
    assert stored is not None
    return stored


async def _call(logins: Logins, spec: ServerSpec, tool: str = "authorization", **arguments: str) -> str | None:
    """What the server answers to a call, over a new connection."""
    async with McpServers(tokens=logins).connect(spec, within=WITHIN) as server:
        items = {item.name: item for item in (await server.list_items()).items}
        result = await server.call(items[tool], arguments, within=WITHIN)
    structured = result.structured
    return structured["value"] if isinstance(structured, dict) and "value" in structured else result.text


async def _wait_until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  (it is another connection's state)
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.SSE])
async def test_calls_after_a_login_carry_its_token(
    store: SqlLogins, web: ProtectedServer, transport: Transport
) -> None:
    spec = web.make_spec(transport)
    with pytest.raises(LoginRequired, match="run `toolscript login web`"):
        await _call(_open(store), spec)
    await _open(store).log_in(spec, UserWithBrowser())
    token = (await _read(store, spec)).login.access_token
    assert await _call(_open(store), spec) == f"Bearer {token}"


@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.SSE])
async def test_an_expired_token_is_renewed_also_after_a_restart(
    store: SqlLogins, web: ProtectedServer, transport: Transport
) -> None:
    spec, clock = web.make_spec(transport), Clock()
    await _open(store).log_in(spec, UserWithBrowser())
    before = (await _read(store, spec)).login
    clock.ahead = TTL
    renewed = await _call(_open(store, clock), spec)
    after = (await _read(store, spec)).login
    assert renewed == f"Bearer {after.access_token}" != f"Bearer {before.access_token}"
    assert after.refresh_token != before.refresh_token
    assert after.id == before.id


async def test_a_refused_token_is_renewed_once_and_not_again(
    store: SqlLogins, spec: ServerSpec, authorization: Authorization
) -> None:
    logins = _open(store)
    await logins.log_in(spec, UserWithBrowser())
    stored = await _read(store, spec)
    await store.save(name_login(spec), replace(stored.login, access_token="revoked"), replacing=stored.version)
    assert await _call(logins, spec) != "Bearer revoked"
    renewals = authorization.get_record()["grants"]["refresh_token"]
    for _ in range(3):
        current = (await _read(store, spec)).login.access_token
        assert await logins.renew_token(spec, current) is None
    assert authorization.get_record()["grants"]["refresh_token"] == renewals


async def test_a_revoked_login_ends_and_the_authorization_server_is_left_alone(
    store: SqlLogins, spec: ServerSpec, authorization: Authorization
) -> None:
    clock = Clock()
    logins = _open(store, clock)
    await logins.log_in(spec, UserWithBrowser())
    login = (await _read(store, spec)).login
    authorization.revoke_everything(login.refresh_token or "", login.client_id)
    clock.ahead = TTL
    requests = authorization.get_record()["errors"].get("invalid_grant", 0)
    for _ in range(3):
        with pytest.raises(LoginRequired, match="it needs a login: run `toolscript login web`"):
            await _call(logins, spec)
    assert await store.read(name_login(spec)) is None
    assert authorization.get_record()["errors"]["invalid_grant"] == requests + 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_gateways_that_renew_at_once_use_the_refresh_token_once(
    kind: str, tmp_path: Path, spec: ServerSpec, authorization: Authorization, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres") if kind == "postgres" else f"sqlite:///{tmp_path / 'store.db'}"
    databases = [Database(url) for _ in range(4)]
    key, clock = InstallationKey("a key of at least thirty-two characters"), Clock()
    gateways = [_open(SqlLogins(database, key), clock) for database in databases]
    store = SqlLogins(databases[0], key)
    await _open(store).log_in(spec, UserWithBrowser())
    record = authorization.get_record()
    clock.ahead = TTL
    tokens = await asyncio.gather(*(gateway.get_token(spec) for gateway in gateways for _ in range(3)))
    assert set(tokens) == {(await _read(store, spec)).login.access_token}
    after = authorization.get_record()
    assert after["grants"]["refresh_token"] == record["grants"].get("refresh_token", 0) + 1
    assert after["errors"] == record["errors"]
    await asyncio.gather(*(database.close() for database in databases))


async def test_a_caller_that_goes_away_does_not_lose_the_renewed_token(store: SqlLogins, spec: ServerSpec) -> None:
    clock = Clock()
    await _open(store).log_in(spec, UserWithBrowser())
    before = await _read(store, spec)
    clock.ahead = TTL
    began = asyncio.Event()

    class SlowServers(OAuthServers):
        async def refresh(self, login: Login) -> Login:
            began.set()
            return await super().refresh(login)

    logins = Logins(store, SlowServers(clock=clock), clock)
    caller = asyncio.create_task(logins.get_token(spec))
    await began.wait()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    await logins.close()
    after = await _read(store, spec)
    assert after.login.refresh_token != before.login.refresh_token
    await OAuthServers().refresh(after.login)  # it is the one that the authorization server knows


@pytest.mark.req("X-11")
async def test_the_end_of_the_gateway_does_not_wait_for_an_authorization_server_without_end(
    store: SqlLogins, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, login_close=0.1)
    began = asyncio.Event()

    class SilentServers(OAuthServers):
        async def refresh(self, login: Login) -> Login:
            began.set()
            await asyncio.Event().wait()
            return login

    spec = ServerSpec("web", Transport.HTTP, url="http://127.0.0.1:9/mcp")
    await store.save(name_login(spec), Login("1", "", spec.url, "me", "", "old", "refresh", expires_at=1.0))
    logins = Logins(store, SilentServers())
    caller = asyncio.create_task(logins.get_token(spec))
    await began.wait()
    async with asyncio.timeout(30):
        await logins.close()
        await asyncio.gather(caller, return_exceptions=True)
    assert caller.cancelled()
    version = (await _read(store, spec)).version
    assert await store.claim(name_login(spec), version, now=0.0, until=1.0)  # by another gateway, at once


async def test_an_authorization_server_that_is_down_ends_no_login(store: SqlLogins, spec: ServerSpec) -> None:
    clock = Clock()
    logins = _open(store, clock)
    await logins.log_in(spec, UserWithBrowser())
    stored = await _read(store, spec)
    gone = replace(stored.login, token_endpoint="http://127.0.0.1:9/token")
    await store.save(name_login(spec), gone, replacing=stored.version)
    clock.ahead = TTL - 3.0  # renewed early, and still valid
    assert await _open(store, clock).get_token(spec) == gone.access_token
    clock.ahead = TTL + 1.0
    with pytest.raises(Unavailable, match=r"no answer from 127\.0\.0\.1:9") as caught:
        await _open(store, clock).get_token(spec)
    assert not isinstance(caught.value, LoginRequired)
    assert (await _read(store, spec)).login == gone


async def test_a_store_that_does_not_answer_hinders_no_server_without_a_login(
    store: SqlLogins, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(_: LoginName) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "read", wait)
    set_limits(monkeypatch, login_read=0.1)
    with serving_http() as web:
        assert await _call(_open(store), ServerSpec("web", Transport.HTTP, url=web.http)) is None


async def test_a_changed_address_gets_no_token(store: SqlLogins, spec: ServerSpec) -> None:
    logins = _open(store)
    await logins.log_in(spec, UserWithBrowser())
    assert await logins.get_token(spec)
    assert await logins.get_token(replace(spec, url="https://evil.example/mcp")) is None
    assert await logins.get_token(replace(spec, name="other")) is None


async def test_a_redirect_to_another_host_does_not_carry_the_token(
    store: SqlLogins, authorization: Authorization, spec: ServerSpec
) -> None:
    logins = _open(store)
    await logins.log_in(spec, UserWithBrowser())
    login = (await _read(store, spec)).login
    with (
        recording_requests() as (elsewhere, requests),
        serving_protected(authorization.issuer, moved_to=f"{elsewhere}/mcp") as server,
    ):
        for transport in (Transport.HTTP, Transport.SSE):
            moved = ServerSpec("moved", transport, url=server.moved)
            await store.save(name_login(moved), login)
            with pytest.raises(Unavailable):
                await _call(logins, moved)
    assert requests == []


async def test_a_server_gets_the_token_of_no_other_server(
    store: SqlLogins, spec: ServerSpec, authorization: Authorization
) -> None:
    logins = _open(store)
    await logins.log_in(spec, UserWithBrowser())
    with recording_requests(status=401) as (elsewhere, requests), pytest.raises(LoginRequired):
        await _call(logins, ServerSpec("other", Transport.HTTP, url=f"{elsewhere}/mcp"))
    assert requests
    assert not [each for each in requests if "authorization" in each]


async def test_a_tool_that_needs_more_scopes_gets_them_with_the_next_login(store: SqlLogins, spec: ServerSpec) -> None:
    logins = _open(store)
    await logins.log_in(spec, UserWithBrowser())
    with pytest.raises(UpstreamFailed, match=r"web__grow needs the scope tools:write.*run `toolscript login web`"):
        await _call(logins, spec, "grow", name="late")
    assert await _call(logins, spec)  # the login is as good as before
    again = await _open(store).log_in(spec, UserWithBrowser())
    assert set(again.scope.split()) == {"tools:read", "tools:write"}
    assert await _call(_open(store), spec, "grow", name="late") == "late is there"


async def test_a_server_that_wants_more_scopes_for_everything_needs_another_login(
    store: SqlLogins, authorization: Authorization
) -> None:
    with serving_protected(authorization.issuer, strict=True) as server:
        spec = server.make_spec()
        await _open(store).log_in(spec, UserWithBrowser())
        with pytest.raises(LoginRequired, match="its login lacks the scope tools:write: run `toolscript login web`"):
            await _call(_open(store), spec)
        await _open(store).log_in(spec, UserWithBrowser())
        assert await _call(_open(store), spec)


async def test_logging_out_revokes_and_forgets(
    store: SqlLogins, spec: ServerSpec, authorization: Authorization
) -> None:
    logins = _open(store)
    with pytest.raises(Unauthorized, match="no login for server web"):
        await logins.log_out(spec)
    await logins.log_in(spec, UserWithBrowser())
    login = (await _read(store, spec)).login
    assert await logins.log_out(spec)
    assert await store.read(name_login(spec)) is None
    with pytest.raises(Unauthorized, match="invalid_grant"):
        await OAuthServers().refresh(login)


async def test_a_gateway_follows_logins_and_logouts(
    store: SqlLogins, spec: ServerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, login_poll=0.05)
    logins = _open(store)
    gateway = Gateway(McpServers(tokens=logins), None, Limits(max_pause=600))
    logins.start_following(lambda name: gateway.reconnect(name.server, name.user, "its login has changed"))
    await gateway.apply([spec])
    await gateway.settle(WITHIN)
    (status,) = gateway.statuses
    assert (status.state, status.needs_login) == (ServerState.FAILED, True)
    assert status.reason == "it needs a login: run `toolscript login web`"
    assert (status.retry_in_seconds or 0) > 500
    other = _open(store)  # the command line
    async with asyncio.timeout(WITHIN):
        await other.log_in(spec, UserWithBrowser())
        await _wait_until(lambda: gateway.statuses[0].state is ServerState.READY)
        assert not gateway.statuses[0].needs_login
        await other.log_out(spec)
        await _wait_until(lambda: gateway.statuses[0].needs_login)
    item = Item("web", "echo")
    with pytest.raises(LoginRequired, match="toolscript login web"):
        await gateway.call(item, {"text": "x"}, WITHIN)
    await gateway.close()
    await logins.close()


async def test_a_server_with_a_login_per_user_gets_the_token_of_the_caller(
    store: SqlLogins, web: ProtectedServer
) -> None:
    spec, logins, item = web.make_spec(per_user=True), _open(store), Item("web", "authorization")
    users = ["", "ann", "bob"]
    for user in users[:2]:
        await logins.log_in(replace(spec, user=user), UserWithBrowser())
    gateway = Gateway(McpServers(tokens=logins), None)
    await gateway.apply([spec])

    async def call(user: str | None) -> str:
        result = await gateway.call(item, {}, WITHIN, CallRelay(user=user))
        return str((result.structured or {})["value"])

    sent = await asyncio.gather(*(call(user) for user in users[:2]))
    stored = [(await _read(store, replace(spec, user=user))).login.access_token for user in users[:2]]
    assert sent == [f"Bearer {token}" for token in stored]
    assert len(set(sent)) == 2
    with pytest.raises(LoginRequired, match=r"it needs a login: run `toolscript login web --user bob`"):
        await call("bob")
    with pytest.raises(Forbidden, match="a login per user"):
        await call(None)
    assert len(gateway.statuses) == 1
    await gateway.apply([])
    with pytest.raises(Unavailable, match="not configured"):
        await call("ann")
    await gateway.close()


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (ServerSpec("files", Transport.STDIO, command="files"), "a program on this machine"),
        (ServerSpec("far", Transport.HTTP, url="https://a.example", headers={"authorization": "x"}), "its `headers`"),
    ],
)
async def test_servers_with_other_credentials_need_no_login(store: SqlLogins, spec: ServerSpec, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        await _open(store).log_in(spec, UserWithBrowser())


async def test_no_token_is_in_a_log_or_an_error(
    store: SqlLogins, spec: ServerSpec, authorization: Authorization, web: ProtectedServer
) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(
        lambda line: not line.name.startswith(("httpx.", "httpcore.")) and line.name != "httpx"
    )  # the user's
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        clock = Clock()
        logins = _open(store, clock)
        await logins.log_in(spec, UserWithBrowser())
        await _call(logins, spec, "echo", text="hello")
        clock.ahead = TTL
        await _call(logins, spec, "echo", text="hello")
        for wrong in ("grow", "echo"):
            with pytest.raises((UpstreamFailed, LoginRequired)) as caught:
                await _call(logins, replace(spec, name="web" if wrong == "grow" else "other"), wrong, name="x")
            written.write(repr(caught.value) + str(caught.value.to_envelope()))
        written.write(repr([await _read(store, spec), logins, spec, LoginName("web", "")]))
        await logins.log_out(spec)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    secrets = authorization.get_record()["secrets"]
    assert len(secrets) > 5
    assert [secret for secret in secrets if secret in written.getvalue()] == []
