"""What every store of keys promises: names are unique for ever, no secret is stored, all gateways see the same."""

from __future__ import annotations

import asyncio

import pytest

from tests.fixtures.limits import set_limits
from toolscript.adapters.sql.access.keys import SqlKeys
from toolscript.adapters.sql.database import Database
from toolscript.domain.access import AccessKey, Scope
from toolscript.domain.errors import Conflict, NotFound
from toolscript.ports.access import KeyStore
from toolscript.services.access.keys import Keys, compute_digest

pytestmark = pytest.mark.req("X-02", "X-04", "G-19")

CI = AccessKey("ci", compute_digest("one"), frozenset({Scope.SEARCH, Scope.CALL}), created_at=1_700_000_000.25)
APP = AccessKey(
    "acme-app",
    compute_digest("two"),
    frozenset({Scope.DOCUMENTS}),
    created_at=1_700_000_001.5,
    expires_at=1_800_000_000.0,
    tenant="Ümlaut & Co",
    plan="slow",
    calls_per_minute=60,
    concurrent_calls=4,
)


@pytest.fixture
def store(database: Database) -> KeyStore:
    return SqlKeys(database)


async def test_keys_come_back_as_they_were_added_by_name(store: KeyStore) -> None:
    assert await store.list_keys() == []
    await store.add_key(CI)
    await store.add_key(APP)
    assert await store.list_keys() == [APP, CI]


async def test_a_name_can_be_used_once_even_by_many_at_a_time(store: KeyStore) -> None:
    keys = [AccessKey("ci", compute_digest(str(n)), frozenset({Scope.CALL}), created_at=float(n)) for n in range(8)]
    results = await asyncio.gather(*(store.add_key(key) for key in keys), return_exceptions=True)
    assert [type(each) for each in results if each is not None] == [Conflict] * 7
    (stored,) = await store.list_keys()
    assert stored in keys


async def test_a_revoked_key_stays_revoked_and_keeps_its_name(store: KeyStore) -> None:
    await store.add_key(CI)
    assert (await store.revoke_key("ci", at=5.0)).revoked_at == 5.0
    assert (await store.revoke_key("ci", at=9.0)).revoked_at == 5.0
    with pytest.raises(Conflict, match="ci"):
        await store.add_key(AccessKey("ci", compute_digest("new"), CI.scopes, created_at=6.0))
    assert [key.get_state(now=10.0) for key in await store.list_keys()] == ["revoked"]


async def test_an_unknown_name_cannot_be_revoked(store: KeyStore) -> None:
    with pytest.raises(NotFound, match="toolscript keys list"):
        await store.revoke_key("nobody", at=1.0)


async def test_what_one_gateway_revokes_the_others_refuse(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, keys_max_age=0.0)  # instead of waiting
    set_limits(monkeypatch, keys_read=60.0)
    one, other = Keys(store), Keys(store)
    assert not await other.exist()
    created, secret = await one.create("ci", [Scope.SEARCH])
    assert (await one.find(secret), await other.find(secret)) == (created, created)
    await one.revoke("ci")
    assert (await one.find(secret), await other.find(secret)) == (None, None)
    assert await other.exist()


async def test_no_secret_is_in_the_store(store: KeyStore, database: Database) -> None:
    _, secret = await Keys(store).create("ci", [Scope.SEARCH])
    rows = await database.read(lambda session: session.rows("SELECT * FROM access_keys"))
    assert len(rows) == 1
    assert secret not in str(rows)
    assert secret.removeprefix("tsk_") not in str(rows)
