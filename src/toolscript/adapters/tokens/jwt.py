"""Verifies bearer tokens (JWT) and says why a token is refused.

The settings decide on the algorithm of each key: the secret and the local key with HS256, published keys with RS* and
ES*. A token only claims to be one of these, so a public key can never be used as a secret. PyJWT checks signatures,
times, issuer and audience.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jwt

from toolscript.adapters.outgoing.remote_services import require_unique_keys
from toolscript.adapters.tokens.jwks import KEY_TYPES, KeySet
from toolscript.domain.access import DEFAULT_PLAN, TENANT_RULE, Grant, Principal, Scope, is_tenant_name
from toolscript.domain.errors import Forbidden, Invalid, Unauthorized

SYMMETRIC = "HS256"
LOCAL_ISSUER = "toolscript-local"
LOCAL_TENANT_CLAIM = "tenant_id"
LOCAL_SECONDS = 60
SIGN_IN_ISSUER = "toolscript-sign-in"
MAX_TOKEN_LENGTH = 8192
MAX_PLAN_LENGTH = 256
MAX_SUBJECT_LENGTH = 256
# Distinguishes the users of access tokens from keys of the same name, in logs and as callers.
OAUTH_CALLER = "oauth:"
SCOPE_PREFIX = "toolscript:"
LEEWAY_SECONDS = 30
# Larger numbers are exact in no other program, and no time in any.
MAX_TIME = 2**53
MIN_SECRET_BYTES = 32

Key = str | jwt.PyJWK


def sign_local_token(
    key: str, tenant: str, *, seconds: int = LOCAL_SECONDS, clock: Callable[[], float] = time.time
) -> str:
    """A token for that tenant, valid for a minute, signed with the key in a gateway's data folder."""
    now = int(clock())
    claims = {"iss": LOCAL_ISSUER, "iat": now, "exp": now + seconds, LOCAL_TENANT_CLAIM: tenant}
    return jwt.encode(claims, key, algorithm=SYMMETRIC)


def sign_sign_in_code(key: str, seconds: int, *, clock: Callable[[], float] = time.time) -> str:
    """A code that lets a page sign in once, signed with the key in a gateway's data folder. It is no token."""
    claims = {"iss": SIGN_IN_ISSUER, "exp": int(clock()) + seconds, "jti": secrets.token_urlsafe(16)}
    return jwt.encode(claims, key, algorithm=SYMMETRIC)


def read_sign_in_code(key: str, code: str) -> tuple[str, float]:
    """The id of a code, and when it expires. Raises Unauthorized for what that key has not signed, or is too old."""
    claims = _verify(code, SYMMETRIC, [key], issuer=SIGN_IN_ISSUER, audience=None)
    if _read_header(code)[0] != SYMMETRIC or claims is None:
        raise _refuse("the code was not signed with the key of this gateway")
    return str(claims.get("jti")), float(claims["exp"])


def is_local_token(key: str, token: str) -> bool:
    """Whether that key signed the token, and the token is still valid."""
    try:
        return _read_header(token)[0] == SYMMETRIC and _verify_local(token, key) is not None
    except Unauthorized:
        return False


