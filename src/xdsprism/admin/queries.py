"""Reads the query strings of the admin port.

No error repeats a value, which may be a secret that was pasted into the wrong place.
"""

from __future__ import annotations

import re

from starlette.requests import Request

from ..core.model.type_names import resolve_type
from ..core.model.types import TYPES, TypeUrl
from ..core.model.xdstp import spelled
from ..core.session.sync_state import SyncState
from ..errors import UsageError

_WORD = re.compile("[a-z_]{1,20}")


def parameters(request: Request, *known: str) -> dict[str, str]:
    """Return the parameters of a query. Raises UsageError if one is unknown or given twice."""
    given: dict[str, str] = {}
    for key, value in request.query_params.multi_items():
        if key not in known:
            names = ", ".join(known) or "none"
            what = f"unknown parameter {key!r}" if _WORD.fullmatch(key) else "unknown parameter"
            raise UsageError(f"{what}; this page knows: {names}")
        if key in given and key != "param":
            raise UsageError(f"parameter {key!r} is given twice")
        given[key] = value
    return given


def type_and_name(given: dict[str, str], example: str) -> tuple[TypeUrl, str]:
    for needed in ("type", "name"):
        if needed not in given:
            raise UsageError(f"{needed}= is missing: {example}")
    return type_of(given["type"]), spelled(given["name"])


def type_label(type_url: TypeUrl) -> str:
    return next((spec.label for spec in TYPES if spec.url == type_url), "resource")


def given_type(given: dict[str, str]) -> TypeUrl | None:
    return type_of(given["type"]) if "type" in given else None


def state_of(word: str | None) -> SyncState | None:
    """Read a state as the pages write it, in any case; `_` is a space."""
    if word is None:
        return None
    try:
        return SyncState(word.upper().replace("_", " "))
    except ValueError as error:
        raise UsageError(f"state= is none of {', '.join(SyncState)}") from error


def type_of(word: str) -> TypeUrl:
    try:
        return resolve_type(word)
    except UsageError as error:
        words = ", ".join(spec.words[0] for spec in TYPES)
        raise UsageError(f"type= is not a resource type: use one of {words}, or a type URL") from error


def number(given: dict[str, str], key: str, default: int, most: int | None = None) -> int:
    text = given.get(key)
    if text is None:
        return default
    if not text.isdecimal() or not text.isascii() or len(text) > 9:
        raise UsageError(f"{key}= is not a number")
    if most is not None and not 0 < int(text) <= most:
        raise UsageError(f"{key}= is not between 1 and {most}")
    return int(text)


def flag(given: dict[str, str], key: str) -> bool:
    text = given.get(key, "0")
    if text not in ("0", "1"):
        raise UsageError(f"{key}= is neither 0 nor 1")
    return text == "1"


def assignments(request: Request) -> dict[str, str]:
    """Return the params of `param=KEY=VALUE`, which may be given several times."""
    params: dict[str, str] = {}
    for text in request.query_params.getlist("param"):
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError("a param= is not KEY=VALUE: write it as KEY%3DVALUE")
        if key in params:
            raise UsageError("two param= have the same key")
        params[key] = value
    return params
