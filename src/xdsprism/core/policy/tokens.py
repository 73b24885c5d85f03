"""Decide whether a bearer token proves who a client is, and for how long (RFC 7519, RFC 8725).

A token comes with each call, in its `authorization`. What is looked at, in this order:

| what            | accepted                                                                              |
|-----------------|---------------------------------------------------------------------------------------|
| authorization   | one value, `Bearer TOKEN`, of MAX_TOKEN characters at most                            |
| form            | a signed JWT in its compact form, without `crit`, as no extension is known here       |
| algorithm, key  | a key of the operator's set with the token's `kid`, and an algorithm that is its own  |
| signature       | right                                                                                 |
| exp, nbf, iat   | `exp` is there; the times are right, give or take LEEWAY                              |
| aud, iss        | one of the policy's audiences; one of its issuers, if it lists any                    |
| sub             | there, and a text: this is the identity                                               |

No key is ever taken from a token, nor from where it points to (`jwk`, `jku`, `x5c`, `x5u`).

The keys come from outside (sources/jwks.py): a `SigningKey` has the function that checks a signature. All else is
decided here, with the time as an argument. A refusal never quotes the token.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import inf, isfinite
from typing import Any, Literal

from ...errors import PeerError
from ..model.limits import is_utf8
from .identity import Identity

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

MAX_TOKEN = 8 * 1024  # characters: gRPC's clients and servers send and take no more metadata than 8 kB by default
MAX_SUBJECT = 2 * 1024  # characters, as many as a SPIFFE id may have
LEEWAY = 30.0  # seconds by which clocks may differ
LONGEST = 366 * 86400.0  # seconds after which even a call whose token is valid for longer has to come back
TRIES = 4  # keys that are tried for one token
REMEMBERED = 8 * 1024  # tokens whose signature is known to be right

_FORM = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")

# Why a token is refused: a label of metrics.
RefusedFor = Literal[
    "header", "form", "algorithm", "key", "signature", "expired", "early", "audience", "issuer", "claims", "rate"
]


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key that the operator trusts.

    kid          the key's name; None: it has none, and may be meant by any token
    thumbprint   tells it from all other keys, whatever their names
    algorithms   those of ALGORITHMS that it may be used with
    verifies     whether a signature is right: (algorithm, what is signed, signature)
    """

    kid: str | None
    thumbprint: str
    algorithms: frozenset[str]
    verifies: Callable[[str, bytes, bytes], bool]


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who a valid token says its bearer is. The token itself is not kept."""

    identity: Identity
    expires: float  # seconds since the epoch, with LEEWAY
    audiences: tuple[str, ...]
    issuer: str | None
    thumbprint: str  # of the key that signed it
    algorithm: str


@dataclass(frozen=True, slots=True)
class TokenRefusal:
    """Why a token proves nothing. The message is for its bearer, and quotes none of it."""

    cause: RefusedFor
    message: str
    checks: int = 0  # signatures that were checked, and were wrong


@dataclass(frozen=True, slots=True)
class _Signed:
    """What a token says that has the right signature."""

    claims: Mapping[str, Any]
    thumbprint: str
    algorithm: str


class Tokens:
    """Which tokens a policy accepts."""

    __slots__ = ("_audiences", "_issuers", "_keys", "_verified")

    def __init__(self, keys: Sequence[SigningKey], audiences: Iterable[str], issuers: Iterable[str] = ()) -> None:
        """`issuers`: none of them means that any may be."""
        self._keys = tuple(keys)
        self._audiences = frozenset(audiences)
        self._issuers = frozenset(issuers)
        self._verified: dict[bytes, _Signed] = {}  # by digest, in the order of the last use

    @property
    def count(self) -> int:
        """Return how many keys there are."""
        return len(self._keys)

    @property
    def remembered(self) -> int:
        """Return how many tokens are known to have the right signature."""
        return len(self._verified)

    def judge(self, authorization: Sequence[str], now: float, *, may_check: bool = True) -> Bearer | TokenRefusal:
        """Say who the bearer of a token is. `may_check`: False if no more signatures may be checked for this client."""
        if len(authorization) != 1:
            return TokenRefusal("header", f"the call has {len(authorization)} authorization headers: send one")
        scheme, _, token = authorization[0].partition(" ")
        token = token.strip(" ")
        if scheme.lower() != "bearer" or not token:
            return TokenRefusal("header", "the authorization is no bearer token: send `Bearer TOKEN`")
        if len(token) > MAX_TOKEN:
            return TokenRefusal("form", f"the token has {len(token)} characters; at most {MAX_TOKEN} are accepted")
        found = self._known(token, may_check=may_check)
        return found if isinstance(found, TokenRefusal) else self._bearer(found, now)

    def upholds(self, bearer: Bearer) -> bool:
        """Whether a token that was accepted before, by another policy perhaps, would be accepted but for its time."""
        if self._audiences.isdisjoint(bearer.audiences) or not self._is_issuer(bearer.issuer):
            return False
        return any(key.thumbprint == bearer.thumbprint and bearer.algorithm in key.algorithms for key in self._keys)

    def _is_issuer(self, issuer: str | None) -> bool:
        return not self._issuers or issuer in self._issuers

    # -- the signature

    def _known(self, token: str, *, may_check: bool) -> _Signed | TokenRefusal:
        """Return what a token says if its signature is right. Equal tokens are checked once."""
        form = _FORM.fullmatch(token)
        if form is None:
            return TokenRefusal("form", "the token is no signed JWT in the compact form")
        digest = sha256(token.encode()).digest()
        found = self._verified.pop(digest, None)
        if found is None:
            checked = self._checked(form[1], form[2], form[3], may_check=may_check)
            if isinstance(checked, TokenRefusal):
                return checked
            found = checked
            if len(self._verified) >= REMEMBERED:
                del self._verified[next(iter(self._verified))]
        self._verified[digest] = found
        return found

    def _checked(self, head: str, body: str, signature: str, *, may_check: bool) -> _Signed | TokenRefusal:
        """Find the key of a token, and check its signature."""
        sealed, header = _decoded(signature), _header(head)
        if isinstance(header, TokenRefusal):
            return header
        if sealed is None:
            return TokenRefusal("form", "the token is no signed JWT: its signature can't be read")
        algorithm, kid = header
        keys = self._candidates(algorithm, kid)
        if not keys:
            return TokenRefusal("key", "no key of the server's JWKS has the token's kid and algorithm")
        if not may_check:
            return TokenRefusal("rate", "too many bad tokens came from this address: try again in a second")
        content = f"{head}.{body}".encode()
        for key in keys[:TRIES]:
            if key.verifies(algorithm, content, sealed):
                return _Signed(_kept(_mapping(_decoded(body)) or {}), key.thumbprint, algorithm)
        if len(keys) > TRIES:
            text = f"the token's signature fits none of the first {TRIES} of {len(keys)} keys: give the token a kid"
            return TokenRefusal("signature", text, TRIES)
        return TokenRefusal("signature", "the token's signature is wrong", len(keys))

    def _candidates(self, algorithm: str, kid: str | None) -> list[SigningKey]:
        """Return the keys that may have signed a token: those of its name come first, then those without a name."""
        keys = [key for key in self._keys if algorithm in key.algorithms]
        if kid is None:
            return keys
        return [key for key in keys if key.kid == kid] + [key for key in keys if key.kid is None]

    # -- the claims

    def _bearer(self, found: _Signed, now: float) -> Bearer | TokenRefusal:
        """Judge the claims of a token whose signature is right."""
        claims = found.claims
        subject, audiences, issuer = claims.get("sub"), _texts(claims.get("aud")), claims.get("iss")
        times = {name: _seconds(claims[name]) for name in ("exp", "nbf", "iat") if name in claims}
        expires = times.get("exp")
        wrong = [name for name, at in times.items() if at is None]
        if expires is None or wrong:
            name = wrong[0] if wrong else "exp"
            return TokenRefusal("claims", f"the token has no {name} that is a number of seconds")
        if now >= expires + LEEWAY:
            return TokenRefusal("expired", "the token has expired: come back with a fresh one")
        if max(times.get("nbf") or -inf, times.get("iat") or -inf) > now + LEEWAY:
            return TokenRefusal("early", "the token is not valid yet: its nbf or iat is in the future")
        if self._audiences.isdisjoint(audiences):
            return TokenRefusal("audience", "the token is not for this server: its aud has none of the audiences here")
        if (issuer is not None and not isinstance(issuer, str)) or not self._is_issuer(issuer):
            return TokenRefusal("issuer", "the token's iss is no issuer that is trusted here")
        if not isinstance(subject, str) or not subject or len(subject) > MAX_SUBJECT or not is_utf8(subject):
            return TokenRefusal("claims", f"the token has no sub that is a text of at most {MAX_SUBJECT} characters")
        return Bearer(Identity("jwt", subject), expires + LEEWAY, audiences, issuer, found.thumbprint, found.algorithm)


class Standing:
    """Whether what a call proved when it began still holds.

    A stream may outlive its token, and a policy may change what tokens are accepted. Then the call ends. Its client
    keeps what it has, and comes back with another token.
    """

    __slots__ = ("_bearer", "_is_lost", "_lapses")

    def __init__(self, bearer: Bearer | None, now: float, wall: float) -> None:
        """`bearer`: None if there was an authorization that no policy asked for. `now` is the clock of the call."""
        self._bearer = bearer
        self._lapses = now + min(bearer.expires - wall, LONGEST) if bearer is not None else inf
        self._is_lost = False

    def is_over(self, now: float) -> bool:
        """Whether the call has to end."""
        return self._is_lost or now >= self._lapses

    def check(self, now: float) -> None:
        """Raise PeerError if the call has to end."""
        if self._is_lost:
            raise PeerError("UNAUTHENTICATED", "the server accepts other tokens now: come back")
        if now >= self._lapses:
            raise PeerError("UNAUTHENTICATED", "the token has expired: come back with a fresh one")

    def before(self, due: float | None) -> float | None:
        """Return when to look again: at `due`, or when the token expires."""
        if self._lapses == inf:
            return due
        return self._lapses if due is None else min(due, self._lapses)

    def review(self, tokens: Tokens | None) -> bool:
        """Judge the call by another policy's tokens. Return whether it has to end."""
        if self._bearer is None:
            self._is_lost = tokens is not None
        else:
            self._is_lost = tokens is None or not tokens.upholds(self._bearer)
        return self._is_lost


