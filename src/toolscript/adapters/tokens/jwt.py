"""Believes tokens (JWT) that were signed with a configured key, and tells whoever brings another what is wrong with it.

Which key goes with which algorithm is decided by the settings: the secret and the local key with HS256, published keys
with RS* and ES*. A token only says which of these it claims to be, so a public key can never be taken for a secret.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jwt

from toolscript.adapters.tokens.jwks import KEY_OF, KeySet
from toolscript.domain.access import DEFAULT_PLAN, Principal
from toolscript.domain.errors import Invalid, Unauthorized
from toolscript.domain.tenants import TENANT_RULE, is_tenant_name

SYMMETRIC = "HS256"
LOCAL_ISSUER = "toolscript-local"
LOCAL_TENANT_CLAIM = "tenant_id"
LOCAL_SECONDS = 60
LONGEST_TOKEN = 8192
LONGEST_PLAN = 256
LEEWAY_SECONDS = 30
LEAST_SECRET_BYTES = 32

_JWS = jwt.PyJWS(algorithms=[SYMMETRIC, *KEY_OF], options={"enforce_minimum_key_length": True})
Key = str | jwt.PyJWK


def local_token(key: str, tenant: str, *, clock: Callable[[], float] = time.time) -> str:
    """A token for that tenant, for a minute, signed with the key that a gateway leaves to the owner of its folder."""
    now = int(clock())
    claims = {"iss": LOCAL_ISSUER, "iat": now, "exp": now + LOCAL_SECONDS, LOCAL_TENANT_CLAIM: tenant}
    return jwt.encode(claims, key, algorithm=SYMMETRIC)


def is_local_token(key: str, token: str, *, clock: Callable[[], float] = time.time) -> bool:
    """Whether the owner of the folder has signed that token a moment ago."""
    try:
        claims = _opened(token, SYMMETRIC, [key]) if _header(token)[0] == SYMMETRIC else None
        return claims is not None and _local(claims, clock()) is not None
    except Unauthorized:
        return False


class JwtVerifier:
    """Verifies tokens of a secret, of published keys, and those that the owner of the data folder signs."""

    def __init__(
        self,
        secret: str | None,
        jwks: str | None,
        *,
        issuer: str | None = None,
        audience: str | None = None,
        tenant_claim: str = LOCAL_TENANT_CLAIM,
        plan_claim: str = "plan",
        local_key: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises Invalid for a secret that is too short or no secret, and for keys that can be nowhere."""
        _check_secret(local_key, "the local key")
        if secret is not None:
            _check_secret(secret, "TOOLSCRIPT_JWT_SECRET")
        if issuer == LOCAL_ISSUER:
            raise Invalid(
                f"TOOLSCRIPT_JWT_ISSUER={LOCAL_ISSUER} is not usable: that is what this machine's own tokens say",
                details={"field": "TOOLSCRIPT_JWT_ISSUER"},
            )
        self._secret = secret
        self._keys = KeySet(jwks, clock=monotonic) if jwks else None
        self._issuer = issuer
        self._audience = audience
        self._tenant_claim = tenant_claim
        self._plan_claim = plan_claim
        self._local_key = local_key
        self._clock = clock

    async def verify(self, token: str) -> Principal:
        """Who the token speaks for. Raises Unauthorized, and Unavailable when the published keys cannot be had."""
        algorithm, kid = _header(token)
        if algorithm == SYMMETRIC:
            claims = _opened(token, algorithm, [self._local_key])
            if claims is not None:
                return _local(claims, self._clock())
        claims = await self._claims(token, algorithm, kid)
        _check_times(claims, self._clock())
        self._check_origin(claims)
        plan = claims.get(self._plan_claim)
        if plan is None:
            plan = DEFAULT_PLAN
        if not isinstance(plan, str) or not 0 < len(plan) <= LONGEST_PLAN:
            raise _refused(
                f"the token's plan (claim {self._plan_claim}) is not a text of 1 to {LONGEST_PLAN} characters"
            )
        return _principal(claims, self._tenant_claim, plan)

    async def close(self) -> None:
        if self._keys:
            await self._keys.close()

    async def _claims(self, token: str, algorithm: str, kid: str | None) -> dict[str, Any]:
        """What a token says that is signed with one of our keys."""
        taken = [*([SYMMETRIC] if self._secret else []), *(KEY_OF if self._keys else [])]
        if not taken:
            raise _refused(
                "this gateway knows no key to verify tokens with: set TOOLSCRIPT_JWT_SECRET or TOOLSCRIPT_JWT_JWKS "
                "where it runs"
            )
        if algorithm not in taken:
            raise _refused(
                f"the token is signed in a way (alg) that is not taken here: sign it with {' or '.join(taken)}"
            )
        if self._secret and algorithm == SYMMETRIC:
            claims = _opened(token, algorithm, [self._secret])
        else:
            claims = await self._by_published_key(token, algorithm, kid)
        if claims is None:
            raise _refused("the token's signature is wrong: it was made with another key, or the token was changed")
        return claims

    async def _by_published_key(self, token: str, algorithm: str, kid: str | None) -> dict[str, Any] | None:
        if self._keys is None:
            return None
        keys = await self._keys.fitting(kid, algorithm)
        claims = _opened(token, algorithm, keys)
        if claims is None and (kid is None or not keys):  # the keys may have been changed since they were read
            keys = await self._keys.fitting(kid, algorithm, anew=True)
            claims = _opened(token, algorithm, keys)
        if not keys:
            raise _refused(
                "the token is signed with a key (kid) that is not among the published ones for its algorithm"
            )
        return claims

    def _check_origin(self, claims: Mapping[str, Any]) -> None:
        if self._issuer and claims.get("iss") != self._issuer:
            raise _refused("the token is not from the issuer that is believed here (iss)")
        meant_for = claims.get("aud")
        audiences = meant_for if isinstance(meant_for, list) else [meant_for]
        if self._audience and self._audience not in audiences:
            raise _refused("the token is not meant for this service (aud)")


