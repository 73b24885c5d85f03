"""Reads names and validity times from certificates, in DER or PEM. It verifies nothing: OpenSSL and BoringSSL do.

The `ssl` module parses only a peer's certificate, and grpc returns bytes. So both engines read identities here, and so
does everything that needs to know when the server's own certificate expires.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from ..core.policy.identity import Identity, proved

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")

# Tags of DER (X.690), and the context-specific tags that RFC 5280 defines for certificates.
_SEQUENCE, _SET, _OID, _OCTETS, _BOOLEAN = 0x30, 0x31, 0x06, 0x04, 0x01
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_DNS_NAME, _URI = 0x82, 0x86
_COMMON_NAME, _ALT_NAMES = b"\x55\x04\x03", b"\x55\x1d\x11"

# Encodings of the string types in a name, by tag. Names with other tags are rare, and are not used as identities.
_TEXTS = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x14: "latin-1", 0x1E: "utf-16-be"}

# The kinds of attributes that RFC 4514 (section 3) has names for.
_ATTRIBUTES = {
    b"\x55\x04\x03": "CN",
    b"\x55\x04\x07": "L",
    b"\x55\x04\x08": "ST",
    b"\x55\x04\x0a": "O",
    b"\x55\x04\x0b": "OU",
    b"\x55\x04\x06": "C",
    b"\x55\x04\x09": "STREET",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19": "DC",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01": "UID",
}

Part = tuple[int, bytes]  # tag and contents


@dataclass(frozen=True, slots=True)
class Certificate:
    """The fields of a certificate that the server uses."""

    not_before: float  # seconds since the epoch
    not_after: float
    uris: tuple[str, ...]
    hosts: tuple[str, ...]
    common_name: str  # of several, the last and most specific
    subject: str = ""  # as RFC 4514 writes it, the most specific attribute first

    @property
    def identities(self) -> tuple[str, ...]:
        """The names of its holder: SPIFFE ids, other URIs, hosts; the common name only without these (RFC 6125).

        URIs must have a colon and the other kinds must not, so that no host name can pass for a SPIFFE id.
        """
        uris = sorted((uri for uri in self.uris if ":" in uri), key=lambda uri: not uri.startswith("spiffe://"))
        named = (*uris, *(host for host in self.hosts if ":" not in host))
        if named or ":" in self.common_name or not self.common_name:
            return named
        return (self.common_name,)


def blocks(pem: bytes) -> list[str]:
    """Return the PEM blocks of the certificates in a file, without any other text."""
    return [found.decode("ascii") for found in _PEM.findall(pem)]


def certificates(pem: bytes) -> list[Certificate | None]:
    """Read all certificates in a file; None for each that can't be parsed."""
    return [_read(found.encode()) for found in blocks(pem)]


@lru_cache(maxsize=1024)
def identities_of(certificate: bytes) -> tuple[str, ...]:
    """Return the identities in a certificate (DER or PEM); none if it can't be parsed.

    Results are cached: grpc returns the same certificate for each call.
    """
    known = _read(certificate)
    return known.identities if known is not None else ()


@lru_cache(maxsize=1024)
def proved_by(certificate: bytes) -> tuple[Identity, ...]:
    """Return what a verified certificate (DER or PEM) proves, for a policy; nothing if it can't be parsed."""
    known = _read(certificate)
    return proved(known.uris, known.hosts, known.subject) if known is not None else ()


def _read(certificate: bytes) -> Certificate | None:
    try:
        if certificate.startswith(b"-----"):
            certificate = ssl.PEM_cert_to_DER_cert(certificate.decode("ascii"))
        return read_certificate(certificate)
    except ValueError:
        return None


def read_certificate(der: bytes) -> Certificate:
    """Parse a certificate (RFC 5280, section 4.1). Raises ValueError."""
    fields = [*_parts(_inside(_inside(der, _SEQUENCE), _SEQUENCE))]
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    if len(fields) < 6:
        raise ValueError("too few fields for a certificate")
    _serial, _algorithm, _issuer, (_, validity), (_, subject), _key, *rest = fields
    times = [_time(part) for part in _parts(validity)]
    if len(times) != 2:
        raise ValueError("the validity is not two times")
    names = _alt_names(rest)
    return Certificate(
        times[0],
        times[1],
        tuple(text for tag, text in names if tag == _URI),
        tuple(text for tag, text in names if tag == _DNS_NAME),
        _common_name(subject),
        _subject_text(subject),
    )


