"""Find the type URL of a resource type that a caller names: on the command line, in a program or a file (DESIGN 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from difflib import SequenceMatcher

from ...argument_types import expect
from ...errors import UsageError
from ...similar import did_you_mean
from .types import PREFIX, TYPES, TypeSpec, TypeUrl

_WORDS = {word: spec.url for spec in TYPES for word in spec.words}

_URLS = frozenset(spec.url for spec in TYPES)

# A resource type as callers name it: a word such as `cds`, a message's full name, a type URL, or a message class.
TypeName = str | type[object]

_FULL_NAME = re.compile(r"[a-z_]\w*(\.[a-z_]\w*)+", re.ASCII | re.IGNORECASE)
_LONGEST = 200  # characters of a name that is compared with others, and quoted
# Two messages of one Envoy package, if they begin alike, are less alike than this; a slip of the finger leaves more.
_ALIKE = 0.85


def resolve_type(name: object, further: Iterable[TypeSpec] = ()) -> TypeUrl:
    """Turn a type as callers name it (`TypeName`) into a type URL. DESIGN 4.

    `further`: types that the caller defined, whose words count before the known ones. Any well-formed full name or URL
    is a type. Raises UsageError for what is neither, and for what can only be a slip of a known type.
    """
    full_name = getattr(getattr(name, "DESCRIPTOR", None), "full_name", None)  # a message class; no protobuf here
    if isinstance(full_name, str):
        return PREFIX + full_name
    if not isinstance(name, str):
        expect(name, str)  # raises TypeError
        return ""
    for spec in further:
        if name.lower() in spec.words:
            return spec.url
    known = _WORDS.get(name.lower())
    if known is not None:
        return known
    url = name if "/" in name else PREFIX + name
    is_type = _FULL_NAME.fullmatch(name) is not None or ("/" in name and _is_url(name))
    if is_type and (url in _URLS or not _close_url(url)):
        return url
    words = ", ".join(dict.fromkeys(spec.words[0] for spec in (*TYPES, *further) if spec.words))
    shown = repr(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}...")
    hint = f"; did you mean {_close_url(url)}?" if is_type else did_you_mean(name.lower(), _WORDS)
    raise UsageError(f"unknown resource type {shown}: use one of {words}, a message's full name, or a type URL{hint}")


def _is_url(name: str) -> bool:
    """Whether this may be the URL of a type: it has something after its last slash, and no spaces."""
    return not name.endswith("/") and not any(each.isspace() for each in name)


def _close_url(url: TypeUrl) -> str:
    """Return the full name of the known type of the same package that this is nearly the name of, or nothing."""
    package, _, message = url.rpartition(".")
    if len(url) <= _LONGEST:
        for spec in TYPES:
            at, _, known = spec.url.rpartition(".")
            if at != package or known[:1].lower() != message[:1].lower():  # LbEndpoint is no slip of Endpoint
                continue
            if SequenceMatcher(None, known, message).ratio() > _ALIKE:
                return spec.url.removeprefix(PREFIX)
    return ""


def own_types(types: Iterable[TypeSpec]) -> tuple[TypeSpec, ...]:
    """Return the types that a program defines, with the URLs of all names that it gave. Raises UsageError."""
    given = [*types]
    for each in given:
        expect(each, TypeSpec)
    return tuple(
        replace(
            each,
            url=resolve_type(each.url, given),
            words=tuple(word.lower() for word in each.words),
            referrers=tuple(resolve_type(url, given) for url in each.referrers),
        )
        for each in given
    )
