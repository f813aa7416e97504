"""A server on loopback that publishes keys (JWKS), which a test may rotate, hold back or spoil; and such keys."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.fixtures.http_services import HttpDouble

CURVES: dict[str, ec.EllipticCurve] = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1()}


@dataclass(frozen=True)
class SigningKey:
    """A pair of keys: signs tokens, and says what is published of it."""

    private: Any
    algorithm: str
    kid: str | None = None

    def sign(self, claims: Mapping[str, Any], **headers: Any) -> str:
        named = {"kid": self.kid} if self.kid is not None else {}
        return jwt.encode(dict(claims), self.private, algorithm=self.algorithm, headers={**named, **headers})

    def published(self, **said: Any) -> dict[str, Any]:
        """The public key as a JWK; what is said of it beside may be changed, or left out with None."""
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        key: dict[str, Any] = algorithm.to_jwk(self.private.public_key(), as_dict=True)
        key.pop("key_ops", None)
        told = {**key, "kid": self.kid, "alg": self.algorithm, "use": "sig", **said}
        return {name: value for name, value in told.items() if value is not None}

    def pem(self) -> bytes:
        """The public key in the form that careless verifiers take for a secret."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        pem: bytes = self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return pem


def new_key(algorithm: str, kid: str | None = None, *, bits: int = 2048) -> SigningKey:
    """A new pair of keys for that algorithm."""
    if algorithm in CURVES:
        return SigningKey(ec.generate_private_key(CURVES[algorithm]), algorithm, kid)
    return SigningKey(rsa.generate_private_key(public_exponent=65537, key_size=bits), algorithm, kid)


def unpadded(told: Any) -> str:
    """Bytes or JSON as the parts of a token are written."""
    raw = told if isinstance(told, bytes) else json.dumps(told).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class PublishedKeys(HttpDouble):
    """Publishes keys. `instead` is sent in their place; while `hold` is set, askers wait until the test lets go."""

    def __init__(self, *keys: Mapping[str, Any]) -> None:
        super().__init__()
        self.keys = list(keys)
        self.instead: tuple[int, bytes, dict[str, str]] | None = None
        self.hold = False
        self.arrived = threading.Semaphore(0)
        self.let_go = threading.Event()

    @property
    def url(self) -> str:
        return f"{self.root}/keys.json"

    @property
    def times(self) -> int:
        """How often it was asked."""
        return len(self.requests)

    def __exit__(self, *raised: object) -> None:
        self.let_go.set()
        super().__exit__(*raised)

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.arrived.release()
        if self.hold:
            request.close_connection = True  # whoever asked may be gone by then
            self.let_go.wait(30)
        status, told, headers = self.instead or (200, json.dumps({"keys": self.keys}).encode(), {})
        try:
            self.send(request, status, told, headers)
        except OSError:
            request.close_connection = True  # whoever asked has gone