def _alt_names(fields: list[Part]) -> list[tuple[int, str]]:
    """Return the URIs and host names of the subjectAltName extension, with their tags (section 4.2.1.6)."""
    found: list[tuple[int, str]] = []
    for tag, contents in fields:
        for _, extension in _parts(_inside(contents, _SEQUENCE)) if tag == _EXTENSIONS else ():
            members = [part for part in _parts(extension) if part[0] != _BOOLEAN]
            if len(members) == 2 and members[0] == (_OID, _ALT_NAMES) and members[1][0] == _OCTETS:
                names = _parts(_inside(members[1][1], _SEQUENCE))
                found += [(kind, text.decode("ascii")) for kind, text in names if kind in (_DNS_NAME, _URI)]
    return found


def _common_name(subject: bytes) -> str:
    """Return the last common name of a subject, which is a sequence of sets of pairs (section 4.1.2.4)."""
    name = ""
    for _, group in _parts(subject):
        for _, pair in _parts(group):
            members = [*_parts(pair)]
            if len(members) == 2 and members[0] == (_OID, _COMMON_NAME) and members[1][0] in _TEXTS:
                tag, text = members[1]
                name = text.decode(_TEXTS[tag])
    return name


def _subject_text(subject: bytes) -> str:
    """Write a subject as RFC 4514 does. Attributes of other kinds have their number and their bytes."""
    groups: list[str] = []
    for _, group in _parts(subject):
        pairs: list[str] = []
        for _, pair in _parts(group):
            members = [*_parts(pair)]
            if len(members) != 2 or members[0][0] != _OID:
                raise ValueError("an attribute is a kind and a value")
            (_, kind), (tag, value) = members
            if kind in _ATTRIBUTES and tag in _TEXTS:
                pairs.append(f"{_ATTRIBUTES[kind]}={_escaped(value.decode(_TEXTS[tag]))}")
            else:
                pairs.append(f"{_dotted(kind)}=#{value.hex()}")
        groups.append("+".join(pairs))
    return ",".join(reversed(groups))


def _escaped(text: str) -> str:
    """Escape what has a meaning in the text form of a subject (RFC 4514, section 2.4)."""
    escaped = "".join(f"\\{each}" if each in '"+,;<>\\=' else "\\00" if each == "\0" else each for each in text)
    if escaped[:1] in (" ", "#"):
        escaped = f"\\{escaped}"
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") and len(text) > 1 else escaped


def _dotted(kind: bytes) -> str:
    """Write an object identifier as numbers (X.690, section 8.19)."""
    numbers: list[int] = []
    number = 0
    for each in kind:
        number = number << 7 | each & 0x7F
        if not each & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2) if numbers else 0
    head = [first, numbers[0] - 40 * first] if numbers else []
    return ".".join(map(str, [*head, *numbers[1:]]))


def _time(part: Part) -> float:
    """Parse UTCTime, whose two-digit years are 1950 to 2049, or GeneralizedTime (section 4.1.2.5)."""
    tag, contents = part
    text = contents.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("not a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _inside(der: bytes, tag: int) -> bytes:
    """Return the contents of the first element, which must have this tag."""
    for found, contents in _parts(der):
        if found == tag:
            return contents
        break
    raise ValueError("not a certificate")


def _parts(der: bytes) -> Iterator[Part]:
    """Split DER into elements: tag, length, contents (X.690, section 8.1). All tags in a certificate have one byte."""
    at = 0
    while at < len(der):
        if len(der) < at + 2:
            raise ValueError("cut short")
        tag, length = der[at], der[at + 1]
        at += 2
        if length >= 0x80:
            size = length & 0x7F
            length = int.from_bytes(der[at : at + size])
            if not 0 < size <= 4 or len(der) < at + size:
                raise ValueError("the length is not valid in DER")
            at += size
        if len(der) < at + length:
            raise ValueError("cut short")
        yield tag, der[at : at + length]
        at += length