class JwtVerifier:
    """Accepts tokens signed with the secret, with a published key, or with the local key of the data folder."""

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
        has_scopes: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """With `has_scopes`, tokens signed with published keys allow only what their scopes say. Raises Invalid for a
        secret that is too short or a public key, and for an unusable address of keys."""
        _check_secret(local_key, "the local key")
        if secret is not None:
            _check_secret(secret, "TOOLSCRIPT_JWT_SECRET")
        if issuer == LOCAL_ISSUER:
            raise Invalid(
                f"TOOLSCRIPT_JWT_ISSUER={LOCAL_ISSUER} is reserved for tokens of this machine's own commands: use "
                "another issuer",
                details={"field": "TOOLSCRIPT_JWT_ISSUER"},
            )
        self._secret = secret
        self._keys = KeySet(jwks, clock=monotonic) if jwks else None
        self._issuer = issuer or None
        self._audience = audience or None
        self._tenant_claim = tenant_claim
        self._plan_claim = plan_claim
        self._local_key = local_key
        self._has_scopes = has_scopes

    async def authorize(self, token: str) -> Grant:
        """What an access token allows: a token of the issuer, signed with a published key. Raises Unauthorized, and
        Unavailable when the published keys cannot be read."""
        algorithm, kid = _read_header(token)
        if algorithm not in KEY_TYPES:
            raise _refuse(f"the token is not an access token: its algorithm (alg) is not {' or '.join(KEY_TYPES)}")
        claims = await self._verify_configured(token, algorithm, kid)
        return Grant(f"{OAUTH_CALLER}{_find_subject(claims)}", _read_scopes(claims), claims)

    async def verify(self, token: str) -> Principal:
        """The principal of a token. Raises Unauthorized, Forbidden for an access token without the scope `documents`,
        and Unavailable when the published keys cannot be read."""
        algorithm, kid = _read_header(token)
        if algorithm == SYMMETRIC:
            claims = _verify_local(token, self._local_key)
            if claims is not None:
                return _read_principal(claims, LOCAL_TENANT_CLAIM, DEFAULT_PLAN)
        claims = await self._verify_configured(token, algorithm, kid)
        if self._has_scopes and algorithm in KEY_TYPES:
            _find_subject(claims)
            if Scope.DOCUMENTS not in _read_scopes(claims):
                raise Forbidden(
                    f"this token may not use documents: it lacks the scope {Scope.DOCUMENTS}",
                    details={"scope": Scope.DOCUMENTS.value},
                )
        plan = claims.get(self._plan_claim, DEFAULT_PLAN)
        if not isinstance(plan, str) or not 0 < len(plan) <= MAX_PLAN_LENGTH:
            raise _refuse(
                f"the token's plan (claim {self._plan_claim}) is not a string of 1 to {MAX_PLAN_LENGTH} characters"
            )
        return _read_principal(claims, self._tenant_claim, plan)

    async def close(self) -> None:
        if self._keys:
            await self._keys.close()

    async def _verify_configured(self, token: str, algorithm: str, kid: str | None) -> dict[str, Any]:
        """The claims of a token that the secret or a published key signed. Raises Unauthorized."""
        allowed = [*([SYMMETRIC] if self._secret else []), *(KEY_TYPES if self._keys else [])]
        if not allowed:
            raise _refuse(
                "this gateway has no key to verify tokens with: set TOOLSCRIPT_JWT_SECRET or TOOLSCRIPT_JWT_JWKS "
                "where it runs"
            )
        if algorithm not in allowed:
            raise _refuse(f"the token's algorithm (alg) is not allowed: sign it with {' or '.join(allowed)}")
        if self._keys is None or algorithm == SYMMETRIC:
            claims = self._verify(token, algorithm, [self._secret or ""])
        else:
            claims = await self._verify_with_published_keys(self._keys, token, algorithm, kid)
        if claims is None:
            raise _refuse("the token's signature is wrong: another key signed it, or the token was changed")
        return claims

    async def _verify_with_published_keys(
        self, published: KeySet, token: str, algorithm: str, kid: str | None
    ) -> dict[str, Any] | None:
        keys = await published.find(kid, algorithm)
        claims = self._verify(token, algorithm, keys)
        if claims is None and (kid is None or not keys):  # the keys may have rotated since they were read
            keys = await published.find(kid, algorithm, refresh=True)
            claims = self._verify(token, algorithm, keys)
        if not keys:
            raise _refuse("the token's key (kid) is not among the published keys for its algorithm")
        return claims

    def _verify(self, token: str, algorithm: str, keys: Sequence[Key]) -> dict[str, Any] | None:
        return _verify(token, algorithm, keys, issuer=self._issuer, audience=self._audience)


class _StrictJwt(jwt.PyJWT):
    """PyJWT that refuses payloads with a claim twice and times that are not numbers."""

    def _decode_payload(self, decoded: dict[str, Any]) -> dict[str, Any]:
        try:
            claims = json.loads(decoded["payload"], object_pairs_hook=require_unique_keys)
        except (ValueError, RecursionError) as error:
            raise _refuse("the token's payload is not valid JSON with each claim once") from error
        if not isinstance(claims, dict):
            raise _refuse("the token's payload is not a JSON object")
        for name in ("exp", "nbf", "iat"):  # PyJWT accepts whatever int() accepts: true, "7"
            value = claims.get(name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and abs(value) <= MAX_TIME):  # NaN is not, either
                raise _refuse(f"the token's {name} is not a number of seconds up to {MAX_TIME}")
        return {name: value for name, value in claims.items() if value is not None}


_JWT = _StrictJwt({"enforce_minimum_key_length": True, "verify_sub": False, "verify_jti": False, "require": ["exp"]})


