"""Page tokens: where the next page of one tenant's search begins, signed so that nobody can make or alter one.

A token holds an offset, a time and two signatures. It tells neither the tenant nor the question, and it is good for
that question of that tenant alone.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable

from toolscript.domain.errors import Invalid

LASTING_SECONDS = 900.0
VERSION = 1
MAX_CHARACTERS = 200

_FIXED = struct.Struct(">BIQ16s")  # version, offset, the millisecond it expires, which question
_SIGNATURE = hashlib.sha256().digest_size


class PageTokens:
    """Issues page tokens and reads them back. Whoever has the same secret reads the same tokens."""

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
        return _text(payload + self._signature(tenant, payload))

    def read(self, token: str, tenant: str, question: str) -> int:
        """The offset that a token stands for.

        Raises Invalid for a token that is not ours (another tenant's is none of ours either), that belongs to another
        search, or that has expired.
        """
        raw = _bytes(token)
        payload, signature = raw[: _FIXED.size], raw[_FIXED.size :]
        if not hmac.compare_digest(signature, self._signature(tenant, payload)):
            raise _refuse("it is not one that this service has given to you")
        version, offset, expires, mark = _FIXED.unpack(payload)
        if version != VERSION:
            raise _refuse("it is not one that this service has given to you")
        if not hmac.compare_digest(mark, self._mark(tenant, question)):
            raise _refuse("it belongs to another search; everything but top_k must stay as it was")
        if self._clock() * 1000 >= expires:
            raise _refuse("it has expired")
        return int(offset)

    def _mark(self, tenant: str, question: str) -> bytes:
        return self._sign(b"question", tenant, question.encode("utf-8", "surrogatepass"))[:16]

    def _signature(self, tenant: str, payload: bytes) -> bytes:
        return self._sign(b"token", tenant, payload)

    def _sign(self, purpose: bytes, tenant: str, message: bytes) -> bytes:
        owner = tenant.encode("utf-8", "surrogatepass")
        parts = b"".join(struct.pack(">Q", len(part)) + part for part in (purpose, owner, message))
        return hmac.digest(self._secret, parts, "sha256")


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(token: str) -> bytes:
    """What the text stands for; another spelling of the same bytes is no token of ours."""
    foreign = _refuse("it is not one that this service has given to you")
    if len(token) > MAX_CHARACTERS or not token.isascii():
        raise foreign
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except NotBase64:
        raise foreign from None
    if len(raw) != _FIXED.size + _SIGNATURE or _text(raw) != token:
        raise foreign
    return raw


def _refuse(why: str) -> Invalid:
    return Invalid(
        f"the page token cannot be used: {why}. Search again without page_token to begin at the first page",
        details={"field": "page_token", "allowed": "the next_page_token of the answer before, for the same search"},
    )
