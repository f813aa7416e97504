"""What every store of logins promises: tokens are encrypted for their server, and renewed by one gateway at a time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.logins import SqlLogins
from toolscript.adapters.storage.sealing import InstallationKey
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.logins import Login, LoginName
from toolscript.ports.logins import LoginStore

pytestmark = pytest.mark.req("G-11", "X-02", "X-04")

KEY = InstallationKey("a key of at least thirty-two characters")
GITHUB = LoginName("github", "a1")
LOGIN = Login(
    "1",
    "https://login.example",
    "https://mcp.example/mcp",
    "me",
    "https://login.example/token",
    "the-access-token",
    "the-refresh-token",
    expires_at=1_800_000_000.5,
    scope="read write",
    client_secret="the-client-secret",
)


@pytest.fixture
def store(database: Database) -> LoginStore:
    return SqlLogins(database, KEY)


async def test_a_login_comes_back_as_it_was_saved(store: LoginStore) -> None:
    assert await store.read(GITHUB) is None
    await store.save(GITHUB, LOGIN)
    stored = await store.read(GITHUB)
    assert stored is not None
    assert stored.login == LOGIN
    assert await store.list_ids() == {GITHUB: "1"}


async def test_every_server_address_and_user_has_its_own(store: LoginStore) -> None:
    names = [GITHUB, replace(GITHUB, server="gitlab"), replace(GITHUB, address="b2"), replace(GITHUB, user="ann")]
    for number, name in enumerate(names):
        await store.save(name, replace(LOGIN, id=str(number)))
    assert await store.list_ids() == {name: str(number) for number, name in enumerate(names)}
    assert await store.forget(names[1])
    assert await store.read(names[1]) is None
    assert [bool(await store.read(name)) for name in names] == [True, False, True, True]


async def test_no_secret_is_readable_in_the_database(store: LoginStore, database: Database) -> None:
    await store.save(GITHUB, LOGIN)
    rows = await database.read(lambda session: session.rows("SELECT * FROM logins"))
    assert b"the-" not in bytes(rows[0]["sealed"])
    assert "the-" not in str([value for name, value in rows[0].items() if name != "sealed"])
    assert "the-" not in repr(await store.read(GITHUB))


async def test_a_row_that_is_copied_to_another_server_cannot_be_decrypted(
    store: LoginStore, database: Database
) -> None:
    await store.save(GITHUB, LOGIN)
    await database.write(lambda session: session.run("UPDATE logins SET server = 'evil'"))
    with pytest.raises(Unavailable, match="another key"):
        await store.read(replace(GITHUB, server="evil"))


async def test_another_key_cannot_decrypt_and_may_replace(store: LoginStore, database: Database) -> None:
    await store.save(GITHUB, LOGIN)
    other = SqlLogins(database, InstallationKey("another key of thirty-two characters"))
    with pytest.raises(Unavailable, match="TOOLSCRIPT_LOGIN_KEY"):
        await other.read(GITHUB)
    await other.save(GITHUB, LOGIN)
    assert (await other.read(GITHUB)) is not None


async def test_one_of_many_claims_a_login_until_it_is_saved_released_or_late(store: LoginStore) -> None:
    await store.save(GITHUB, LOGIN)
    stored = await store.read(GITHUB)
    assert stored is not None
    version = stored.version
    claims = await asyncio.gather(*(store.claim(GITHUB, version, now=10.0, until=70.0) for _ in range(8)))
    assert sorted(claims) == [False] * 7 + [True]
    await store.release(GITHUB, version)
    assert await store.claim(GITHUB, version, now=10.0, until=70.0)
    assert await store.claim(GITHUB, version, now=70.0, until=130.0)
    assert await store.save(GITHUB, replace(LOGIN, access_token="new"), replacing=version)
    assert not await store.claim(GITHUB, version, now=200.0, until=260.0)
    assert not await store.save(GITHUB, replace(LOGIN, access_token="older"), replacing=version)
    assert not await store.forget(GITHUB, version=version)
    renewed = await store.read(GITHUB)
    assert renewed is not None
    assert renewed.login.access_token == "new"
    assert await store.claim(GITHUB, renewed.version, now=20.0, until=80.0)


async def test_a_login_after_a_logout_has_another_version(store: LoginStore) -> None:
    versions = set()
    for _ in range(3):
        await store.save(GITHUB, LOGIN)
        stored = await store.read(GITHUB)
        assert stored is not None
        versions.add(stored.version)
        await store.forget(GITHUB)
    assert len(versions) == 3


async def test_a_wanted_scope_is_kept_until_the_next_login(store: LoginStore) -> None:
    await store.want_scope(GITHUB, "admin")  # nobody has logged in
    assert await store.read(GITHUB) is None
    await store.save(GITHUB, LOGIN)
    await store.want_scope(GITHUB, "admin")
    stored = await store.read(GITHUB)
    assert stored is not None
    assert stored.wanted_scope == "admin"
    await store.save(GITHUB, LOGIN, replacing=stored.version)
    renewed = await store.read(GITHUB)
    assert renewed is not None
    assert renewed.wanted_scope == "admin"
    await store.save(GITHUB, LOGIN)
    again = await store.read(GITHUB)
    assert again is not None
    assert again.wanted_scope == ""


def test_the_first_encryption_creates_a_private_key(tmp_path: Path) -> None:
    file = tmp_path / "data" / "login.key"
    with pytest.raises(Unavailable):
        InstallationKey(file=file).open(b"anything of some length", b"")
    assert not file.exists()
    sealed = InstallationKey(file=file).seal(b"secret", b"about")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [*file.parent.iterdir()] == [file]
    assert InstallationKey(file=file).open(sealed, b"about") == b"secret"
    assert InstallationKey(file.read_text()).open(sealed, b"about") == b"secret"
    with pytest.raises(Unavailable):
        InstallationKey(file=file).open(sealed, b"another")


def test_a_short_key_is_refused() -> None:
    with pytest.raises(Invalid, match="at least 32"):
        InstallationKey("short")
