"""Page tokens: where the next page of a search starts, signed so that clients cannot make or change one.

A token contains an offset, an expiry time, a mark of the query and a signature. It does not reveal tenant or query, and
is valid for that query of that tenant only.
"""

from __future__ import annotations

import hmac
import struct
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable

from toolscript.domain.errors import Invalid

LASTING_SECONDS = 900.0
VERSION = 1
MAX_CHARACTERS = 200
UNKNOWN = "it is not one that this service has given to you"

_FIXED = struct.Struct(">BIQ16s")  # version, offset, expiry time in milliseconds, mark of the query


class PageTokens:
    """Issues and reads page tokens. Processes with the same secret read each other's tokens."""

    def __init__(
        self, secret: bytes, *, lasting_seconds: float = LASTING_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        if not secret:
            raise Invalid("page tokens need a secret to be signed with", details={"field": "page_secret"})
        self._secret = secret
        self._lasting_seconds = lasting_seconds
        self._clock = clock

    def issue(self, tenant: str, question: str, offset: int) -> str:
        """A token for the hits from that offset on."""
        expires = int((self._clock() + self._lasting_seconds) * 1000)
        payload = _FIXED.pack(VERSION, offset, expires, self._mark(tenant, question))
        return _encode(payload + self._sign(b"token", tenant, payload))

    def read(self, token: str, tenant: str, question: str) -> int:
        """The offset in a token. Raises Invalid for a token that was not issued to this tenant, that belongs to another
        search, or that has expired."""
        raw = _decode(token)
        payload, signature = raw[: _FIXED.size], raw[_FIXED.size :]
        if not hmac.compare_digest(signature, self._sign(b"token", tenant, payload)):
            raise _refuse(UNKNOWN)
        version, offset, expires, mark = _FIXED.unpack(payload)
        if version != VERSION:
            raise _refuse(UNKNOWN)
        if not hmac.compare_digest(mark, self._mark(tenant, question)):
            raise _refuse("it belongs to another search; everything but top_k must stay as it was")
        if self._clock() * 1000 >= expires:
            raise _refuse("it has expired")
        return int(offset)

    def _mark(self, tenant: str, question: str) -> bytes:
        return self._sign(b"question", tenant, question.encode("utf-8", "surrogatepass"))[:16]

    def _sign(self, purpose: bytes, tenant: str, message: bytes) -> bytes:
        owner = tenant.encode("utf-8", "surrogatepass")
        parts = b"".join(struct.pack(">Q", len(part)) + part for part in (purpose, owner, message))
        return hmac.digest(self._secret, parts, "sha256")


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(token: str) -> bytes:
    """The bytes of a token, or no bytes (no signature fits them) unless `_encode` writes them in the same way."""
    if len(token) > MAX_CHARACTERS:
        return b""
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except ValueError:
        return b""
    return raw if _encode(raw) == token else b""


def _refuse(why: str) -> Invalid:
    return Invalid(
        f"the page token cannot be used: {why}. Search again without page_token to begin at the first page",
        details={"field": "page_token", "allowed": "the next_page_token of the answer before, for the same search"},
    )
