"""Named keys: how they are created, and how long a gateway uses what it has read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from tests.fixtures.limits import set_limits
from toolscript.domain.access import AccessKey, Scope
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.services.access.keys import (
    MAX_AGE_WITHOUT_STORE_SECONDS,
    MIN_PAUSE_SECONDS,
    Keys,
    compute_digest,
    is_key,
)

pytestmark = pytest.mark.req("X-04", "G-19")


@dataclass
class Store:
    """Keys in memory, on a store that can be down or frozen."""

    keys: dict[str, AccessKey] = field(default_factory=dict)
    reads: int = 0
    is_down: bool = False
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    is_slow: bool = False
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def add_key(self, key: AccessKey) -> None:
        self.keys[key.name] = key

    async def list_keys(self) -> list[AccessKey]:
        self.reads += 1
        keys = list(self.keys.values())
        await self.answers.wait()
        if self.is_slow:
            await self.let_go.wait()
        if self.is_down:
            raise Unavailable("the store does not answer: db.internal")
        return keys

    async def revoke_key(self, name: str, at: float) -> AccessKey:
        self.keys[name] = replace(self.keys[name], revoked_at=at)
        return self.keys[name]


@dataclass
class Clock:
    """A clock that tests move."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Lets that time pass for all who sleep."""
        end = self.now + seconds
        await asyncio.sleep(0)
        self.now = max(self.now, end)


@dataclass
class Setup:
    store: Store
    clock: Clock
    keys: Keys


@pytest.fixture
async def setup(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setup]:
    set_limits(monkeypatch, keys_read=60.0)  # a busy machine must not use old keys
    store, clock = Store(), Clock()
    store.answers.set()
    keys = Keys(store, clock=clock, monotonic=clock, sleep=clock.sleep)
    yield Setup(store, clock, keys)
    await keys.close()


async def test_a_secret_is_random_and_stored_as_a_digest(setup: Setup) -> None:
    key, secret = await setup.keys.create("ci", [Scope.SEARCH])
    _, other = await setup.keys.create("other", [Scope.SEARCH])
    assert is_key(secret)
    assert len(secret) >= 43
    assert secret != other
    assert setup.store.keys["ci"].digest == key.digest == compute_digest(secret)
    assert key.digest not in repr(key)


@pytest.mark.req("X-03")
@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 65, "ü", "a\n"])
async def test_a_name_has_few_characters(setup: Setup, name: str) -> None:
    with pytest.raises(Invalid, match="1 to 64 letters"):
        await setup.keys.create(name, [Scope.SEARCH])


@pytest.mark.req("X-03")
async def test_no_key_has_the_name_of_the_operators(setup: Setup) -> None:
    with pytest.raises(Invalid, match="the name of the operator's key"):
        await setup.keys.create("TOOLSCRIPT_API_KEY", [Scope.CALL])


@pytest.mark.req("X-03")
async def test_a_key_needs_a_scope_and_for_documents_a_tenant(setup: Setup) -> None:
    with pytest.raises(Invalid, match="search, call, documents, knowledge, metrics, admin"):
        await setup.keys.create("ci", [])
    with pytest.raises(Invalid, match="needs a tenant"):
        await setup.keys.create("ci", [Scope.DOCUMENTS])
    assert (await setup.keys.create("app", [Scope.DOCUMENTS], tenant="acme"))[0].tenant == "acme"
    assert (await setup.keys.create("ci", [Scope.SEARCH], tenant="acme"))[0].tenant is None
    assert setup.store.keys.keys() == {"app", "ci"}


async def test_wrong_secrets_find_nothing(setup: Setup) -> None:
    key, secret = await setup.keys.create("ci", [Scope.SEARCH])
    for wrong in ("", "tsk_", secret[:-1], secret + "x", secret.upper(), key.digest, f"tsk_{key.digest}"):
        assert await setup.keys.find(wrong) is None
    assert await setup.keys.find(secret) == key


