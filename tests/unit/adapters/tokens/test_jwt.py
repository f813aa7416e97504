"""Valid tokens are accepted; invalid ones are refused with the reason and without secrets."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.fixtures.clock import Clock
from tests.fixtures.examples import choose
from tests.fixtures.limits import set_limits
from tests.servers.processes import find_free_port
from tests.servers.published_keys import PublishedKeys, SigningKey, encode_part, new_key
from toolscript.adapters.tokens.jwt import JwtVerifier, sign_local_token
from toolscript.domain.access import Principal
from toolscript.domain.errors import Invalid, Unauthorized, Unavailable

pytestmark = pytest.mark.req("D-05")

SECRET = "a-secret-of-the-tests-that-is-long-enough"
OTHER_SECRET = "another-secret-of-the-tests-that-is-long"
LOCAL_KEY = "a-local-key-of-the-tests-that-is-long-enough"
NOW = 1_800_000_000
CLAIMS: dict[str, Any] = {"tenant_id": "acme", "exp": NOW + 600}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(float(NOW))

    class ClockTime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> ClockTime:
            return cls.fromtimestamp(clock.now, tz)

    monkeypatch.setattr("jwt.api_jwt.datetime", ClockTime)
    return clock


@pytest.fixture(scope="module")
def rsa() -> SigningKey:
    return new_key("RS256", "first")


@pytest.fixture(scope="module")
def elliptic() -> SigningKey:
    return new_key("ES256", "curved")


@pytest.fixture
def keys(rsa: SigningKey, elliptic: SigningKey) -> Iterator[PublishedKeys]:
    with PublishedKeys(rsa.public_jwk(), elliptic.public_jwk()) as published:
        yield published


def verifier(secret: str | None = SECRET, jwks: str | None = None, **options: Any) -> JwtVerifier:
    return JwtVerifier(secret, jwks, **{"local_key": LOCAL_KEY, **options})


@asynccontextmanager
async def verifying(jwks: str, clock: Clock, *, secret: str | None = None, **options: Any) -> Any:
    made = JwtVerifier(secret, jwks, local_key=LOCAL_KEY, monotonic=clock, **options)
    try:
        yield made
    finally:
        await made.close()


def sign(claims: Any = None, secret: str = SECRET, algorithm: str = "HS256", **headers: Any) -> str:
    """A token with a valid signature, whatever its payload."""
    digest = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}[algorithm]
    payload = claims if isinstance(claims, bytes) else json.dumps(CLAIMS if claims is None else claims).encode()
    parts = f"{encode_part({'alg': algorithm, 'typ': 'JWT', **headers})}.{encode_part(payload)}"
    return f"{parts}.{encode_part(hmac.digest(secret.encode(), parts.encode(), digest))}"


async def refusal(verifies: JwtVerifier, token: str) -> str:
    with pytest.raises(Unauthorized) as error:
        await verifies.verify(token)
    assert error.value.details == {"field": "Authorization"}
    for secret in (SECRET, OTHER_SECRET, LOCAL_KEY):
        assert secret not in json.dumps(error.value.to_envelope())
    assert "\n" not in error.value.message
    return error.value.message


# --- tokens that are accepted ---


async def test_a_token_signed_with_the_secret_is_accepted() -> None:
    assert await verifier().verify(sign()) == Principal("acme")
    token = jwt.encode({**CLAIMS, "plan": "gold", "sub": "ada"}, SECRET, algorithm="HS256")
    assert await verifier().verify(token) == Principal("acme", "gold", "ada")


async def test_the_claims_of_tenant_and_plan_can_be_renamed() -> None:
    calls = verifier(tenant_claim="https://example.org/tenant", plan_claim="tier")
    claims = {"https://example.org/tenant": "b", "tenant_id": "a", "tier": "gold", "plan": "x", "exp": NOW + 1}
    assert await calls.verify(sign(claims)) == Principal("b", "gold")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "ES256", "ES384"])
@pytest.mark.parametrize("names_algorithm", [True, False])
async def test_a_token_signed_with_a_published_key_is_accepted(
    algorithm: str, names_algorithm: bool, rsa: SigningKey, clock: Clock
) -> None:
    key = SigningKey(rsa.private, algorithm, "k") if algorithm.startswith("RS") else new_key(algorithm, "k")
    overrides: dict[str, Any] = {} if names_algorithm else {"alg": None, "use": None}
    with PublishedKeys(key.public_jwk(**overrides)) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert await verifies.verify(key.sign(CLAIMS)) == Principal("acme")


async def test_keys_can_come_from_a_file(tmp_path: Path, rsa: SigningKey, clock: Clock) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [rsa.public_jwk()]}))
    async with verifying(str(file), clock) as verifies:
        assert await verifies.verify(rsa.sign(CLAIMS)) == Principal("acme")


async def test_a_secret_and_published_keys_work_side_by_side(
    keys: PublishedKeys, rsa: SigningKey, elliptic: SigningKey, clock: Clock
) -> None:
    async with verifying(keys.url, clock, secret=SECRET) as verifies:
        for token in (sign(), rsa.sign(CLAIMS), elliptic.sign(CLAIMS)):
            assert await verifies.verify(token) == Principal("acme")


async def test_a_token_without_a_key_id_is_tried_with_every_key_of_its_algorithm(clock: Clock) -> None:
    several = [new_key("ES256") for _ in range(3)]
    with PublishedKeys(*(k.public_jwk() for k in several)) as keys:
        async with verifying(keys.url, clock) as verifies:
            for key in several:
                assert await verifies.verify(key.sign(CLAIMS)) == Principal("acme")
            assert keys.times == 1


@pytest.mark.parametrize("audience", ["toolscript", ["other", "toolscript"]])
async def test_a_token_with_the_configured_issuer_and_audience_is_accepted(audience: Any) -> None:
    strict = verifier(issuer="https://issuer", audience="toolscript")
    claims = {**CLAIMS, "iss": "https://issuer", "aud": audience}
    assert await strict.verify(sign(claims)) == Principal("acme")


async def test_issuer_and_audience_are_ignored_unless_configured() -> None:
    for claims in ({"iss": "anybody"}, {"aud": "anybody"}, {"aud": ["a", "b"], "iss": None}):
        assert await verifier().verify(sign({**CLAIMS, **claims})) == Principal("acme")


async def test_clocks_may_differ_by_half_a_minute() -> None:
    for claims in ({"exp": NOW - 29}, {"exp": NOW - 28.5}, {"nbf": NOW + 30}, {"iat": NOW + 30}):
        assert await verifier().verify(sign({**CLAIMS, **claims})) == Principal("acme")


# --- claims ---


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": NOW - 30}, "has expired"),
        ({"exp": 0}, "has expired"),
        ({"exp": None}, "has no expiry"),
        ({"exp": str(NOW + 600)}, "exp is not a number"),
        ({"exp": 10**400}, "exp is not a number"),
        ({"nbf": -(10**400)}, "nbf is not a number"),
        ({"exp": float("nan")}, "exp is not a number"),
        ({"exp": -1e15}, "has expired"),
        ({"nbf": NOW + 31}, "not valid yet: nbf"),
        ({"nbf": "soon"}, "nbf is not a number"),
        ({"iat": NOW + 31}, "iat is in the future"),
        ({"iat": {}}, "iat is not a number"),
        ({"tenant_id": None}, r"names no tenant \(claim tenant_id\)"),
        ({"tenant_id": ""}, "tenant .* is not "),
        ({"tenant_id": "x" * 257}, "tenant .* is not "),
        ({"tenant_id": "a\nb"}, "tenant .* is not "),
        ({"tenant_id": "\ud800"}, "tenant .* is not "),
        ({"tenant_id": 7}, "tenant .* is not "),
        ({"tenant_id": ["acme"]}, "tenant .* is not "),
        ({"tenant_id": {"id": "acme"}}, "tenant .* is not "),
        ({"plan": 7}, "plan .* is not a string"),
        ({"plan": ""}, "plan .* is not a string"),
    ],
)
async def test_a_token_with_invalid_claims_is_refused_with_the_reason(claims: dict[str, Any], why: str) -> None:
    with pytest.raises(Unauthorized, match=why):
        await verifier().verify(sign({**CLAIMS, **claims}))


@pytest.mark.parametrize("missing", ["tenant_id", "exp"])
async def test_a_token_without_a_required_claim_is_refused(missing: str) -> None:
    claims = {name: value for name, value in CLAIMS.items() if name != missing}
    assert "the token" in await refusal(verifier(), sign(claims))


@pytest.mark.parametrize(
    "issuer", [None, "", "https://issuer/", "HTTPS://ISSUER", "https://other", ["https://issuer"], 7]
)
async def test_a_token_of_another_issuer_is_refused(issuer: Any) -> None:
    strict = verifier(issuer="https://issuer")
    assert "(iss)" in await refusal(strict, sign({**CLAIMS, "iss": issuer}))
    assert "(iss)" in await refusal(strict, sign())


@pytest.mark.parametrize("audience", [None, "", "tool", "toolscript2", [], ["other"], ["tool", "script"], 7, {}])
async def test_a_token_for_another_audience_is_refused(audience: Any) -> None:
    strict = verifier(audience="toolscript")
    assert "(aud)" in await refusal(strict, sign({**CLAIMS, "aud": audience}))
    assert "(aud)" in await refusal(strict, sign())


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"no json",
        b"[]",
        b'"acme"',
        b"null",
        b"[" * 3000,
        b"\xff\xfe",
        b'{"tenant_id": "a", "tenant_id": "b", "exp": 9999999999}',
        b'{"exp": ' + b"9" * 5000 + b"}",
    ],
)
async def test_a_signed_token_with_an_unreadable_payload_is_refused(payload: bytes) -> None:
    assert "the token's payload is not" in await refusal(verifier(), sign(payload))


# --- signatures ---


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE"])
async def test_a_token_that_is_not_signed_is_refused(algorithm: str) -> None:
    parts = f"{encode_part({'alg': algorithm, 'typ': 'JWT'})}.{encode_part(CLAIMS)}"
    for signature in ("", encode_part(hmac.digest(SECRET.encode(), parts.encode(), "sha256"))):
        assert "not signed" in await refusal(verifier(), f"{parts}.{signature}")


@pytest.mark.parametrize("algorithm", [None, "", 5, ["HS256"], {"alg": "HS256"}, True])
async def test_a_token_without_an_algorithm_is_refused(algorithm: Any) -> None:
    parts = f"{encode_part({'alg': algorithm})}.{encode_part(CLAIMS)}"
    signature = encode_part(hmac.digest(SECRET.encode(), parts.encode(), "sha256"))
    assert "does not name its algorithm" in await refusal(verifier(), f"{parts}.{signature}")


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
async def test_another_algorithm_with_the_same_secret_is_refused(algorithm: str) -> None:
    assert "sign it with HS256" in await refusal(verifier(), sign(algorithm=algorithm))


async def test_another_secret_or_a_changed_token_is_refused() -> None:
    assert "signature is wrong" in await refusal(verifier(), sign(secret=OTHER_SECRET))
    header, payload, signature = sign().split(".")
    other = encode_part({**CLAIMS, "tenant_id": "other"})
    for changed in (
        f"{header}.{other}.{signature}",
        f"{header}.{payload}.",
        f"{header}.{payload}.{encode_part(b'x' * 32)}",
    ):
        assert "signature is wrong" in await refusal(verifier(), changed)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "PS256", "EdDSA", "HS257", "RSA", "hs256"])
async def test_with_only_a_secret_every_algorithm_but_hs256_is_refused(algorithm: str) -> None:
    assert "sign it with HS256" in await refusal(verifier(), sign(alg=algorithm))


async def test_with_only_a_secret_a_valid_rs_token_is_refused(rsa: SigningKey) -> None:
    assert "sign it with HS256" in await refusal(verifier(), rsa.sign(CLAIMS))


async def test_a_public_key_is_never_used_as_a_secret(keys: PublishedKeys, rsa: SigningKey, clock: Clock) -> None:
    published = json.dumps(rsa.public_jwk()).encode()
    for key in (rsa.pem(), rsa.pem().strip(), published, rsa.public_jwk()["n"].encode()):
        parts = f"{encode_part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'first'})}.{encode_part(CLAIMS)}"
        token = f"{parts}.{encode_part(hmac.digest(key, parts.encode(), 'sha256'))}"
        async with verifying(keys.url, clock) as verifies:
            assert "sign it with RS256" in await refusal(verifies, token)
        async with verifying(keys.url, clock, secret=SECRET) as verifies:
            assert "signature is wrong" in await refusal(verifies, token)


async def test_a_published_symmetric_key_is_not_used(clock: Clock) -> None:
    published = {"kty": "oct", "k": encode_part(SECRET.encode()), "alg": "HS256", "kid": "oct", "use": "sig"}
    with PublishedKeys(published) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert "sign it with RS256" in await refusal(verifies, sign(kid="oct"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        {"use": "enc"},
        {"alg": "RS512"},
        {"alg": "PS256"},
        {"alg": "RSA-OAEP"},
        {"kty": "EC"},
        {"kty": "oct"},
        {"kty": None},
        {"key_ops": ["encrypt"]},
        {"key_ops": "verify"},
        {"n": "AQAB"},
        {"n": "?"},
        {"n": 7},
        {"e": None},
        {"kid": "second"},
        {"kid": 7},
    ],
)
async def test_a_key_that_is_published_for_something_else_is_not_used(
    rsa: SigningKey, overrides: dict[str, Any], clock: Clock
) -> None:
    with PublishedKeys(rsa.public_jwk(**overrides)) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert "(kid)" in await refusal(verifies, rsa.sign(CLAIMS))


async def test_a_key_that_is_too_short_is_not_used(clock: Clock) -> None:
    short = new_key("RS256", "short", bits=1024)
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        token = short.sign(CLAIMS)
    with PublishedKeys(short.public_jwk()) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert "(kid)" in await refusal(verifies, token)


async def test_a_key_is_used_only_with_its_own_type_and_curve(
    keys: PublishedKeys, rsa: SigningKey, elliptic: SigningKey, clock: Clock
) -> None:
    wide = new_key("ES384", "wide")
    keys.keys.append(wide.public_jwk(alg="ES256"))
    async with verifying(keys.url, clock) as verifies:
        assert "(kid)" in await refusal(verifies, wide.sign(CLAIMS))
        assert "(kid)" in await refusal(verifies, rsa.sign(CLAIMS, kid="curved"))
        assert "(kid)" in await refusal(verifies, elliptic.sign(CLAIMS, kid="first"))


async def test_a_token_that_names_one_key_and_is_signed_with_another_is_refused(
    keys: PublishedKeys, elliptic: SigningKey, clock: Clock
) -> None:
    stranger = SigningKey(new_key("ES256").private, "ES256", "curved")
    keys.keys.append(new_key("ES256", "another").public_jwk())
    async with verifying(keys.url, clock) as verifies:
        assert await verifies.verify(elliptic.sign(CLAIMS)) == Principal("acme")
        assert "signature is wrong" in await refusal(verifies, stranger.sign(CLAIMS))
        assert keys.times == 1


async def test_keys_inside_a_token_are_ignored(keys: PublishedKeys, rsa: SigningKey, clock: Clock) -> None:
    stranger = new_key("RS256", "stranger")
    with PublishedKeys(stranger.public_jwk()) as theirs:
        async with verifying(keys.url, clock) as verifies:
            for brought in ({"jwk": stranger.public_jwk()}, {"jku": theirs.url}, {"x5u": theirs.url}):
                assert "(kid)" in await refusal(verifies, stranger.sign(CLAIMS, **brought))
                as_first = stranger.sign(CLAIMS, kid="first", **brought)
                assert "signature is wrong" in await refusal(verifies, as_first)
        assert theirs.times == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "kid", ["../../etc/passwd", "first' OR '1'='1", "/dev/null", "", "x" * 4000, "first\x00", "FIRST"]
)
async def test_a_key_id_is_compared_and_never_interpreted(
    keys: PublishedKeys, rsa: SigningKey, kid: str, clock: Clock
) -> None:
    async with verifying(keys.url, clock) as verifies:
        assert "(kid)" in await refusal(verifies, rsa.sign(CLAIMS, kid=kid))


# --- strings that are not tokens ---


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "a.b.c.d.e",
        "token",
        sign().replace(".", " "),
        sign() + ".x",
        sign() + "\n",
        "é" + sign(),
        "\ud800",
        f"{encode_part(b'[]')}.{encode_part(CLAIMS)}.x",
        f"{encode_part(b'{')}.{encode_part(CLAIMS)}.x",
        f"{encode_part(b'[' * 3000)}.{encode_part(CLAIMS)}.x",
        sign(kid=7),
        sign(kid=["first"]),
        sign(crit=["exp"], exp=1),
        sign(crit=[]),
    ],
)
async def test_a_string_that_is_not_a_jwt_is_refused(token: str) -> None:
    assert "is not a JWT" in await refusal(verifier(), token)


async def test_a_token_of_an_unencoded_payload_is_refused() -> None:
    await refusal(verifier(), sign(b64=False, crit=["b64"]))
    header = encode_part({"alg": "HS256", "b64": False, "crit": ["b64"]})
    await refusal(verifier(), f"{header}..{encode_part(hmac.digest(SECRET.encode(), f'{header}.'.encode(), 'sha256'))}")


async def test_a_token_may_not_be_longer_than_eight_kilobytes() -> None:
    padding = {**CLAIMS, "padding": "x" * 8192}
    assert "longer than 8192" in await refusal(verifier(), sign(padding))
    assert await verifier().verify(sign({**CLAIMS, "padding": "x" * 5000})) == Principal("acme")


# --- local tokens ---


async def test_a_local_token_is_valid_for_any_tenant(keys: PublishedKeys, clock: Clock) -> None:
    token = sign_local_token(LOCAL_KEY, "acme", clock=clock)
    for verifies in (
        verifier(),
        verifier(None),
        verifier(issuer="https://issuer", audience="x", tenant_claim="t", plan_claim="tenant_id"),
    ):
        assert await verifies.verify(token) == Principal("acme")
    async with verifying(keys.url, clock) as verifies:
        assert await verifies.verify(token) == Principal("acme")
    assert keys.times == 0


async def test_a_local_token_lasts_a_minute(clock: Clock) -> None:
    token = sign_local_token(LOCAL_KEY, "acme", clock=clock)
    verifies = verifier(None)
    clock.now += 89
    assert await verifies.verify(token) == Principal("acme")
    clock.now += 1
    assert "has expired" in await refusal(verifies, token)


async def test_a_local_token_is_checked_like_any_other(clock: Clock) -> None:
    assert "tenant" in await refusal(verifier(None), sign_local_token(LOCAL_KEY, "", clock=clock))
    assert "tenant" in await refusal(verifier(None), sign_local_token(LOCAL_KEY, "a\nb", clock=clock))
    issued_by_another = sign({**CLAIMS, "iss": "https://issuer"}, LOCAL_KEY)
    assert "toolscript-local" in await refusal(verifier(issuer="https://issuer"), issued_by_another)
    assert "toolscript-local" in await refusal(verifier(None), sign(secret=LOCAL_KEY))
    assert "signature is wrong" in await refusal(verifier(), sign_local_token(OTHER_SECRET, "acme", clock=clock))


async def test_the_local_issuer_without_the_local_key_is_refused() -> None:
    claims = {**CLAIMS, "iss": "toolscript-local"}
    assert "(iss)" in await refusal(verifier(issuer="https://issuer"), sign(claims))
    assert "no key to verify" in await refusal(verifier(None), sign(claims))


async def test_without_configured_keys_every_other_token_is_refused_with_the_setting_to_use(rsa: SigningKey) -> None:
    for token in (sign(), rsa.sign(CLAIMS)):
        message = await refusal(verifier(None), token)
        assert "set TOOLSCRIPT_JWT_SECRET or TOOLSCRIPT_JWT_JWKS" in message


# --- settings ---


@pytest.mark.parametrize("secret", ["", "tiny", "x" * 31, "é" * 15])
def test_a_secret_that_is_too_short_is_refused_at_once(secret: str) -> None:
    with pytest.raises(Invalid, match="at least 32 bytes") as error:
        verifier(secret)
    assert error.value.details["field"] == "TOOLSCRIPT_JWT_SECRET"
    assert not secret or secret not in error.value.message
    with pytest.raises(Invalid, match="the local key"):
        verifier(local_key=secret)


def test_a_public_key_as_secret_is_refused_at_once(rsa: SigningKey) -> None:
    for secret in (rsa.pem().decode(), "x" * 40 + "\udc80"):
        with pytest.raises(Invalid, match="not a secret") as error:
            verifier(secret)
        assert secret not in error.value.message


@pytest.mark.parametrize(
    "place", ["ftp://127.0.0.1/keys", "file:///keys.json", "http://", "https:///x", "nowhere.json"]
)
def test_an_address_that_is_neither_url_nor_file_is_refused_at_once(place: str) -> None:
    with pytest.raises(Invalid) as error:
        verifier(None, place)
    assert error.value.details["field"] == "TOOLSCRIPT_JWT_JWKS"


@pytest.mark.parametrize("place", ["http://[", "~nobody-of-that-name/keys.json", "\x00"])
def test_an_address_that_cannot_be_parsed_is_refused_at_once(place: str) -> None:
    with pytest.raises(Invalid):
        verifier(None, place)


def test_the_local_issuer_cannot_be_configured() -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_JWT_ISSUER"):
        verifier(issuer="toolscript-local")


# --- published keys: caching, rotation, failures ---


async def test_keys_are_read_once_in_ten_minutes(keys: PublishedKeys, rsa: SigningKey, clock: Clock) -> None:
    async with verifying(keys.url, clock) as verifies:
        long_lasting = rsa.sign({**CLAIMS, "exp": NOW + 10_000})
        for seconds, times in ((0, 1), (1, 1), (598, 1), (1, 2), (599, 2), (1, 3)):
            clock.now += seconds
            await verifies.verify(long_lasting)
            assert keys.times == times


async def test_concurrent_requests_share_one_read_of_the_keys(
    keys: PublishedKeys, rsa: SigningKey, clock: Clock
) -> None:
    keys.hold = True
    async with verifying(keys.url, clock) as verifies:
        asking = [asyncio.create_task(verifies.verify(rsa.sign(CLAIMS))) for _ in range(20)]
        assert await asyncio.to_thread(keys.arrived.acquire, timeout=60)
        keys.let_go.set()
        assert await asyncio.gather(*asking) == [Principal("acme")] * 20
        assert keys.times == 1


async def test_a_new_key_is_found_at_once_with_one_read_for_concurrent_requests(
    keys: PublishedKeys, rsa: SigningKey, clock: Clock
) -> None:
    async with verifying(keys.url, clock) as verifies:
        await verifies.verify(rsa.sign(CLAIMS))
        second = new_key("ES256", "second")
        keys.keys = [second.public_jwk()]
        keys.hold = True
        keys.arrived = type(keys.arrived)(0)
        asking = [asyncio.create_task(verifies.verify(second.sign(CLAIMS))) for _ in range(20)]
        assert await asyncio.to_thread(keys.arrived.acquire, timeout=60)
        keys.let_go.set()
        assert await asyncio.gather(*asking) == [Principal("acme")] * 20
        assert keys.times == 2
        assert "(kid)" in await refusal(verifies, rsa.sign(CLAIMS))


async def test_unknown_key_ids_cause_a_read_every_thirty_seconds_at_the_earliest(
    keys: PublishedKeys, rsa: SigningKey, clock: Clock
) -> None:
    stranger, late = new_key("ES256", "stranger"), new_key("ES256", "late")
    async with verifying(keys.url, clock) as verifies:
        for _ in range(10):
            assert "(kid)" in await refusal(verifies, stranger.sign(CLAIMS))
        assert keys.times == 2
        keys.keys.append(late.public_jwk())
        clock.now += 29
        assert "(kid)" in await refusal(verifies, late.sign(CLAIMS))
        assert keys.times == 2
        clock.now += 1
        assert await verifies.verify(late.sign(CLAIMS)) == Principal("acme")
        assert await verifies.verify(rsa.sign(CLAIMS)) == Principal("acme")
        assert keys.times == 3


async def test_keys_without_ids_can_rotate(clock: Clock) -> None:
    old, new = new_key("ES256"), new_key("ES256")
    with PublishedKeys(old.public_jwk()) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert await verifies.verify(old.sign(CLAIMS)) == Principal("acme")
            keys.keys = [new.public_jwk()]
            assert await verifies.verify(new.sign(CLAIMS)) == Principal("acme")
            assert "signature is wrong" in await refusal(verifies, old.sign(CLAIMS))
            assert keys.times == 2


async def test_keys_in_a_file_can_rotate(tmp_path: Path, rsa: SigningKey, elliptic: SigningKey, clock: Clock) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [rsa.public_jwk()]}))
    async with verifying(str(file), clock) as verifies:
        assert await verifies.verify(rsa.sign(CLAIMS)) == Principal("acme")
        file.write_text(json.dumps({"keys": [elliptic.public_jwk()]}))
        assert await verifies.verify(elliptic.sign(CLAIMS)) == Principal("acme")
        assert "(kid)" in await refusal(verifies, rsa.sign(CLAIMS))


async def test_a_withdrawn_key_is_accepted_for_no_longer_than_ten_minutes(
    keys: PublishedKeys, rsa: SigningKey, clock: Clock
) -> None:
    token = rsa.sign({**CLAIMS, "exp": NOW + 10_000})
    async with verifying(keys.url, clock) as verifies:
        await verifies.verify(token)
        keys.keys = []
        clock.now += 600
        assert "(kid)" in await refusal(verifies, token)


TOO_LARGE = json.dumps({"keys": [], "padding": "x" * 10**6}).encode()
BROKEN: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "an error": (500, b"{}", {}),
    "no such page": (404, b"{}", {}),
    "empty": (200, b"", {}),
    "a page": (200, b"<html>", {"Content-Type": "text/html"}),
    "a list": (200, b"[]", {}),
    "no keys": (200, b"{}", {}),
    "keys of another kind": (200, b'{"keys": {}}', {}),
    "too many": (200, json.dumps({"keys": [{}] * 101}).encode(), {}),
    "too large": (200, TOO_LARGE, {}),
    "too deep": (200, b"[" * 100_000, {}),
    "packed": (200, b"\x1f\x8b\x08\x00", {"Content-Encoding": "gzip"}),
    "cut off": (200, b'{"keys"', {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", BROKEN)
async def test_a_failed_read_leaves_the_known_keys(
    keys: PublishedKeys, rsa: SigningKey, fault: str, clock: Clock
) -> None:
    token = rsa.sign({**CLAIMS, "exp": NOW + 10_000})
    async with verifying(keys.url, clock) as verifies:
        await verifies.verify(token)
        keys.instead = BROKEN[fault]
        for seconds, times in ((600, 2), (29, 2), (1, 3)):
            clock.now += seconds
            assert await verifies.verify(token) == Principal("acme")
            assert keys.times == times
        assert "(kid)" in await refusal(verifies, new_key("ES256", "new").sign({**CLAIMS, "exp": NOW + 10_000}))


@pytest.mark.slow
@pytest.mark.parametrize("fault", choose(BROKEN, "an error", "too large", "cut off"))
async def test_when_no_read_has_succeeded_yet_the_error_is_unavailable(
    keys: PublishedKeys, rsa: SigningKey, fault: str, clock: Clock
) -> None:
    keys.instead = BROKEN[fault]
    async with verifying(keys.url, clock, secret=SECRET) as verifies:
        for _ in range(5):
            with pytest.raises(Unavailable) as error:
                await verifies.verify(rsa.sign(CLAIMS))
        assert error.value.details == {"field": "TOOLSCRIPT_JWT_JWKS"}
        assert keys.url in error.value.message
        assert keys.times == 1
        assert await verifies.verify(sign()) == Principal("acme")
        keys.instead = None
        clock.now += 2
        assert await verifies.verify(rsa.sign(CLAIMS)) == Principal("acme")


async def test_redirects_are_not_followed(keys: PublishedKeys, rsa: SigningKey, clock: Clock) -> None:
    with PublishedKeys() as elsewhere:
        elsewhere.instead = (302, b"", {"Location": keys.url})
        async with verifying(elsewhere.url, clock) as verifies:
            with pytest.raises(Unavailable, match="302"):
                await verifies.verify(rsa.sign(CLAIMS))
        assert keys.times == 0


async def test_a_read_that_takes_too_long_is_aborted(
    keys: PublishedKeys, rsa: SigningKey, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, key_set=0.05)
    keys.hold = True
    async with verifying(keys.url, clock) as verifies:
        with pytest.raises(Unavailable, match=r"within 0\.05 seconds"):
            await verifies.verify(rsa.sign(CLAIMS))


async def test_an_address_without_a_server_is_named_without_its_credentials(rsa: SigningKey, clock: Clock) -> None:
    port = find_free_port()
    async with verifying(f"http://user:word@127.0.0.1:{port}/keys?key=hidden", clock) as verifies:
        with pytest.raises(Unavailable, match=f"http://127.0.0.1:{port}/keys:") as error:
            await verifies.verify(rsa.sign(CLAIMS))
        assert "word" not in error.value.message
        assert "hidden" not in error.value.message


async def test_a_cancelled_request_does_not_stop_others_that_wait_for_the_keys(
    keys: PublishedKeys, rsa: SigningKey, clock: Clock
) -> None:
    keys.hold = True
    async with verifying(keys.url, clock) as verifies:
        first, second = (asyncio.create_task(verifies.verify(rsa.sign(CLAIMS))) for _ in range(2))
        assert await asyncio.to_thread(keys.arrived.acquire, timeout=60)
        first.cancel()
        assert await asyncio.to_thread(keys.arrived.acquire, timeout=60)
        keys.let_go.set()
        assert await second == Principal("acme")
        assert first.cancelled()


async def test_malformed_keys_are_skipped(rsa: SigningKey, clock: Clock) -> None:
    nonsense: list[Any] = [None, 7, "key", [], {}, {"kty": "RSA"}, {"kty": ["RSA"]}, {"kty": "EC", "crv": "P-256"}]
    with PublishedKeys(*nonsense, rsa.public_jwk()) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert await verifies.verify(rsa.sign(CLAIMS)) == Principal("acme")


def test_the_tests_sign_as_hs256_does() -> None:
    token = jwt.encode({"a": 1}, SECRET, algorithm="HS256")
    parts, _, signature = token.rpartition(".")
    assert signature == encode_part(hmac.new(SECRET.encode(), parts.encode(), hashlib.sha256).digest())
