"""Say who a client proved to be, and which identities a rule is for.

| in a rule      | matches                                              | `*` stands for                     |
|----------------|------------------------------------------------------|------------------------------------|
| `spiffe://...` | the SPIFFE id in the client's certificate            | any characters of the path         |
| `dns:GLOB`     | a host name in its certificate                       | characters of one label            |
| `subject:GLOB` | its subject as a text (RFC 4514): `CN=web,O=Example` | characters of one attribute        |
| `jwt:GLOB`     | the `sub` of its bearer token (tokens.py)            | any characters                     |
| `anonymous`    | a client that proved nothing                         |                                    |
| `any`          | every client                                         |                                    |

Identities are compared after normalisation, and always as a whole. The trust domain of a SPIFFE id and host names are
in lower case; a `sub` is taken as it is. A certificate with several SPIFFE ids is none of them, since such a
certificate is no SVID. The kinds are kept apart: a common name never counts as a host name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...errors import UsageError
from .globs import STAR, Glob

Kind = Literal["spiffe", "dns", "subject", "jwt"]
RuleKind = Literal["spiffe", "dns", "subject", "jwt", "anonymous", "any"]

SCHEME = "spiffe://"
_TRUST_DOMAIN = re.compile(r"[a-z0-9._-]{1,255}")
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_PATTERN = re.compile(r"[A-Za-z0-9._*-]+")
_MAX_SPIFFE = 2048  # bytes of a SPIFFE id, by its specification
_SPLIT = re.compile(r"((?:[^,+\\]|\\.)*)([,+]|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Identity:
    """One thing that a client proved. Make one with the functions below, which normalise it."""

    kind: Kind
    value: str

    def __str__(self) -> str:
        return self.value if self.kind == "spiffe" else f"{self.kind}:{self.value}"


def spiffe(uri: str) -> Identity | None:
    """Return the SPIFFE id in this URI; None if it is none, such as one with a port, a query or an empty segment."""
    domain, path = _spiffe_parts(uri)
    if domain is None or len(uri) > _MAX_SPIFFE or not _TRUST_DOMAIN.fullmatch(domain):
        return None
    return Identity("spiffe", f"{SCHEME}{domain}{path}") if _is_path(path, _SEGMENT) else None


def dns(host: str) -> Identity | None:
    """Return the identity of a host name; None for an empty one."""
    name = host.removesuffix(".").lower()
    return Identity("dns", name) if name and name.isascii() else None


def subject(text: str) -> Identity | None:
    """Return the identity of a certificate subject in the form of RFC 4514; None for an empty one."""
    return Identity("subject", text) if text else None


def proved(uris: Sequence[str], hosts: Iterable[str], subject_text: str) -> tuple[Identity, ...]:
    """Return what a verified certificate with these names proves."""
    ids = [uri for uri in uris if uri[: len(SCHEME)].lower() == SCHEME]
    found = [spiffe(ids[0]) if len(ids) == 1 and len(uris) == 1 else None]
    found += [dns(host) for host in hosts]
    found.append(subject(subject_text))
    return tuple(dict.fromkeys(identity for identity in found if identity is not None))


def parse_identity(text: str) -> tuple[Identity, ...]:
    """Read an identity as people write it: `spiffe://...`, `dns:...`, `subject:...`, `jwt:...` or `anonymous`.

    Raises UsageError.
    """
    if text == "anonymous":
        return ()
    kind, colon, value = text.partition(":")
    found: Identity | None = None
    if text[: len(SCHEME)].lower() == SCHEME:
        found = spiffe(text)
    elif colon and kind == "dns":
        found = dns(value)
    elif colon and kind == "subject":
        found = subject(value)
    elif colon and kind == "jwt":
        found = Identity("jwt", value) if value else None
    else:
        raise UsageError(f"{text!r} is no identity: {_KINDS}, or anonymous")
    if found is None:
        raise UsageError(f"{text!r} is no valid identity of its kind")
    return (found,)


_KINDS = "write spiffe://DOMAIN/PATH, dns:HOST, subject:CN=NAME,O=..., jwt:SUB"


class IdentityGlob:
    """Which identities one rule is for. Two are equal if they are written alike."""

    __slots__ = ("_glob", "_parts", "kind", "text")

    def __init__(self, text: str) -> None:
        """Raises UsageError."""
        self._glob = Glob("")
        self._parts: tuple[tuple[Glob, str], ...] = ()  # labels of a host, or attributes of a subject
        kind, _, value = text.partition(":")
        self.kind: RuleKind
        if text == "any":
            self.kind = "any"
        elif text == "anonymous":
            self.kind = "anonymous"
        elif text[: len(SCHEME)].lower() == SCHEME:
            self.kind = "spiffe"
            self._glob = _spiffe_glob(text)
            text = self._glob.text
        elif kind == "dns" and value:
            self.kind = "dns"
            text = f"dns:{value.removesuffix('.').lower()}"
            self._parts = tuple((Glob(label), ".") for label in text[4:].split("."))
        elif kind == "subject" and value:
            self.kind = "subject"
            self._parts = tuple(_attributes(value))
        elif kind == "jwt" and value:
            self.kind = "jwt"
            self._glob = Glob(value)
        else:
            raise UsageError(f"{text!r} is no identity: {_KINDS}, each with * where it may vary, anonymous, or any")
        self.text = text

    @property
    def whole(self) -> Glob:
        """A pattern that all identities match which this one is for, and perhaps others of its kind."""
        return Glob(self.text.partition(":")[2]) if self._parts else self._glob

    def matches(self, identities: Sequence[Identity]) -> bool:
        """Whether a client that proved these identities, or none, is meant."""
        if self.kind == "any":
            return True
        if self.kind == "anonymous":
            return not identities
        return any(identity.kind == self.kind and self._is(identity.value) for identity in identities)

    def _is(self, value: str) -> bool:
        """Whether a value of the glob's own kind matches."""
        if self.kind == "dns":
            return self._match_parts([(label, ".") for label in value.split(".")])
        if self.kind == "subject":
            return self._match_parts([(glob.text, end) for glob, end in _attributes(value)])
        return self._glob.matches(value)

    def _match_parts(self, parts: Sequence[tuple[str, str]]) -> bool:
        """Whether there are as many parts, and each matches."""
        if len(parts) != len(self._parts):
            return False
        pairs = zip(self._parts, parts, strict=True)
        return all(glob.matches(part) and end == other for (glob, end), (part, other) in pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityGlob) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"IdentityGlob({self.text!r})"


