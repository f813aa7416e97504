"""The public keys that tokens are verified with: from a URL or a file, kept for a while, read anew when they rotate."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt

from toolscript.domain.errors import Invalid, Unavailable

SETTING = "TOOLSCRIPT_JWT_JWKS"
# Which kind of key, on which curve, an algorithm goes with. A token has no say in this.
KEY_OF: dict[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
}
PUBLIC_PARTS = ("kty", "crv", "n", "e", "x", "y")
LARGEST_ANSWER = 10**6
LEAST_RSA_BITS = 2048
MOST_KEYS = 100
LASTING_SECONDS = 600.0
PAUSE_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 2.0
PATIENCE_SECONDS = 5.0
FOUND = 200

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key, and the one algorithm that it is used with."""

    kid: str | None
    algorithm: str
    key: jwt.PyJWK


class KeySet:
    """The keys of one place. Whoever comes while they are being read waits for that reading; one that fails leaves the
    keys that were known."""

    def __init__(self, place: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises Invalid when the place can be neither a URL nor a file."""
        self._place = place
        self._clock = clock
        self._is_remote = _is_remote(place)
        self._client: httpx.AsyncClient | None = None
        self._reading = asyncio.Lock()
        self._keys: tuple[PublicKey, ...] | None = None
        self._read_at = self._tried_at = self._searched_at = float("-inf")
        self._fault = ""

    async def fitting(self, kid: str | None, algorithm: str, *, anew: bool = False) -> list[jwt.PyJWK]:
        """The keys for that algorithm: those of that id, or all where the token names none. With `anew` they are read
        again first, unless that was done a moment ago. Raises Unavailable when none were ever read."""
        if self._is_due(anew=anew):
            async with self._reading:
                if self._is_due(anew=anew):
                    await self._read(anew=anew)
        if self._keys is None:
            raise Unavailable(
                f"the keys that tokens are verified with cannot be had from {self._shown}: {self._fault}. "
                f"Try again in a moment, or check {SETTING}",
                details={"field": SETTING},
            )
        return [k.key for k in self._keys if k.algorithm == algorithm and kid in {None, k.kid}]

    async def close(self) -> None:
        if self._client:
            await self._client.aclose()

    def _is_due(self, *, anew: bool) -> bool:
        now = self._clock()
        if self._keys is None:
            return now - self._tried_at >= FIRST_PAUSE_SECONDS
        if anew:
            return now - self._searched_at >= PAUSE_SECONDS
        return now - self._read_at >= LASTING_SECONDS and now - self._tried_at >= PAUSE_SECONDS

    async def _read(self, *, anew: bool) -> None:
        try:
            keys = _keys_in(await self._fetched() if self._is_remote else await asyncio.to_thread(self._from_file))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, RecursionError, TimeoutError) as error:
            self._fault = str(error) or f"it took longer than {PATIENCE_SECONDS:g} seconds"
            log.warning("keys_not_read", extra={"place": self._shown, "reason": self._fault})
        else:
            if not keys:
                log.warning("keys_not_usable", extra={"place": self._shown})
            self._keys, self._read_at = keys, self._clock()
        # Not before: whoever comes meanwhile has to wait for the new keys, not do with the old ones.
        self._tried_at = self._clock()
        if anew:
            self._searched_at = self._tried_at

    async def _fetched(self) -> bytes:
        self._client = self._client or httpx.AsyncClient(follow_redirects=False, timeout=PATIENCE_SECONDS)
        # What is not packed cannot unpack to more than it is.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        body = bytearray()
        async with asyncio.timeout(PATIENCE_SECONDS), self._client.stream("GET", self._place, headers=headers) as told:
            if told.status_code != FOUND:
                raise ValueError(f"the answer has status {told.status_code}, and redirects are not followed")
            async for piece in told.aiter_raw():
                body += piece
                if len(body) > LARGEST_ANSWER:
                    raise ValueError(f"the answer is larger than {LARGEST_ANSWER} bytes")
        return bytes(body)

    def _from_file(self) -> bytes:
        with Path(self._place).expanduser().open("rb") as file:
            told = file.read(LARGEST_ANSWER + 1)
        if len(told) > LARGEST_ANSWER:
            raise ValueError(f"the file is larger than {LARGEST_ANSWER} bytes")
        return told

    @property
    def _shown(self) -> str:
        """The place as it may be shown: without a user, a password or a query."""
        if not self._is_remote:
            return self._place
        url = urlsplit(self._place)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def _is_remote(place: str) -> bool:
    is_remote = place.startswith(("http://", "https://"))
    try:
        is_usable = bool(urlsplit(place).hostname) if is_remote else Path(place).expanduser().is_file()
    except (ValueError, OSError, RuntimeError):
        is_usable = False
    if not is_usable:
        raise Invalid(
            f"{SETTING} is not usable: give the http(s) URL of a JSON Web Key Set, or a file that holds one",
            details={"field": SETTING, "allowed": ["http", "https", "a file"]},
        )
    return is_remote


def _keys_in(told: bytes) -> tuple[PublicKey, ...]:
    """Every use that can be made of the keys; those that are no use here are passed over. Raises ValueError."""
    found = json.loads(told)
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list):
        raise ValueError(  # noqa: TRY004
            'it is no JSON Web Key Set: {"keys": [...]} is wanted'
        )
    if len(keys) > MOST_KEYS:
        raise ValueError(f"it holds {len(keys)} keys, and {MOST_KEYS} are the most")
    return tuple(use for key in keys if isinstance(key, Mapping) for use in _uses(key))


def _uses(key: Mapping[str, Any]) -> list[PublicKey]:
    operations = key.get("key_ops", ["verify"])
    kid = key.get("kid")
    if (
        key.get("use", "sig") != "sig"
        or not (isinstance(operations, list) and "verify" in operations)
        or not isinstance(kid, str | None)
    ):
        return []
    wanted = [
        algorithm
        for algorithm, (kind, curve) in KEY_OF.items()
        if key.get("kty") == kind and curve in {None, key.get("crv")} and key.get("alg", algorithm) == algorithm
    ]
    public = {name: key[name] for name in PUBLIC_PARTS if name in key}
    try:
        return [PublicKey(kid, algorithm, _checked(jwt.PyJWK(public, algorithm))) for algorithm in wanted]
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
        log.warning("key_not_usable", extra={"kid": kid})
        return []


def _checked(key: jwt.PyJWK) -> jwt.PyJWK:
    if key.algorithm_name.startswith("RS") and key.key.key_size < LEAST_RSA_BITS:
        raise ValueError(f"fewer than {LEAST_RSA_BITS} bits")
    return key
