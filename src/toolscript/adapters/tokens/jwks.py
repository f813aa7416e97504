"""Reads the public keys that tokens are verified with, from a URL or a file; caches them and follows rotation."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import jwt

from toolscript.adapters.outgoing.bounds import MAX_KEY_SET_BYTES
from toolscript.adapters.outgoing.remote_services import hide_credentials, is_http_url
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.limits import current_limits

SETTING = "TOOLSCRIPT_JWT_JWKS"
# The key type and curve of each algorithm; never taken from a token.
KEY_TYPES: dict[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
}
PUBLIC_PARTS = ("kty", "crv", "n", "e", "x", "y")
MIN_RSA_BITS = 2048
MAX_KEYS = 100
CACHE_SECONDS = 600.0
RETRY_SECONDS = 30.0
FIRST_RETRY_SECONDS = 2.0

# The id of a key, the one algorithm that it may be used with, and the key.
PublicKey = tuple[str | None, str, jwt.PyJWK]

log = logging.getLogger(__name__)


class KeySet:
    """The keys of one URL or file. Concurrent callers share one read; a failed read leaves the keys as they were."""

    def __init__(self, place: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises Invalid when the place is neither an http(s) URL nor a file."""
        self._place = place
        self._clock = clock
        self._is_remote = _is_remote(place)
        # Without user, password and query, for messages.
        self._public_place = hide_credentials(place) if self._is_remote else place
        self._client: httpx.AsyncClient | None = None
        self._reading = asyncio.Lock()
        self._keys: tuple[PublicKey, ...] | None = None
        self._read_at = self._tried_at = self._refreshed_at = float("-inf")
        self._last_error = ""

    async def find(self, kid: str | None, algorithm: str, *, refresh: bool = False) -> list[jwt.PyJWK]:
        """The keys for that algorithm with that id, or all of them for a token without an id. `refresh` reads them
        again first, at most every 30 seconds. Raises Unavailable when no read has succeeded yet."""
        if self._is_due(refresh=refresh):
            async with self._reading:
                if self._is_due(refresh=refresh):
                    await self._read(refresh=refresh)
        if self._keys is None:
            raise Unavailable(
                f"the keys that verify tokens could not be read from {self._public_place}: {self._last_error}. "
                f"Try again in a moment, or check {SETTING}",
                details={"field": SETTING},
            )
        return [key for key_id, allowed, key in self._keys if allowed == algorithm and kid in {None, key_id}]

    async def close(self) -> None:
        if self._client:
            await self._client.aclose()

    def _is_due(self, *, refresh: bool) -> bool:
        now = self._clock()
        if self._keys is None:
            return now - self._tried_at >= FIRST_RETRY_SECONDS
        if refresh:
            return now - self._refreshed_at >= RETRY_SECONDS
        return now - self._read_at >= CACHE_SECONDS and now - self._tried_at >= RETRY_SECONDS

    async def _read(self, *, refresh: bool) -> None:
        try:
            keys = _parse_keys(await self._fetch() if self._is_remote else await asyncio.to_thread(self._read_file))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, RecursionError, TimeoutError) as error:
            self._last_error = str(error) or f"no complete response within {current_limits().key_set:g} seconds"
            log.warning("keys_not_read", extra={"place": self._public_place, "reason": self._last_error})
        else:
            if not keys:
                log.warning("keys_not_usable", extra={"place": self._public_place})
            self._keys, self._read_at = keys, self._clock()
        # Set after the read: callers that arrive during it must wait for the new keys.
        self._tried_at = self._clock()
        if refresh:
            self._refreshed_at = self._tried_at

    async def _fetch(self) -> bytes:
        self._client = self._client or httpx.AsyncClient(follow_redirects=False, timeout=current_limits().key_set)
        # Uncompressed: a small compressed response could expand beyond the limit.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        body = bytearray()
        async with (
            asyncio.timeout(current_limits().key_set),
            self._client.stream("GET", self._place, headers=headers) as response,
        ):
            if response.status_code != httpx.codes.OK:
                raise ValueError(f"the response has status {response.status_code}, and redirects are not followed")
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > MAX_KEY_SET_BYTES:
                    raise ValueError(f"the response is larger than {MAX_KEY_SET_BYTES} bytes")
        return bytes(body)

    def _read_file(self) -> bytes:
        with Path(self._place).expanduser().open("rb") as file:
            content = file.read(MAX_KEY_SET_BYTES + 1)
        if len(content) > MAX_KEY_SET_BYTES:
            raise ValueError(f"the file is larger than {MAX_KEY_SET_BYTES} bytes")
        return content


def _is_remote(place: str) -> bool:
    if is_http_url(place):
        return True
    with suppress(ValueError, OSError, RuntimeError):
        if not place.startswith(("http://", "https://")) and Path(place).expanduser().is_file():
            return False
    raise Invalid(
        f"{SETTING} is neither an http(s) URL nor an existing file: give the URL or the file of a JSON Web Key Set",
        details={"field": SETTING, "allowed": ["http", "https", "a file"]},
    )


def _parse_keys(content: bytes) -> tuple[PublicKey, ...]:
    """The usable keys of a JSON Web Key Set, once per algorithm; others are skipped. Raises ValueError."""
    key_set = json.loads(content)
    keys = key_set.get("keys") if isinstance(key_set, dict) else None
    if not isinstance(keys, list):
        raise ValueError(  # noqa: TRY004
            'not a JSON Web Key Set: expected {"keys": [...]}'
        )
    if len(keys) > MAX_KEYS:
        raise ValueError(f"it has {len(keys)} keys, the maximum is {MAX_KEYS}")
    return tuple(use for key in keys if isinstance(key, Mapping) for use in _list_uses(key))


def _list_uses(key: Mapping[str, Any]) -> list[PublicKey]:
    operations = key.get("key_ops", ["verify"])
    kid = key.get("kid")
    if (
        key.get("use", "sig") != "sig"
        or not (isinstance(operations, list) and "verify" in operations)
        or not isinstance(kid, str | None)
    ):
        return []
    algorithms = [
        algorithm
        for algorithm, (kind, curve) in KEY_TYPES.items()
        if key.get("kty") == kind and curve in {None, key.get("crv")} and key.get("alg", algorithm) == algorithm
    ]
    public = {name: key[name] for name in PUBLIC_PARTS if name in key}
    try:
        return [(kid, algorithm, _require_strong(jwt.PyJWK(public, algorithm))) for algorithm in algorithms]
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
        log.warning("key_not_usable", extra={"kid": kid})
        return []


def _require_strong(key: jwt.PyJWK) -> jwt.PyJWK:
    if key.algorithm_name.startswith("RS") and key.key.key_size < MIN_RSA_BITS:
        raise ValueError(f"an RSA key of fewer than {MIN_RSA_BITS} bits")
    return key