def _spiffe_parts(uri: str) -> tuple[str | None, str]:
    """Split a URI into trust domain, in lower case, and path; None if it has another scheme."""
    if uri[: len(SCHEME)].lower() != SCHEME:
        return None, ""
    domain, slash, path = uri[len(SCHEME) :].partition("/")
    return domain.lower(), slash + path


def _is_path(path: str, segment: re.Pattern[str]) -> bool:
    """Whether a path is empty, or consists of segments that are neither empty nor relative."""
    if not path:
        return True
    return all(segment.fullmatch(each) and each not in (".", "..") for each in path[1:].split("/"))


def _spiffe_glob(text: str) -> Glob:
    """Return the pattern of a SPIFFE id. Its trust domain is written out: no other authority vouches for its ids."""
    domain, path = _spiffe_parts(text)
    if domain is None or STAR in domain:
        raise UsageError(f"{text!r}: write the trust domain out, as in spiffe://example.com/*")
    if not _TRUST_DOMAIN.fullmatch(domain) or not _is_path(path, _PATTERN):
        raise UsageError(f"{text!r} can match no SPIFFE id: spiffe://DOMAIN/PATH, of letters, digits, '.', '-' and '_'")
    return Glob(f"{SCHEME}{domain}{path}")


def _attributes(text: str) -> list[tuple[Glob, str]]:
    """Split a subject at the separators that are not escaped: its attributes, each with what follows it."""
    found: list[tuple[Glob, str]] = []
    at = 0
    while at <= len(text):
        match = _SPLIT.match(text, at)
        if match is None:  # a lone backslash at the end
            found.append((Glob(text[at:]), ""))
            break
        found.append((Glob(match[1]), match[2]))
        if not match[2]:
            break
        at = match.end()
    return found
