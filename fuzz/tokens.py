"""What clients prove with bearer tokens, and the keys by which they are checked."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from hashlib import sha256

from xdsprism.core.policy.tokens import ALGORITHMS, Bearer, SigningKey, Tokens
from xdsprism.errors import ConfigError
from xdsprism.sources.jwks import parse_keys

from .script import Script
from .sound import must
from .texts import problems, text_of

NOW = 1_000_000.0
AUDIENCE, ISSUER = "xds", "https://issuer.example"


def signature(algorithm: str, content: bytes) -> bytes:
    """In the place of cryptography: nothing that chance finds."""
    return sha256(algorithm.encode() + b"\0" + content).digest()


def _verifies(algorithm: str, content: bytes, given: bytes) -> bool:
    return given == signature(algorithm, content)


KEYS = (
    SigningKey("one", "t1", frozenset({"RS256", "PS256"}), _verifies),
    SigningKey(None, "t2", frozenset({"ES256"}), _verifies),
)
HEADERS: tuple[object, ...] = (
    {"alg": "RS256", "kid": "one"},
    {"alg": "ES256"},
    {"alg": "none"},
    {"alg": "HS256"},
    {"alg": "RS256", "kid": 7},
    {"alg": "PS256", "crit": ["x"]},
    {"alg": ["RS256"]},
    [],
    "RS256",
)
TIMES: tuple[object, ...] = (NOW + 60, NOW - 60, 0, -1, 1e308, 10**400, "1", True, None, [NOW], NOW + 1e9)
TEXTS: tuple[object, ...] = (
    "a",
    "",
    AUDIENCE,
    [AUDIENCE, 3],
    ISSUER,
    "x" * 3_000,
    {"a": 1},
    None,
    ["b"],
    "a\ud800",
    "ü",
)


def _claims(script: Script) -> object:
    if script.byte() < 8:
        return script.choice(TEXTS)
    found: dict[str, object] = {"sub": "a", "aud": AUDIENCE, "iss": ISSUER, "exp": NOW + 60}
    for _ in range(script.byte() % 5):
        name = script.choice(("sub", "aud", "iss", "exp", "nbf", "iat", "other"))
        value = script.choice(TIMES if name in ("exp", "nbf", "iat") else TEXTS)
        found[name] = value
        if value is None:
            del found[name]
    return found


def _part(content: bytes, script: Script) -> str:
    encoded = urlsafe_b64encode(content).rstrip(b"=").decode()
    kind = script.byte()
    return encoded + ("=" if kind == 1 else "A" if kind == 2 else "\n" if kind == 3 else "")


def tokens(data: bytes) -> None:
    """Headers of calls: nobody is anybody but by a right signature, for us, by a trusted issuer, in its time."""
    script = Script(data)
    how = script.byte()
    is_right = False
    if how & 1:
        header, claims = json.dumps(script.choice(HEADERS)), json.dumps(_claims(script))
        content = f"{_part(header.encode(), script)}.{_part(claims.encode(), script)}"
        algorithm = script.choice(("RS256", "ES256", "PS256", "HS256", "none"))
        signed = signature(algorithm, content.encode())
        is_right = script.byte() != 1
        token = f"{content}.{_part(signed if is_right else signed[:-1], script)}"
        given = [script.choice(("Bearer ", "bearer  ", "Basic ", "")) + token]
    else:
        given = [script.rest().decode("utf-8", "surrogateescape")]
    if how & 2:
        given = given * (how >> 6)
    accepted = Tokens(KEYS, [AUDIENCE], [ISSUER])
    found = [accepted.judge(given, NOW) for _ in range(2)]
    must(found[0] == found[1] or not isinstance(found[0], Bearer), "a token has another meaning the second time")
    for each in found:
        if isinstance(each, Bearer):
            must(is_right, "a token without a right signature is accepted")
            must(each.algorithm in ALGORITHMS, "an algorithm that is not accepted")
            must(AUDIENCE in each.audiences and each.issuer == ISSUER, "a token for others, or by others, is accepted")
            must(NOW <= each.expires < float("inf"), "a token is accepted beyond its time")
            must(accepted.upholds(each), "a token that was accepted would not be")
            str(each.identity).encode()
        else:
            each.message.encode()
            must(len(each.message) < 400, "a refusal that repeats what came")
    must(accepted.remembered <= 1, "tokens are remembered twice")


def jwks(data: bytes) -> None:
    """A file of keys."""
    text = text_of(data)
    try:
        keys = parse_keys(data, "k.json")
    except ConfigError as error:
        must(error.problems, "a file that is refused without a problem")
        problems(text or "", "k.json", list(error.problems))
        return
    must(text is not None, "keys that are not UTF-8")
    for key in keys:
        must(key.algorithms and key.algorithms <= set(ALGORITHMS), "a key without an algorithm that is accepted")
        for algorithm in key.algorithms:
            for given in (b"", b"x", bytes(64), bytes(256)):
                must(not key.verifies(algorithm, b"x", given), "a signature of nobody is right")
