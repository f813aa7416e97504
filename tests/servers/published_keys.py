"""A server on loopback that publishes keys (JWKS), which a test can rotate, delay or damage; and such keys."""

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
    """A key pair that signs tokens and gives its public key."""

    private: Any
    algorithm: str
    kid: str | None = None

    def sign(self, claims: Mapping[str, Any], **headers: Any) -> str:
        named = {"kid": self.kid} if self.kid is not None else {}
        return jwt.encode(dict(claims), self.private, algorithm=self.algorithm, headers={**named, **headers})

    def public_jwk(self, **overrides: Any) -> dict[str, Any]:
        """The public key as a JWK. Overrides replace its members, or remove them with None."""
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        key: dict[str, Any] = algorithm.to_jwk(self.private.public_key(), as_dict=True)
        key.pop("key_ops", None)
        members = {**key, "kid": self.kid, "alg": self.algorithm, "use": "sig", **overrides}
        return {name: value for name, value in members.items() if value is not None}

    def pem(self) -> bytes:
        """The public key as PEM, which careless verifiers use as a secret."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        pem: bytes = self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return pem


def new_key(algorithm: str, kid: str | None = None, *, bits: int = 2048) -> SigningKey:
    """A new pair of keys for that algorithm."""
    if algorithm in CURVES:
        return SigningKey(ec.generate_private_key(CURVES[algorithm]), algorithm, kid)
    return SigningKey(rsa.generate_private_key(public_exponent=65537, key_size=bits), algorithm, kid)


def encode_part(content: Any) -> str:
    """Bytes or JSON as a part of a token: base64url without padding."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class PublishedKeys(HttpDouble):
    """Publishes keys. `instead` replaces the response; while `hold` is set, clients wait until `let_go`."""

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
        """The number of requests."""
        return len(self.requests)

    def __exit__(self, *raised: object) -> None:
        self.let_go.set()
        super().__exit__(*raised)

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.arrived.release()
        if self.hold:
            request.close_connection = True  # the client may have disconnected by then
            self.let_go.wait(30)
        status, content, headers = self.instead or (200, json.dumps({"keys": self.keys}).encode(), {})
        try:
            self.send(request, status, content, headers)
        except OSError:
            request.close_connection = True  # the client has disconnected
