"""Removes secrets from what a client says about a resource (OPS-14): a NACK may quote what the client was sent.

Envoy writes a message that it refuses into its NACK as text. So the values of fields that hold secrets are removed
wherever they look like those; and of what a client says about Secrets, every word that is in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .types import Variant

MARK: Final = "[redacted]"
NOT_SHOWN: Final = "the reason is not shown, as it may quote a secret; the client has it in its log"
WORK: Final = 16 * 1024 * 1024  # bytes that are compared for one text
SHORTEST: Final = 4  # characters of a word that is looked for: shorter ones are in everything

_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_FIELD: Final = re.compile(
    r"\b(inline_?string|inline_?bytes|[a-z_]*password|(?:access|session|refresh|authorization|backend)_?token|"
    r"secret_access_key|json_key|raw_value)"
    r"([\"']?\s*[:=]\s*)(?:\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?)",
    re.IGNORECASE | re.DOTALL,
)
_LOGIN: Final = re.compile(r"(\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}")
_URL: Final = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_WORD: Final = re.compile(r"[^\s\"'`,;:|&=(){}<>\[\]\\]+")


def without_secrets(text: str) -> str:
    """Return a client's text without what looks like the value of a secret field."""
    text = _KEY.sub(MARK, text)
    text = _FIELD.sub(rf"\1\2{MARK}", text)
    text = _LOGIN.sub(rf"\1{MARK}", text)
    return _URL.sub(rf"\1{MARK}@", text)


def without_contents(text: str, secrets: Sequence[Variant]) -> str:
    """Return a client's text about Secrets without any word that is in one of them, except in their names.

    The contents are protobuf, in which every text stands as it is.
    """
    words = {word.strip(".!?") for word in _WORD.findall(text)}
    found = sorted((word for word in words if len(word) >= SHORTEST), key=len, reverse=True)
    if not secrets or len(found) * sum(each.size for each in secrets) > WORK:
        return NOT_SHOWN
    names = " ".join([each.name for each in secrets])
    for word in found:
        part = word.encode(errors="surrogateescape")
        if word not in names and any(part in each.body for each in secrets):
            text = text.replace(word, MARK)
    return text