def _local(claims: Mapping[str, Any], now: float) -> Principal:
    if claims.get("iss") != LOCAL_ISSUER:
        raise _refused(f"the token is signed with this machine's own key, and its issuer is not {LOCAL_ISSUER}")
    _check_times(claims, now)
    return _principal(claims, LOCAL_TENANT_CLAIM, DEFAULT_PLAN)


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    expires, begins, issued = (_moment(claims, name) for name in ("exp", "nbf", "iat"))
    if expires is None:
        raise _refused("the token has no expiry (exp)")
    if expires <= now - LEEWAY_SECONDS:
        raise _refused("the token has expired (exp)")
    if begins is not None and begins > now + LEEWAY_SECONDS:
        raise _refused("the token is not valid yet (nbf)")
    if issued is not None and issued > now + LEEWAY_SECONDS:
        raise _refused("the token was issued in the future (iat)")


def _check_secret(secret: str, name: str) -> None:
    if len(secret.encode(errors="replace")) < LEAST_SECRET_BYTES:
        raise Invalid(
            f"{name} is too short: give at least {LEAST_SECRET_BYTES} bytes that nobody can guess, such as those of "
            "`openssl rand -hex 32`",
            details={"field": name, "allowed": f"at least {LEAST_SECRET_BYTES} bytes"},
        )
    try:
        _JWS.get_algorithm_by_name(SYMMETRIC).prepare_key(secret)
    except (jwt.InvalidKeyError, UnicodeEncodeError) as error:
        raise Invalid(
            f"{name} is no secret but a public key or a certificate, or no text at all: give a text nobody can guess, "
            "and public keys as TOOLSCRIPT_JWT_JWKS",
            details={"field": name},
        ) from error


def _header(token: str) -> tuple[str, str | None]:
    """The algorithm and the key that a token names. Neither is believed; they say what to try."""
    if len(token) > LONGEST_TOKEN:
        raise _refused(f"the token is longer than {LONGEST_TOKEN} characters")
    try:
        header = _JWS.get_unverified_header(token if token.isascii() else "")
    except jwt.PyJWTError as error:
        raise _refused("the token is no JWT: HEADER.PAYLOAD.SIGNATURE is wanted, each in base64url") from error
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or not algorithm:
        raise _refused("the token does not say how it is signed (alg)")
    if algorithm.lower() == "none":
        raise _refused("the token is not signed (alg none)")
    return algorithm, header.get("kid")


def _opened(token: str, algorithm: str, keys: Sequence[Key]) -> dict[str, Any] | None:
    """What a token says, if one of these keys has signed it by that algorithm."""
    for key in keys:
        try:
            payload = _JWS.decode_complete(token, key, algorithms=[algorithm])["payload"]
        except jwt.PyJWTError:
            continue
        try:
            claims = json.loads(payload, object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            raise _refused("what the token says is not JSON with each claim once") from error
        if not isinstance(claims, dict):
            raise _refused("what the token says is no JSON object")
        return claims
    return None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a claim appears twice")
    return found


def _moment(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, float) and math.isfinite(value)):
        raise _refused(f"the token's {name} is not a number of seconds")
    number: float = value
    return number


def _principal(claims: Mapping[str, Any], tenant_claim: str, plan: str) -> Principal:
    tenant, subject = claims.get(tenant_claim), claims.get("sub")
    if tenant is None:
        raise _refused(f"the token names no tenant (claim {tenant_claim})")
    if not is_tenant_name(tenant):
        raise _refused(f"the token's tenant (claim {tenant_claim}) is not {TENANT_RULE}")
    return Principal(tenant, plan, subject if isinstance(subject, str) else None)


def _refused(why: str) -> Unauthorized:
    return Unauthorized(why, details={"field": "Authorization"})
