"""Which tokens are believed: every kind of bad one is refused with a sentence that says why, and nothing secret."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import socket
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.servers.published_keys import PublishedKeys, SigningKey, new_key, unpadded
from toolscript.adapters.tokens import jwks as key_set
from toolscript.adapters.tokens.jwt import JwtVerifier, local_token
from toolscript.domain.access import Principal
from toolscript.domain.errors import Invalid, Unauthorized, Unavailable

pytestmark = pytest.mark.req("D-05")

SECRET = "a-secret-of-the-tests-that-is-long-enough"
OTHER_SECRET = "another-secret-of-the-tests-that-is-long"
LOCAL_KEY = "a-local-key-of-the-tests-that-is-long-enough"
NOW = 1_800_000_000
CLAIMS: dict[str, Any] = {"tenant_id": "acme", "exp": NOW + 600}


class Clock:
    """Says what it is told, for tokens and for what is kept."""

    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def rsa() -> SigningKey:
    return new_key("RS256", "first")


@pytest.fixture(scope="module")
def elliptic() -> SigningKey:
    return new_key("ES256", "curved")


@pytest.fixture
def keys(rsa: SigningKey, elliptic: SigningKey) -> Iterator[PublishedKeys]:
    with PublishedKeys(rsa.published(), elliptic.published()) as published:
        yield published


def verifier(secret: str | None = SECRET, jwks: str | None = None, **options: Any) -> JwtVerifier:
    given = {"local_key": LOCAL_KEY, "clock": lambda: float(NOW), **options}
    return JwtVerifier(secret, jwks, **given)


@asynccontextmanager
async def verifying(jwks: str, clock: Clock, *, secret: str | None = None, **options: Any) -> Any:
    made = JwtVerifier(secret, jwks, local_key=LOCAL_KEY, clock=clock, monotonic=clock, **options)
    try:
        yield made
    finally:
        await made.close()


def signed(claims: Any = None, secret: str = SECRET, algorithm: str = "HS256", **headers: Any) -> str:
    """A token with a true signature, whatever it says."""
    digest = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}[algorithm]
    said = claims if isinstance(claims, bytes) else json.dumps(CLAIMS if claims is None else claims).encode()
    parts = f"{unpadded({'alg': algorithm, 'typ': 'JWT', **headers})}.{unpadded(said)}"
    return f"{parts}.{unpadded(hmac.digest(secret.encode(), parts.encode(), digest))}"


async def refusal(verifies: JwtVerifier, token: str) -> str:
    with pytest.raises(Unauthorized) as error:
        await verifies.verify(token)
    assert error.value.details == {"field": "Authorization"}
    for secret in (SECRET, OTHER_SECRET, LOCAL_KEY):
        assert secret not in json.dumps(error.value.to_envelope())
    assert "\n" not in error.value.message
    return error.value.message


# --- tokens that are believed ---


async def test_a_token_of_the_secret_is_believed() -> None:
    assert await verifier().verify(signed()) == Principal("acme")
    token = jwt.encode({**CLAIMS, "plan": "gold", "sub": "ada"}, SECRET, algorithm="HS256")
    assert await verifier().verify(token) == Principal("acme", "gold", "ada")


async def test_the_claims_of_tenant_and_plan_can_be_called_otherwise() -> None:
    calls = verifier(tenant_claim="https://example.org/tenant", plan_claim="tier")
    claims = {"https://example.org/tenant": "b", "tenant_id": "a", "tier": "gold", "plan": "x", "exp": NOW + 1}
    assert await calls.verify(signed(claims)) == Principal("b", "gold")


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "ES256", "ES384"])
@pytest.mark.parametrize("says_algorithm", [True, False])
async def test_a_token_of_a_published_key_is_believed(
    algorithm: str, says_algorithm: bool, rsa: SigningKey, clock: Clock
) -> None:
    key = SigningKey(rsa.private, algorithm, "k") if algorithm.startswith("RS") else new_key(algorithm, "k")
    said = {} if says_algorithm else {"alg": None, "use": None}
    with PublishedKeys(key.published(**said)) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert await verifies.verify(key.sign(CLAIMS)) == Principal("acme")


async def test_keys_may_lie_in_a_file(tmp_path: Path, rsa: SigningKey, clock: Clock) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [rsa.published()]}))
    async with verifying(str(file), clock) as verifies:
        assert await verifies.verify(rsa.sign(CLAIMS)) == Principal("acme")


async def test_a_secret_and_published_keys_go_together(
    keys: PublishedKeys, rsa: SigningKey, elliptic: SigningKey, clock: Clock
) -> None:
    async with verifying(keys.url, clock, secret=SECRET) as verifies:
        for token in (signed(), rsa.sign(CLAIMS), elliptic.sign(CLAIMS)):
            assert await verifies.verify(token) == Principal("acme")


async def test_a_token_without_the_id_of_a_key_is_tried_with_all_that_fit(clock: Clock) -> None:
    several = [new_key("ES256") for _ in range(3)]
    with PublishedKeys(*(k.published() for k in several)) as keys:
        async with verifying(keys.url, clock) as verifies:
            for key in several:
                assert await verifies.verify(key.sign(CLAIMS)) == Principal("acme")
            assert keys.times == 1


@pytest.mark.parametrize("audience", ["toolscript", ["other", "toolscript"]])
async def test_issuer_and_audience_are_believed_where_they_are_right(audience: Any) -> None:
    strict = verifier(issuer="https://issuer", audience="toolscript")
    claims = {**CLAIMS, "iss": "https://issuer", "aud": audience}
    assert await strict.verify(signed(claims)) == Principal("acme")


async def test_issuer_and_audience_are_nobodys_business_where_they_are_not_asked_for() -> None:
    for claims in ({"iss": "anybody"}, {"aud": "anybody"}, {"aud": ["a", "b"], "iss": None}):
        assert await verifier().verify(signed({**CLAIMS, **claims})) == Principal("acme")


async def test_clocks_may_differ_by_half_a_minute() -> None:
    for claims in ({"exp": NOW - 29}, {"exp": NOW - 29.5}, {"nbf": NOW + 30}, {"iat": NOW + 30}):
        assert await verifier().verify(signed({**CLAIMS, **claims})) == Principal("acme")


# --- what a token says ---


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": NOW - 30}, "has expired"),
        ({"exp": 0}, "has expired"),
        ({"exp": None}, "has no expiry"),
        ({"exp": str(NOW + 600)}, "exp is not a number"),
        ({"exp": True}, "exp is not a number"),
        ({"exp": [NOW]}, "exp is not a number"),
        ({"exp": float("inf")}, "exp is not a number"),
        ({"exp": float("nan")}, "exp is not a number"),
        ({"exp": -(10**400)}, "has expired"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"nbf": "soon"}, "nbf is not a number"),
        ({"iat": NOW + 31}, "issued in the future"),
        ({"iat": {}}, "iat is not a number"),
        ({"tenant_id": None}, r"names no tenant \(claim tenant_id\)"),
        ({"tenant_id": ""}, "tenant .* is not a text of 1 to 256"),
        ({"tenant_id": "   "}, "tenant .* is not a text"),
        ({"tenant_id": "x" * 257}, "tenant .* is not a text"),
        ({"tenant_id": "a\nb"}, "tenant .* is not a text"),
        ({"tenant_id": "a\x00"}, "tenant .* is not a text"),
        ({"tenant_id": "\ud800"}, "tenant .* is not a text"),
        ({"tenant_id": 7}, "tenant .* is not a text"),
        ({"tenant_id": True}, "tenant .* is not a text"),
        ({"tenant_id": ["acme"]}, "tenant .* is not a text"),
        ({"tenant_id": {"id": "acme"}}, "tenant .* is not a text"),
        ({"plan": 7}, "plan .* is not a text"),
        ({"plan": ""}, "plan .* is not a text"),
        ({"plan": "x" * 257}, "plan .* is not a text"),
        ({"plan": ["gold"]}, "plan .* is not a text"),
    ],
)
async def test_a_token_that_says_what_it_may_not_is_refused_with_the_reason(claims: dict[str, Any], why: str) -> None:
    with pytest.raises(Unauthorized, match=why):
        await verifier().verify(signed({**CLAIMS, **claims}))


@pytest.mark.parametrize("missing", ["tenant_id", "exp"])
async def test_a_token_that_leaves_out_what_it_must_say_is_refused(missing: str) -> None:
    claims = {name: value for name, value in CLAIMS.items() if name != missing}
    assert "the token" in await refusal(verifier(), signed(claims))


@pytest.mark.parametrize(
    "issuer", [None, "", "https://issuer/", "HTTPS://ISSUER", "https://other", ["https://issuer"], 7]
)
async def test_another_issuer_is_not_believed(issuer: Any) -> None:
    strict = verifier(issuer="https://issuer")
    assert "(iss)" in await refusal(strict, signed({**CLAIMS, "iss": issuer}))
    assert "(iss)" in await refusal(strict, signed())


@pytest.mark.parametrize("audience", [None, "", "tool", "toolscript2", [], ["other"], ["tool", "script"], 7, {}])
async def test_a_token_for_somebody_else_is_not_believed(audience: Any) -> None:
    strict = verifier(audience="toolscript")
    assert "(aud)" in await refusal(strict, signed({**CLAIMS, "aud": audience}))
    assert "(aud)" in await refusal(strict, signed())


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
async def test_a_signed_token_that_says_nothing_that_can_be_read_is_refused(payload: bytes) -> None:
    assert "what the token says" in await refusal(verifier(), signed(payload))


# --- how a token is signed ---


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE"])
async def test_a_token_that_is_not_signed_is_refused(algorithm: str) -> None:
    parts = f"{unpadded({'alg': algorithm, 'typ': 'JWT'})}.{unpadded(CLAIMS)}"
    for signature in ("", unpadded(hmac.digest(SECRET.encode(), parts.encode(), "sha256"))):
        assert "not signed" in await refusal(verifier(), f"{parts}.{signature}")


@pytest.mark.parametrize("algorithm", [None, "", 5, ["HS256"], {"alg": "HS256"}, True])
async def test_a_token_that_does_not_say_how_it_is_signed_is_refused(algorithm: Any) -> None:
    parts = f"{unpadded({'alg': algorithm})}.{unpadded(CLAIMS)}"
    signature = unpadded(hmac.digest(SECRET.encode(), parts.encode(), "sha256"))
    assert "does not say how it is signed" in await refusal(verifier(), f"{parts}.{signature}")


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
async def test_another_algorithm_with_the_same_secret_is_refused(algorithm: str) -> None:
    assert "sign it with HS256" in await refusal(verifier(), signed(algorithm=algorithm))


async def test_another_secret_or_a_changed_token_is_refused() -> None:
    assert "signature is wrong" in await refusal(verifier(), signed(secret=OTHER_SECRET))
    header, payload, signature = signed().split(".")
    other = unpadded({**CLAIMS, "tenant_id": "other"})
    for changed in (
        f"{header}.{other}.{signature}",
        f"{header}.{payload}.",
        f"{header}.{payload}.{unpadded(b'x' * 32)}",
    ):
        assert "signature is wrong" in await refusal(verifier(), changed)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "PS256", "EdDSA", "HS257", "RSA", "hs256"])
async def test_with_a_secret_alone_only_hs256_is_taken(algorithm: str) -> None:
    assert "sign it with HS256" in await refusal(verifier(), signed(alg=algorithm))


async def test_with_a_secret_alone_a_true_rs_token_is_refused(rsa: SigningKey) -> None:
    assert "sign it with HS256" in await refusal(verifier(), rsa.sign(CLAIMS))


async def test_a_public_key_is_never_taken_for_a_secret(keys: PublishedKeys, rsa: SigningKey, clock: Clock) -> None:
    published = json.dumps(rsa.published()).encode()
    for key in (rsa.pem(), rsa.pem().strip(), published, rsa.published()["n"].encode()):
        parts = f"{unpadded({'alg': 'HS256', 'typ': 'JWT', 'kid': 'first'})}.{unpadded(CLAIMS)}"
        token = f"{parts}.{unpadded(hmac.digest(key, parts.encode(), 'sha256'))}"
        async with verifying(keys.url, clock) as verifies:
            assert "sign it with RS256" in await refusal(verifies, token)
        async with verifying(keys.url, clock, secret=SECRET) as verifies:
            assert "signature is wrong" in await refusal(verifies, token)


async def test_a_published_secret_is_of_no_use(clock: Clock) -> None:
    published = {"kty": "oct", "k": unpadded(SECRET.encode()), "alg": "HS256", "kid": "oct", "use": "sig"}
    with PublishedKeys(published) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert "sign it with RS256" in await refusal(verifies, signed(kid="oct"))


@pytest.mark.parametrize(
    "said",
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
    rsa: SigningKey, said: dict[str, Any], clock: Clock
) -> None:
    with PublishedKeys(rsa.published(**said)) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert "(kid)" in await refusal(verifies, rsa.sign(CLAIMS))


async def test_a_key_that_is_too_short_is_not_used(clock: Clock) -> None:
    short = new_key("RS256", "short", bits=1024)
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        token = short.sign(CLAIMS)
    with PublishedKeys(short.published()) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert "(kid)" in await refusal(verifies, token)


async def test_a_key_is_used_with_its_own_curve_and_kind_alone(
    keys: PublishedKeys, rsa: SigningKey, elliptic: SigningKey, clock: Clock
) -> None:
    wide = new_key("ES384", "wide")
    keys.keys.append(wide.published(alg="ES256"))
    async with verifying(keys.url, clock) as verifies:
        assert "(kid)" in await refusal(verifies, wide.sign(CLAIMS))
        assert "(kid)" in await refusal(verifies, rsa.sign(CLAIMS, kid="curved"))
        assert "(kid)" in await refusal(verifies, elliptic.sign(CLAIMS, kid="first"))


async def test_a_token_that_names_one_key_and_is_signed_with_another_is_refused(
    keys: PublishedKeys, elliptic: SigningKey, clock: Clock
) -> None:
    stranger = SigningKey(new_key("ES256").private, "ES256", "curved")
    keys.keys.append(new_key("ES256", "another").published())
    async with verifying(keys.url, clock) as verifies:
        assert await verifies.verify(elliptic.sign(CLAIMS)) == Principal("acme")
        assert "signature is wrong" in await refusal(verifies, stranger.sign(CLAIMS))
        assert keys.times == 1


async def test_keys_that_a_token_brings_itself_are_not_looked_at(
    keys: PublishedKeys, rsa: SigningKey, clock: Clock
) -> None:
    stranger = new_key("RS256", "stranger")
    with PublishedKeys(stranger.published()) as theirs:
        async with verifying(keys.url, clock) as verifies:
            for brought in ({"jwk": stranger.published()}, {"jku": theirs.url}, {"x5u": theirs.url}):
                assert "(kid)" in await refusal(verifies, stranger.sign(CLAIMS, **brought))
                as_first = stranger.sign(CLAIMS, kid="first", **brought)
                assert "signature is wrong" in await refusal(verifies, as_first)
        assert theirs.times == 0


@pytest.mark.parametrize(
    "kid", ["../../etc/passwd", "first' OR '1'='1", "/dev/null", "", "x" * 4000, "first\x00", "FIRST"]
)
async def test_the_id_of_a_key_is_nothing_but_a_name(
    keys: PublishedKeys, rsa: SigningKey, kid: str, clock: Clock
) -> None:
    async with verifying(keys.url, clock) as verifies:
        assert "(kid)" in await refusal(verifies, rsa.sign(CLAIMS, kid=kid))


# --- what is no token at all ---


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
        signed().replace(".", " "),
        signed() + ".x",
        signed() + "\n",
        "é" + signed(),
        "\ud800",
        f"{unpadded(b'[]')}.{unpadded(CLAIMS)}.x",
        f"{unpadded(b'{')}.{unpadded(CLAIMS)}.x",
        f"{unpadded(b'[' * 3000)}.{unpadded(CLAIMS)}.x",
        signed(kid=7),
        signed(kid=["first"]),
        signed(crit=["exp"], exp=1),
        signed(crit=[]),
    ],
)
async def test_what_is_no_token_is_told_so(token: str) -> None:
    assert "is no JWT" in await refusal(verifier(), token)


async def test_a_token_of_an_unencoded_payload_is_refused() -> None:
    await refusal(verifier(), signed(b64=False, crit=["b64"]))
    header = unpadded({"alg": "HS256", "b64": False, "crit": ["b64"]})
    await refusal(verifier(), f"{header}..{unpadded(hmac.digest(SECRET.encode(), f'{header}.'.encode(), 'sha256'))}")


async def test_a_token_may_not_be_longer_than_eight_kilobytes() -> None:
    padding = {**CLAIMS, "padding": "x" * 8192}
    assert "longer than 8192" in await refusal(verifier(), signed(padding))
    assert await verifier().verify(signed({**CLAIMS, "padding": "x" * 5000})) == Principal("acme")


# --- tokens of this machine ---


async def test_the_owner_of_the_folder_signs_for_any_tenant(keys: PublishedKeys, clock: Clock) -> None:
    token = local_token(LOCAL_KEY, "acme", clock=clock)
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
    token = local_token(LOCAL_KEY, "acme", clock=clock)
    verifies = verifier(None, clock=clock)
    clock.now += 89
    assert await verifies.verify(token) == Principal("acme")
    clock.now += 1
    assert "has expired" in await refusal(verifies, token)


async def test_a_local_token_is_checked_like_any_other(clock: Clock) -> None:
    assert "tenant" in await refusal(verifier(None), local_token(LOCAL_KEY, "", clock=clock))
    assert "tenant" in await refusal(verifier(None), local_token(LOCAL_KEY, "a\nb", clock=clock))
    issued_by_another = signed({**CLAIMS, "iss": "https://issuer"}, LOCAL_KEY)
    assert "toolscript-local" in await refusal(verifier(issuer="https://issuer"), issued_by_another)
    assert "toolscript-local" in await refusal(verifier(None), signed(secret=LOCAL_KEY))
    assert "signature is wrong" in await refusal(verifier(), local_token(OTHER_SECRET, "acme", clock=clock))


async def test_nobody_can_pass_for_this_machine_by_its_issuer() -> None:
    claims = {**CLAIMS, "iss": "toolscript-local"}
    assert "(iss)" in await refusal(verifier(issuer="https://issuer"), signed(claims))
    assert "know" in await refusal(verifier(None), signed(claims))


async def test_with_nothing_configured_every_other_token_is_refused_and_told_what_to_set(rsa: SigningKey) -> None:
    for token in (signed(), rsa.sign(CLAIMS)):
        told = await refusal(verifier(None), token)
        assert "set TOOLSCRIPT_JWT_SECRET or TOOLSCRIPT_JWT_JWKS" in told


# --- what is configured ---


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
        with pytest.raises(Invalid, match="no secret") as error:
            verifier(secret)
        assert secret not in error.value.message


@pytest.mark.parametrize(
    "place", ["ftp://127.0.0.1/keys", "file:///keys.json", "http://", "https:///x", "nowhere.json"]
)
def test_a_place_where_no_keys_can_be_is_refused_at_once(place: str) -> None:
    with pytest.raises(Invalid) as error:
        verifier(None, place)
    assert error.value.details["field"] == "TOOLSCRIPT_JWT_JWKS"


@pytest.mark.parametrize("place", ["http://[", "~nobody-of-that-name/keys.json", "\x00"])
def test_a_place_that_cannot_be_read_as_one_is_refused_at_once(place: str) -> None:
    with pytest.raises(Invalid):
        verifier(None, place)


def test_the_issuer_of_this_machines_tokens_cannot_be_taken() -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_JWT_ISSUER"):
        verifier(issuer="toolscript-local")


# --- keys that are published: kept, rotated, not to be had ---


async def test_keys_are_read_once_in_ten_minutes(keys: PublishedKeys, rsa: SigningKey, clock: Clock) -> None:
    async with verifying(keys.url, clock) as verifies:
        long_lasting = rsa.sign({**CLAIMS, "exp": NOW + 10_000})
        for seconds, times in ((0, 1), (1, 1), (598, 1), (1, 2), (599, 2), (1, 3)):
            clock.now += seconds
            await verifies.verify(long_lasting)
            assert keys.times == times


async def test_many_requests_at_once_make_one_reading(keys: PublishedKeys, rsa: SigningKey, clock: Clock) -> None:
    keys.hold = True
    async with verifying(keys.url, clock) as verifies:
        asking = [asyncio.create_task(verifies.verify(rsa.sign(CLAIMS))) for _ in range(20)]
        await asyncio.to_thread(keys.arrived.acquire)
        keys.let_go.set()
        assert await asyncio.gather(*asking) == [Principal("acme")] * 20
        assert keys.times == 1


async def test_a_new_key_is_found_at_once_by_however_many_bring_it(
    keys: PublishedKeys, rsa: SigningKey, clock: Clock
) -> None:
    async with verifying(keys.url, clock) as verifies:
        await verifies.verify(rsa.sign(CLAIMS))
        second = new_key("ES256", "second")
        keys.keys = [second.published()]
        keys.hold = True
        keys.arrived = type(keys.arrived)(0)
        asking = [asyncio.create_task(verifies.verify(second.sign(CLAIMS))) for _ in range(20)]
        await asyncio.to_thread(keys.arrived.acquire)
        keys.let_go.set()
        assert await asyncio.gather(*asking) == [Principal("acme")] * 20
        assert keys.times == 2
        assert "(kid)" in await refusal(verifies, rsa.sign(CLAIMS))


async def test_unknown_keys_are_looked_for_once_in_half_a_minute(
    keys: PublishedKeys, rsa: SigningKey, clock: Clock
) -> None:
    stranger, late = new_key("ES256", "stranger"), new_key("ES256", "late")
    async with verifying(keys.url, clock) as verifies:
        for _ in range(10):
            assert "(kid)" in await refusal(verifies, stranger.sign(CLAIMS))
        assert keys.times == 2
        keys.keys.append(late.published())
        clock.now += 29
        assert "(kid)" in await refusal(verifies, late.sign(CLAIMS))
        assert keys.times == 2
        clock.now += 1
        assert await verifies.verify(late.sign(CLAIMS)) == Principal("acme")
        assert await verifies.verify(rsa.sign(CLAIMS)) == Principal("acme")
        assert keys.times == 3


async def test_keys_without_ids_rotate_too(clock: Clock) -> None:
    old, new = new_key("ES256"), new_key("ES256")
    with PublishedKeys(old.published()) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert await verifies.verify(old.sign(CLAIMS)) == Principal("acme")
            keys.keys = [new.published()]
            assert await verifies.verify(new.sign(CLAIMS)) == Principal("acme")
            assert "signature is wrong" in await refusal(verifies, old.sign(CLAIMS))
            assert keys.times == 2


async def test_a_file_of_keys_rotates_too(tmp_path: Path, rsa: SigningKey, elliptic: SigningKey, clock: Clock) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [rsa.published()]}))
    async with verifying(str(file), clock) as verifies:
        assert await verifies.verify(rsa.sign(CLAIMS)) == Principal("acme")
        file.write_text(json.dumps({"keys": [elliptic.published()]}))
        assert await verifies.verify(elliptic.sign(CLAIMS)) == Principal("acme")
        assert "(kid)" in await refusal(verifies, rsa.sign(CLAIMS))


async def test_a_key_that_is_taken_back_is_believed_for_ten_minutes_at_most(
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


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_reading_that_fails_leaves_the_keys_that_were_known(
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


@pytest.mark.parametrize("fault", BROKEN)
async def test_where_no_keys_were_ever_read_it_is_not_the_tokens_fault(
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
        assert await verifies.verify(signed()) == Principal("acme")
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


async def test_a_place_that_does_not_answer_is_waited_for_no_longer_than_it_may_take(
    keys: PublishedKeys, rsa: SigningKey, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_set, "PATIENCE_SECONDS", 0.05)
    keys.hold = True
    async with verifying(keys.url, clock) as verifies:
        with pytest.raises(Unavailable, match=r"0\.05 seconds"):
            await verifies.verify(rsa.sign(CLAIMS))


async def test_where_nobody_listens_there_are_no_keys(rsa: SigningKey, clock: Clock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with verifying(f"http://user:word@127.0.0.1:{port}/keys?key=hidden", clock) as verifies:
        with pytest.raises(Unavailable, match=f"http://127.0.0.1:{port}/keys:") as error:
            await verifies.verify(rsa.sign(CLAIMS))
        assert "word" not in error.value.message
        assert "hidden" not in error.value.message


async def test_whoever_hangs_up_while_keys_are_read_leaves_the_others_unharmed(
    keys: PublishedKeys, rsa: SigningKey, clock: Clock
) -> None:
    keys.hold = True
    async with verifying(keys.url, clock) as verifies:
        first, second = (asyncio.create_task(verifies.verify(rsa.sign(CLAIMS))) for _ in range(2))
        await asyncio.to_thread(keys.arrived.acquire)
        first.cancel()
        await asyncio.to_thread(keys.arrived.acquire)
        keys.let_go.set()
        assert await second == Principal("acme")
        assert first.cancelled()


async def test_keys_that_make_no_sense_do_not_spoil_the_others(rsa: SigningKey, clock: Clock) -> None:
    nonsense: list[Any] = [None, 7, "key", [], {}, {"kty": "RSA"}, {"kty": ["RSA"]}, {"kty": "EC", "crv": "P-256"}]
    with PublishedKeys(*nonsense, rsa.published()) as keys:
        async with verifying(keys.url, clock) as verifies:
            assert await verifies.verify(rsa.sign(CLAIMS)) == Principal("acme")


def test_the_digest_of_hs256_is_what_the_tests_think_it_is() -> None:
    token = jwt.encode({"a": 1}, SECRET, algorithm="HS256")
    parts, _, signature = token.rpartition(".")
    assert signature == unpadded(hmac.new(SECRET.encode(), parts.encode(), hashlib.sha256).digest())
