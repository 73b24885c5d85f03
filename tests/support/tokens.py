"""Bearer tokens for tests, good and bad, and the keys that sign them."""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt.algorithms import get_default_algorithms

AUDIENCE = "xds.example.com"
MADE = {
    "RS": lambda: rsa.generate_private_key(65537, 2048),
    "PS": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ES512": lambda: ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
    "Ed448": ed448.Ed448PrivateKey.generate,
}


@cache
def _algorithms() -> dict[str, Any]:
    return get_default_algorithms()


def encoded(data: bytes) -> str:
    """A part of a token."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Signer:
    """A key pair."""

    def __init__(self, kid: str | None = "one", algorithm: str = "ES256", *, curve: str = "") -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.key: Any = MADE[curve or (algorithm[:2] if algorithm[:2] in MADE else algorithm)]()
        self._how = _algorithms()[algorithm]

    @property
    def pem(self) -> bytes:
        """The public key, as an attacker may have it."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return bytes(self.key.public_key().public_bytes(serialization.Encoding.PEM, form))

    def jwk(self, **more: Any) -> dict[str, Any]:
        """The public key as it is in a JWKS."""
        found: dict[str, Any] = dict(self._how.to_jwk(self.key.public_key(), as_dict=True))
        found.pop("key_ops", None)
        return found | ({"kid": self.kid} if self.kid is not None else {}) | more

    def private_jwk(self) -> dict[str, Any]:
        return dict(self._how.to_jwk(self.key, as_dict=True))

    def sign(self, claims: bytes, **header: Any) -> str:
        """A token of any claims, with any header."""
        names = {"alg": self.algorithm, "typ": "JWT"} | ({"kid": self.kid} if self.kid is not None else {}) | header
        kept = {name: each for name, each in names.items() if each is not None}
        content = f"{encoded(json.dumps(kept).encode())}.{encoded(claims)}"
        return f"{content}.{encoded(self._how.sign(content.encode(), self.key))}"

    def token(self, subject: Any = "web", *, now: float | None = None, header: Any = None, **claims: Any) -> str:
        """A good token for an hour, but for what is said of it; None leaves a claim out."""
        at = time.time() if now is None else now
        said = {"sub": subject, "aud": AUDIENCE, "iat": int(at), "exp": int(at) + 3600} | claims
        kept = {name: each for name, each in said.items() if each is not None}
        return self.sign(json.dumps(kept).encode(), **(header or {}))


def write_jwks(path: Path, *signers: Signer | dict[str, Any]) -> Path:
    """A JWKS with the public keys of these, put in place at once."""
    keys = [each.jwk() if isinstance(each, Signer) else each for each in signers]
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(json.dumps({"keys": keys}, indent=1))
    draft.replace(path)
    return path


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """The metadata of a call."""
    return (("authorization", f"Bearer {token}"),)
