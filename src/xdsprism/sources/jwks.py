"""Reads the public keys that verify bearer tokens from a JWKS file (RFC 7517); core/policy/tokens.py has the rest.

Every key is checked, and all problems are reported at once, with file and line. No message repeats a value: a file that
has a secret in it by mistake must not spread it.

PyJWT reads the keys and checks the signatures. It is imported with the first file, as that takes a tenth of a second.
Its `decode` is not used: it asks the clock itself, and takes a millisecond for a long token.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.policy.tokens import ALGORITHMS, SigningKey
from ..errors import ConfigError, Problem, show_path
from ..file_reading import read_file
from ..messages.document import Document, MalformedError
from . import strict_json

if TYPE_CHECKING:
    from jwt import PyJWK

MAX_BYTES = 256 * 1024
MAX_KEYS = 100
MIN_RSA, MAX_RSA = 2048, 8192  # bits: fewer are broken, and more take long

# For each kind of key: the members that it consists of.
_PARTS = {"RSA": ("e", "n"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "oth")
_BY_CURVE = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA", "Ed448": "EdDSA"}
_RSA = frozenset(name for name in ALGORITHMS if name[:2] in ("RS", "PS"))
_USES = (None, "sig", "jwt-svid")  # the last one is that of SPIFFE's trust bundles
_ENCRYPTION = ("RSA-OAEP", "RSA1_5", "ECDH-ES")  # how the names of algorithms begin whose keys sign nothing


def load_keys(file: str) -> list[SigningKey]:
    """Read the keys of a JWKS file. Raises ConfigError; OSError if it can't be read."""
    return parse_keys(read_file(file, MAX_BYTES), file)


def parse_keys(data: bytes, file: str) -> list[SigningKey]:
    """Read the keys of a JWKS. Raises ConfigError."""
    if len(data) > MAX_BYTES:
        raise ConfigError([Problem(f"a JWKS has at most {MAX_BYTES:,} bytes", file)])
    try:
        documents = strict_json.load(data.decode())
    except UnicodeDecodeError:
        raise ConfigError([Problem("the JWKS is not UTF-8", file)]) from None
    except MalformedError as error:
        raise ConfigError([Problem(error.message, file, error.line)]) from None
    if not documents:
        raise ConfigError([Problem('the file is empty: a JWKS is `{"keys": [...]}`', file, 1)])
    reader = _Reader(documents[0], file)
    keys = reader.read()
    if reader.problems:
        raise ConfigError(reader.problems)
    return keys


class _UnusableError(Exception):
    """What is wrong with a key, and in which of its members."""

    def __init__(self, message: str, member: str = "") -> None:
        super().__init__(message)
        self.member = member


class _Reader:
    """Reads one JWKS, and notes every problem in it."""

    def __init__(self, document: Document, file: str) -> None:
        self.problems: list[Problem] = []
        self._document = document
        self._file = file

    def read(self) -> list[SigningKey]:
        root = self._document.root
        listed = root.get("keys") if isinstance(root, dict) else None
        if not isinstance(listed, list):
            self._wrong((), 'there is no list of keys: a JWKS is `{"keys": [...]}`')
            return []
        if len(listed) > MAX_KEYS:
            self._wrong(("keys",), f"a JWKS has at most {MAX_KEYS} keys, and here are {len(listed)}")
            return []
        found: list[SigningKey] = []
        for number, jwk in enumerate(listed):
            try:
                key = _key_of(jwk)
            except _UnusableError as error:
                self._wrong(("keys", number, *([error.member] if error.member else [])), str(error))
            else:
                found += [key] if key is not None else []
        if not found and not self.problems:
            self._wrong(("keys",), "there is no key here that verifies signatures")
        return found

    def _wrong(self, path: tuple[str | int, ...], message: str) -> None:
        self.problems.append(Problem(message, self._file, self._document.line_of(path), show_path(path)))