async def test_a_key_expires_by_the_clock_without_a_store(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    key, secret = await setup.keys.create("ci", [Scope.SEARCH], expires_in=60)
    assert await setup.keys.find(secret) == key
    setup.store.answers.clear()
    set_limits(monkeypatch, keys_read=0.01)
    setup.clock.now += 59
    assert await setup.keys.find(secret) == key
    setup.clock.now += 1
    assert await setup.keys.find(secret) is None


async def test_keys_are_read_once_in_two_seconds(setup: Setup) -> None:
    _, secret = await setup.keys.create("ci", [Scope.SEARCH])
    for _ in range(5):
        await asyncio.gather(*(setup.keys.find(secret) for _ in range(20)))
    assert setup.store.reads == 1
    await setup.keys.revoke("ci")
    setup.clock.now += current_limits().keys_max_age
    assert await asyncio.gather(*(setup.keys.find(secret) for _ in range(20))) == [None] * 20
    assert setup.store.reads == 2


async def test_wrong_secrets_cannot_make_a_gateway_read_all_the_time(setup: Setup) -> None:
    key, secret = await setup.keys.create("ci", [Scope.SEARCH])
    assert await setup.keys.find(secret) == key
    began = setup.clock.now
    for _ in range(5):
        assert await asyncio.gather(*(setup.keys.find("tsk_unknown") for _ in range(20))) == [None] * 20
    assert setup.store.reads - 1 <= 1 + (setup.clock.now - began) / MIN_PAUSE_SECONDS <= 11


async def test_a_new_key_works_at_once_after_a_reading(setup: Setup) -> None:
    assert not await setup.keys.exist()
    key, secret = await setup.keys.create("ci", [Scope.SEARCH])
    assert await setup.keys.find(secret) == key


async def test_a_new_key_works_at_once_that_is_created_during_a_reading(setup: Setup) -> None:
    setup.store.is_slow = True
    reading = asyncio.create_task(setup.keys.exist())
    while not setup.store.reads:  # noqa: ASYNC110  (it is the first thing that the task does)
        await asyncio.sleep(0)
    key, secret = await setup.keys.create("ci", [Scope.SEARCH])
    finding = asyncio.create_task(setup.keys.find(secret))
    await asyncio.sleep(0)
    setup.store.let_go.set()
    assert not await reading
    assert await finding == key


async def test_while_the_store_is_down_the_last_keys_stay_valid_for_minutes(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    key, secret = await setup.keys.create("ci", [Scope.SEARCH])
    assert await setup.keys.find(secret) == key
    setup.store.is_down = True
    setup.clock.now += 2 * MAX_AGE_WITHOUT_STORE_SECONDS  # without a request, hence without a reading
    with caplog.at_level(logging.WARNING):
        assert await setup.keys.find(secret) == key
        for _ in range(3):
            setup.clock.now += MAX_AGE_WITHOUT_STORE_SECONDS / 3
            assert await setup.keys.find(secret) == key
    assert [record.getMessage() for record in caplog.records] == ["keys_not_read"]
    setup.clock.now += 1
    with pytest.raises(Unavailable) as error:
        await setup.keys.find(secret)
    assert "db.internal" not in error.value.message
    assert await setup.keys.exist()
    setup.store.is_down = False
    setup.clock.now += current_limits().keys_max_age
    assert await setup.keys.find(secret) == key


@pytest.mark.slow
async def test_a_frozen_store_delays_requests_once(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    key, secret = await setup.keys.create("ci", [Scope.SEARCH])
    assert await setup.keys.find(secret) == key
    setup.store.answers.clear()
    set_limits(monkeypatch, keys_read=0.5)
    setup.clock.now += current_limits().keys_max_age
    assert await setup.keys.find(secret) == key  # waits for half a second of real time
    setup.clock.now += 60
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await asyncio.gather(*(setup.keys.find(secret) for _ in range(50))) == [key] * 50
    assert loop.time() - began < 25  # 50 waits of half a second
    assert setup.store.reads == 2
    setup.clock.now += MAX_AGE_WITHOUT_STORE_SECONDS
    with pytest.raises(Unavailable):
        await setup.keys.find(secret)


async def test_keys_that_were_loaded_work_although_the_store_fails_before_the_first_request(setup: Setup) -> None:
    key, secret = await setup.keys.create("ci", [Scope.SEARCH])
    await setup.keys.load()
    setup.store.is_down = True
    setup.clock.now += 2 * MAX_AGE_WITHOUT_STORE_SECONDS
    assert await setup.keys.exist()
    assert await setup.keys.find(secret) == key


async def test_keys_that_were_never_read_are_unavailable(setup: Setup) -> None:
    setup.store.is_down = True
    await setup.keys.load()
    with pytest.raises(Unavailable):
        await setup.keys.exist()
    with pytest.raises(Unavailable):
        await setup.keys.find("tsk_x")
    assert await setup.keys.find("not of our form") is None