def _header(head: str) -> tuple[str, str | None] | TokenRefusal:
    """Return the algorithm of a token, and the name of its key."""
    header = _mapping(_decoded(head))
    if header is None:
        return TokenRefusal("form", "the token is no signed JWT: its header can't be read")
    if "crit" in header:
        return TokenRefusal("form", "the token's header has `crit`, and no such extension is known here")
    algorithm, kid = header.get("alg"), header.get("kid")
    if kid is not None and not isinstance(kid, str):
        return TokenRefusal("form", "the token's kid is no text")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        return TokenRefusal("algorithm", f"the token's algorithm is none that is accepted: {', '.join(ALGORITHMS)}")
    return algorithm, kid


def _decoded(part: str) -> bytes | None:
    """Decode a part of a token; None if it is not the one right spelling of its bytes (RFC 7515, appendix C)."""
    try:
        found = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        return None
    return found if urlsafe_b64encode(found).rstrip(b"=") == part.encode() else None


def _mapping(data: bytes | None) -> Mapping[str, Any] | None:
    """Read a JSON object; None if it is none, or too deep to be read."""
    try:
        found = json.loads(data.decode()) if data is not None else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _kept(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims that are judged: others may be large."""
    return {name: claims[name] for name in ("sub", "aud", "iss", "exp", "nbf", "iat") if name in claims}


def _texts(claim: object) -> tuple[str, ...]:
    """Return the audiences: one text, or a list of them."""
    if isinstance(claim, str):
        return (claim,)
    return tuple(each for each in claim if isinstance(each, str)) if isinstance(claim, list) else ()


def _seconds(claim: object) -> float | None:
    """Return a time; None if it is none, or not finite."""
    if not isinstance(claim, int | float) or isinstance(claim, bool):
        return None
    try:
        found = float(claim)
    except OverflowError:
        return None
    return found if isfinite(found) else None