def _key_of(jwk: object) -> SigningKey | None:
    """Read one key; None for one that is not for signatures. Raises _UnusableError."""
    if not isinstance(jwk, dict):
        raise _UnusableError("a key is an object")
    kind = jwk.get("kty")
    if kind == "oct":
        raise _UnusableError(
            "this is a symmetric key: whoever verifies with it can sign, too. Use a key pair, and list the public key",
            "kty",
        )
    private = next((name for name in _PRIVATE if name in jwk), None)
    if private is not None:
        raise _UnusableError(
            "this is a private key: list the public key only, and take care who may have read this file", private
        )
    if not isinstance(kind, str) or kind not in _PARTS:
        raise _UnusableError(f"unknown key type: there are {', '.join(_PARTS)}", "kty")
    if jwk.get("use") not in _USES or not _may_verify(jwk):
        return None
    kid = jwk.get("kid")
    if kid is not None and (not isinstance(kid, str) or not kid):
        raise _UnusableError("the kid is a text", "kid")
    algorithms = _algorithms_of(jwk)
    if not algorithms:
        return None
    return SigningKey(kid, _thumbprint(jwk), algorithms, _verifier(jwk, sorted(algorithms)))


def _may_verify(jwk: Mapping[str, Any]) -> bool:
    operations = jwk.get("key_ops")
    return not isinstance(operations, list) or "verify" in operations


def _algorithms_of(jwk: Mapping[str, Any]) -> frozenset[str]:
    """Return what a key may be used with: its `alg`, or whatever fits it; nothing for a key of encryption.

    An algorithm is never chosen by the token alone (RFC 8725, section 3.1).
    """
    if jwk["kty"] == "RSA":
        fitting = _RSA
    else:
        curve = jwk.get("crv")
        if not isinstance(curve, str) or curve not in _BY_CURVE or (jwk["kty"] == "EC") != curve.startswith("P-"):
            raise _UnusableError(f"the curve is none for signatures of this type: {', '.join(_BY_CURVE)}", "crv")
        fitting = frozenset((_BY_CURVE[curve],))
    stated = jwk.get("alg")
    if stated is None:
        return fitting
    if not isinstance(stated, str):
        raise _UnusableError("the alg is a text", "alg")
    if stated.startswith(_ENCRYPTION):
        return frozenset()
    if stated not in fitting:
        raise _UnusableError(f"this alg does not fit the key: {', '.join(sorted(fitting))}", "alg")
    return frozenset((stated,))


def _thumbprint(jwk: Mapping[str, Any]) -> str:
    """Return a digest of what the key consists of (RFC 7638)."""
    parts = {name: jwk.get(name) for name in ("kty", *_PARTS[jwk["kty"]])}
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _verifier(jwk: Mapping[str, Any], algorithms: list[str]) -> Callable[[str, bytes, bytes], bool]:
    """Return the function that checks signatures of a key. Raises _UnusableError."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey  # noqa: PLC0415
    from jwt import PyJWK  # noqa: PLC0415 # imported with the first JWKS
    from jwt.exceptions import PyJWTError  # noqa: PLC0415

    parts = {name: jwk.get(name) for name in ("kty", *_PARTS[jwk["kty"]])}
    missing = [name for name, value in parts.items() if not isinstance(value, str)]
    if missing:
        raise _UnusableError(f"the key has no {missing[0]} that is a text")
    try:
        keys: dict[str, PyJWK] = {name: PyJWK(parts, name) for name in algorithms}
    except (PyJWTError, ValueError, TypeError):  # their texts repeat the key
        raise _UnusableError(f"the key can't be read: check {', '.join(_PARTS[jwk['kty']])}") from None
    public = keys[algorithms[0]].key
    if isinstance(public, RSAPublicKey) and not MIN_RSA <= public.key_size <= MAX_RSA:
        raise _UnusableError(f"the key has {public.key_size} bits: {MIN_RSA} to {MAX_RSA} are accepted", "n")

    def verifies(algorithm: str, content: bytes, signature: bytes) -> bool:
        key = keys[algorithm]
        try:
            return bool(key.Algorithm.verify(content, key.key, signature))
        except ValueError:  # a signature that is none of its kind
            return False

    return verifies