def _verify(
    token: str, algorithm: str, keys: Sequence[Key], *, issuer: str | None, audience: str | None
) -> dict[str, Any] | None:
    """The claims of a token if one of these keys signed it with that algorithm, else None. Raises Unauthorized."""
    for key in keys:
        try:
            return _JWT.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=issuer,
                audience=audience,
                leeway=LEEWAY_SECONDS,
                options={"verify_aud": audience is not None},
            )
        except jwt.PyJWTError as error:
            reason = _explain(error, issuer)
            if reason:
                raise _refuse(reason) from error
    return None


def _explain(error: jwt.PyJWTError, issuer: str | None) -> str | None:
    """Why the claims of a correctly signed token are refused; None when the signature is wrong."""
    match error:
        case jwt.ExpiredSignatureError():
            return "the token has expired (exp)"
        case jwt.ImmatureSignatureError():
            return "the token is not valid yet: nbf or iat is in the future"
        case jwt.InvalidIssuerError() | jwt.MissingRequiredClaimError(claim="iss"):
            return f"the token's issuer (iss) is not {issuer}"
        case jwt.InvalidAudienceError() | jwt.MissingRequiredClaimError(claim="aud"):
            return "the token is not for this service: its audience (aud) is another one"
        case jwt.MissingRequiredClaimError():
            return "the token has no expiry (exp)"
        case _:
            return None


def _verify_local(token: str, key: str) -> dict[str, Any] | None:
    return _verify(token, SYMMETRIC, [key], issuer=LOCAL_ISSUER, audience=None)


def _check_secret(secret: str, name: str) -> None:
    if len(secret.encode(errors="replace")) < MIN_SECRET_BYTES:
        raise Invalid(
            f"{name} is too short: give at least {MIN_SECRET_BYTES} bytes that nobody can guess, such as the output of "
            "`openssl rand -hex 32`",
            details={"field": name, "allowed": f"at least {MIN_SECRET_BYTES} bytes"},
        )
    try:
        jwt.get_algorithm_by_name(SYMMETRIC).prepare_key(secret)
    except (jwt.InvalidKeyError, UnicodeEncodeError) as error:
        raise Invalid(
            f"{name} is not a secret but a public key, a certificate or not valid Unicode: give a string that nobody "
            "can guess, and public keys as TOOLSCRIPT_JWT_JWKS",
            details={"field": name},
        ) from error


def _read_header(token: str) -> tuple[str, str | None]:
    """The algorithm and the key id that a token claims. Neither is trusted; they only choose the keys to try."""
    if len(token) > MAX_TOKEN_LENGTH:
        raise _refuse(f"the token is longer than {MAX_TOKEN_LENGTH} characters")
    try:
        header = jwt.get_unverified_header(token if token.isascii() else "")
    except jwt.PyJWTError as error:
        raise _refuse("the token is not a JWT: expected HEADER.PAYLOAD.SIGNATURE, each in base64url") from error
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or not algorithm:
        raise _refuse("the token does not name its algorithm (alg)")
    if algorithm.lower() == "none":
        raise _refuse("the token is not signed (alg none)")
    return algorithm, header.get("kid")


def _read_principal(claims: Mapping[str, Any], tenant_claim: str, plan: str) -> Principal:
    tenant, subject = claims.get(tenant_claim), claims.get("sub")
    if tenant is None:
        raise _refuse(f"the token names no tenant (claim {tenant_claim})")
    if not is_tenant_name(tenant):
        raise _refuse(f"the token's tenant (claim {tenant_claim}) is not {TENANT_RULE}")
    return Principal(tenant, plan, subject if isinstance(subject, str) else None)


def _find_subject(claims: Mapping[str, Any]) -> str:
    """The user of an access token, or the client that has it for itself. Raises Unauthorized."""
    for claim in ("sub", "client_id", "azp"):
        subject = claims.get(claim)
        if isinstance(subject, str) and 0 < len(subject) <= MAX_SUBJECT_LENGTH and subject.isprintable():
            return subject
    raise _refuse(f"the token names no user (sub) or client (client_id) of 1 to {MAX_SUBJECT_LENGTH} characters")


def _read_scopes(claims: Mapping[str, Any]) -> frozenset[Scope]:
    """The scopes that a token's `scope` (RFC 9068) or `scp` names, as `search` or `toolscript:search`; others belong to
    other services."""
    named: set[str] = set()
    for claim in ("scope", "scp"):
        value = claims.get(claim)
        parts = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
        named.update(part.removeprefix(SCOPE_PREFIX) for part in parts if isinstance(part, str))
    return frozenset(scope for scope in Scope if scope.value in named)


def _refuse(reason: str) -> Unauthorized:
    return Unauthorized(reason, details={"field": "Authorization"})
